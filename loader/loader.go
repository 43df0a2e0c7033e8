package loader

import (
	"cmp"
	"context"
	"io"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/loader/contract"
	"github.com/goatnote-inc/robocache/loader/internal/column"
	"github.com/goatnote-inc/robocache/loader/internal/order"
	"github.com/goatnote-inc/robocache/loader/internal/pipeline"
	"github.com/goatnote-inc/robocache/loader/internal/plan"
	"github.com/goatnote-inc/robocache/loader/options"
)

// Loader delivers the batches of one rank, epoch after epoch. Safe for concurrent use; concurrent
// calls of Next run one after the other.
type Loader struct {
	assembler *pipeline.Assembler
	config    Config

	// consumerLock holds a token while Next or TryNext runs. It is acquired before mu. It is a
	// channel so that a waiting call can be canceled.
	consumerLock chan struct{}

	mu       sync.Mutex
	progress *order.Progress // replaced by Restore
	run      *pipeline.EpochRun
	// isContinuing is set when an epoch has ended and the loader is at the start of the next one.
	// The next run then continues from epoch to epoch.
	isContinuing    bool
	startTime       time.Time        // of the first Next; zero before
	errorCounts     map[string]int64 // per class
	poolRandomness  *Randomness      // nil: not measured yet
	randomnessOrder *order.Ordering  // the order that poolRandomness was measured of
	isClosed        bool

	follow  *follower // nil: the dataset is fixed
	earlier Stats     // totals of the assemblers that were replaced
	// assemblerLock is held for reading by methods that use assembler without mu. Replacing the
	// assembler needs both locks. It is acquired after mu.
	assemblerLock sync.RWMutex
}

// New returns a Loader of one dataset. It decodes nothing and starts no goroutine before the first
// Next. The caller keeps ds and must close the Loader before it. The caller must call Close.
func New(ctx context.Context, ds robocache.Dataset, cfg Config) (*Loader, error) {
	return NewMix(ctx, []Mix{{Dataset: ds}}, cfg)
}

// NewMix returns a Loader of several datasets. Each batch holds samples of all of them, in the
// shares that their weights state. The keys of a batch are those of all sources, and a key has one
// meaning in all of them. `dataset_index` holds the source of each sample. The caller must call
// Close.
func NewMix(ctx context.Context, mix []Mix, cfg Config) (*Loader, error) {
	if err := cfg.Validate(true); err != nil {
		return nil, err
	}
	if cfg.Follow != nil {
		return nil, robocache.Misuse("loader", nil, "%s: a loader of a dataset that is open, or of "+
			"several datasets", robocache.Option("follow", true)).
			WithHint("NewFollower opens the dataset again whenever new episodes enter.")
	}
	a, progress, err := newAssembler(ctx, slices.Clone(mix), cfg)
	if err != nil {
		return nil, err
	}
	return &Loader{
		assembler:    a,
		config:       a.Config,
		consumerLock: make(chan struct{}, 1),
		progress:     progress,
	}, nil
}

// newAssembler compiles the sources of a loader under a validated configuration. The progress is at
// the start of the first epoch. It may change mix. The caller must close the assembler.
func newAssembler(
	ctx context.Context, mix []Mix, cfg Config,
) (*pipeline.Assembler, *order.Progress, error) {
	if err := plan.CheckMix(mix, &cfg); err != nil {
		return nil, nil, err
	}
	compiled, err := plan.Compile(ctx, mix, cfg)
	if err != nil {
		return nil, nil, err
	}
	a, err := pipeline.New(ctx, compiled)
	if err != nil {
		return nil, nil, err
	}
	var progress *order.Progress
	if _, _, err = a.DecodeHorizon(); err == nil {
		progress, err = startOfOrder(compiled, mix)
	}
	if err != nil {
		a.Close()
		return nil, nil, err
	}
	return a, progress, nil
}

// startOfOrder returns the progress at the start of the first epoch.
func startOfOrder(p *plan.Plan, mix []Mix) (*order.Progress, error) {
	o, err := p.NewOrder(mix)
	if err != nil {
		return nil, err
	}
	cfg := &p.Config
	at := &order.Progress{Order: o, Ranks: order.Ranks{
		Batch:    cfg.BatchSize,
		World:    cfg.WorldSize,
		Rank:     cfg.Rank,
		DropLast: cfg.DropLast,
		Short:    cfg.Uneven == options.Short,
	}}
	return at, at.Check()
}

// Next returns the next batch, or io.EOF at the end of the epoch. The call after io.EOF begins the
// next epoch. It blocks until the batch is complete or ctx is canceled. After any other error the
// position is unchanged: the next call tries the same batch again. The caller must call Release on
// the batch.
func (l *Loader) Next(ctx context.Context) (*Batch, error) {
	select {
	case l.consumerLock <- struct{}{}:
		return l.nextBatch(ctx, true)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// TryNext is Next without blocking. ok is false if the next batch is not complete or another call
// of Next runs. TryNext starts the work on the batch, so that a later call finds it complete. At
// the end of the epoch err is io.EOF.
func (l *Loader) TryNext() (b *Batch, ok bool, err error) {
	select {
	case l.consumerLock <- struct{}{}:
		b, err = l.nextBatch(context.Background(), false)
	default:
	}
	return b, b != nil, err
}

// nextBatch delivers the next batch. If wait is false, it returns nil instead of blocking. Caller
// must hold the token of l.consumerLock; nextBatch releases it.
func (l *Loader) nextBatch(ctx context.Context, wait bool) (*Batch, error) {
	defer func() { <-l.consumerLock }()
	begin := time.Now()
	for {
		if isReady, err := l.enterGeneration(ctx, wait); err != nil || !isReady {
			return nil, err
		}
		r, epoch, err := l.ensureRun(begin)
		if err != nil {
			return nil, err
		}
		if r.NextBatch == nil {
			u, open := (*pipeline.PlannedBatch)(nil), false
			select {
			case u, open = <-r.Batches:
			default:
				if !wait {
					return nil, nil
				}
				select {
				case u, open = <-r.Batches:
				case <-ctx.Done():
					return nil, ctx.Err()
				case <-r.Ctx.Done():
					continue
				}
			}
			if !open {
				if l.endEpoch(r) {
					return nil, io.EOF
				}
				continue
			}
			r.NextBatch = u
		}
		if r.NextBatch.Epoch != epoch {
			if l.endEpoch(r) {
				return nil, io.EOF
			}
			continue
		}
		select {
		case <-r.NextBatch.Done: // the usual case: no timer is needed
		default:
			if !wait {
				return nil, nil
			}
			if over, err := l.awaitBatch(ctx, r); over || err != nil {
				if err != nil {
					return nil, err
				}
				continue
			}
		}
		if b, retry, err := l.deliverNext(r, begin); !retry {
			return b, err
		}
	}
}

// awaitBatch blocks until the run's next batch is complete. over reports that the run was stopped
// instead. Workers serve the next batch first, so if it makes no progress within deadline_s,
// awaitBatch returns an error.
func (l *Loader) awaitBatch(ctx context.Context, r *pipeline.EpochRun) (over bool, err error) {
	u := r.NextBatch
	var late <-chan time.Time
	if l.config.Deadline > 0 {
		timer := time.NewTicker(time.Duration(l.config.Deadline * float64(time.Second)))
		defer timer.Stop()
		late = timer.C
	}
	pending := u.Pending.Load()
	for {
		select {
		case <-u.Done:
			return false, nil
		case <-ctx.Done():
			return false, ctx.Err()
		case <-r.Ctx.Done():
			return true, nil
		case <-late:
			now := u.Pending.Load()
			if now == pending && now > 0 {
				return false, l.deadlineError(u, now)
			}
			pending = now
		}
	}
}

// deadlineError returns the error of a batch whose pending parts made no progress for deadline_s.
func (l *Loader) deadlineError(u *pipeline.PlannedBatch, pending int64) error {
	const msg = "no progress for %v s: the batch waits for %d more columns and frames"
	where := robocache.Where{"position": u.Batch.Position}
	return robocache.Temporary("loader", where, msg, l.config.Deadline, pending).
		WithHint("Check that the store is reachable, or set a larger deadline_s.")
}

// ensureRun returns the current run, which it starts if there is none, and the loader's epoch.
func (l *Loader) ensureRun(now time.Time) (*pipeline.EpochRun, int64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.isClosed {
		return nil, 0, errClosed()
	}
	if l.startTime.IsZero() {
		l.startTime = now
	}
	if l.run == nil {
		l.run = pipeline.StartRun(l.assembler, *l.progress, l.isContinuing)
	}
	return l.run, l.progress.Epoch, nil
}

func errClosed() error {
	return robocache.Misuse("loader", nil, "the loader is closed")
}

// endEpoch advances to the next epoch if the run has delivered all batches of this one. It returns
// false if the run was replaced or still has batches of this epoch.
func (l *Loader) endEpoch(r *pipeline.EpochRun) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch u := r.NextBatch; {
	case l.run != r || u != nil && u.Epoch == l.progress.Epoch:
		return false
	case u != nil:
		l.assembler.Report.Skipped.Add(u.SkippedBehind)
		u.SkippedBehind = 0
		l.releaseEpoch()
	default:
		l.assembler.Report.Skipped.Add(r.Skipped)
		l.stopRun()
	}
	l.progress.GoTo(l.progress.Epoch + 1)
	l.isContinuing = l.follow == nil
	if l.follow != nil {
		l.follow.moveTo(l.progress.Epoch)
	}
	return true
}

// releaseEpoch releases the frames that a pool stores for samples that drop_last omits. All batches
// of the epoch must be delivered, and its run must continue with the next epoch. Caller must hold
// l.mu.
func (l *Loader) releaseEpoch() {
	if l.config.Shuffle == Pool {
		l.assembler.Frames.ReleaseEpoch(l.progress.Epoch)
	}
}

// stopRun stops the run, if there is one, and waits for it. Caller must hold l.mu.
func (l *Loader) stopRun() {
	if l.run != nil {
		l.run.Stop()
		l.run = nil
	}
}

// deliverNext returns the complete next batch of a run and advances the position. retry reports
// that Next must look again, because the run was replaced, a bad episode was skipped, or the batch
// must be built again with fewer in flight.
func (l *Loader) deliverNext(
	r *pipeline.EpochRun,
	begin time.Time,
) (b *Batch, retry bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.run != r || l.isClosed {
		return nil, true, nil
	}
	u := r.NextBatch
	if l.reopenAfter(u) {
		return nil, true, nil
	}
	if u.Err != nil {
		l.stopRun()
		if u.Err != pipeline.ErrNoSpace {
			l.countError(u.Err)
		}
		return nil, u.Err == pipeline.ErrNoSpace, u.Err
	}
	if len(u.BadEpisodes) > 0 {
		err := l.excludeEpisodes(u.BadEpisodes)
		l.stopRun()
		return nil, err == nil, err
	}
	counters := &l.assembler.Counters
	l.progress.Given(u.CursorAfter)
	counters.Wrapped.Add(u.Wrapped)
	l.assembler.Report.Skipped.Add(u.Skipped + u.SkippedBehind)
	counters.Samples.Add(int64(u.Batch.Rows))
	if counters.Batches.Add(1) == 1 {
		counters.First.Store(int64(time.Since(l.startTime)))
	}
	counters.WaitData.Add(int64(time.Since(begin)))
	r.NextBatch = nil
	return r.Release(u), false, nil
}

// countError counts an error for Stats. Caller must hold l.mu.
func (l *Loader) countError(err error) {
	if l.errorCounts == nil {
		l.errorCounts = map[string]int64{}
	}
	class, _ := robocache.ClassOf(err)
	l.errorCounts[class]++
}

// excludeEpisodes removes bad episodes from the order, from the batch that could not be built. That
// position does not depend on how far the run was ahead. Caller must hold l.mu.
func (l *Loader) excludeEpisodes(found map[column.EpisodeKey]error) error {
	position := l.progress.Position()
	episodes := slices.SortedFunc(maps.Keys(found), func(x, y column.EpisodeKey) int {
		return cmp.Or(x.Source-y.Source, x.Episode-y.Episode)
	})
	bad := make([]BadEpisode, 0, len(episodes))
	for _, e := range episodes {
		l.countError(found[e])
		bad = append(bad, BadEpisode{
			Source:   e.Source,
			Episode:  e.Episode,
			Epoch:    l.progress.Epoch,
			Position: position,
			Error:    found[e].Error(),
		})
	}
	if !l.progress.Exclude(bad) {
		return robocache.Malformed("loader", nil, "every episode is bad").
			WithCause(found[episodes[0]])
	}
	return nil
}

// Fields returns the description of a batch, in the order of its entries. The result is shared and
// must not be changed.
func (l *Loader) Fields() []Field {
	l.assemblerLock.RLock()
	defer l.assemblerLock.RUnlock()
	return l.assembler.Schema.Fields
}

// Samples returns the number of samples of an epoch, over all ranks.
func (l *Loader) Samples() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.progress.Order.Samples()
}

// Len returns the number of batches of a whole epoch on each rank.
func (l *Loader) Len() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.progress.Len()
}

// Remaining returns the number of batches until the epoch ends.
func (l *Loader) Remaining() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.progress.Remaining()
}

// Epoch returns the epoch of the next batch.
func (l *Loader) Epoch() int64 { return l.Standing().Epoch }

// SetEpoch moves to the start of an epoch. It does nothing if the loader is in that epoch and has
// delivered nothing since it was made or restored. set_epoch after load_state_dict then keeps the
// position.
func (l *Loader) SetEpoch(epoch int64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.isClosed {
		return errClosed()
	}
	if l.progress.Fresh(epoch) {
		return nil
	}
	// A consumer that counts batches calls SetEpoch without receiving io.EOF first.
	l.isContinuing = epoch == l.progress.Epoch+1 && l.progress.Ended() && l.follow == nil
	if l.run != nil && l.isContinuing && l.run.IsEndless {
		l.releaseEpoch()
	} else {
		l.stopRun()
	}
	l.progress.GoTo(epoch)
	if l.follow != nil {
		l.follow.moveTo(epoch)
	}
	return nil
}

// Rows returns the dataset row of each sample. With hz, row numbers refer to the episode's
// timeline.
func (l *Loader) Rows(indices []int64) ([]robocache.Row, error) {
	l.assemblerLock.RLock()
	defer l.assemblerLock.RUnlock()
	return l.assembler.RowsOf(indices)
}

// Locate calls each once per index, with the source and the row of the sample. i is the position in
// indices. With hz, row numbers refer to the episode's timeline. A loader of one dataset has one
// source, 0.
func (l *Loader) Locate(indices []int64, each func(i, source int, r robocache.Row)) error {
	l.assemblerLock.RLock()
	defer l.assemblerLock.RUnlock()
	return l.assembler.Locate(indices, each)
}

// EpisodeIndices replaces positions of episodes by their indices. sources holds the source of each.
func (l *Loader) EpisodeIndices(sources, episodes []int64) {
	l.assemblerLock.RLock()
	defer l.assemblerLock.RUnlock()
	for i, source := range sources {
		info := l.assembler.Sources[source].Dataset.Info()
		episodes[i] = info.EpisodeIndex(int(episodes[i]))
	}
}

// Notes returns messages about defaults that the loader chose, such as the training split.
func (l *Loader) Notes() []string {
	l.assemblerLock.RLock()
	defer l.assemblerLock.RUnlock()
	return l.assembler.Report.Notes
}

// Close stops all goroutines and waits for them. Batches that the consumer holds stay valid until
// their Release.
func (l *Loader) Close() error {
	l.mu.Lock()
	if l.isClosed {
		l.mu.Unlock()
		return nil
	}
	l.isClosed = true
	l.stopRun()
	l.assembler.Close()
	l.mu.Unlock()
	if l.follow != nil {
		return l.follow.close()
	}
	return nil
}

// Contract returns the contract of the observations of the loader's batches. It rejects an
// alignment that is not causal.
func (l *Loader) Contract() (*contract.Contract, error) {
	l.assemblerLock.RLock()
	defer l.assemblerLock.RUnlock()
	return l.assembler.Contract()
}
