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
	"github.com/goatnote-inc/robocache/loader/internal/column"
	"github.com/goatnote-inc/robocache/loader/internal/layout"
	"github.com/goatnote-inc/robocache/loader/internal/options"
	"github.com/goatnote-inc/robocache/loader/internal/order"
	"github.com/goatnote-inc/robocache/loader/internal/pipeline"
	"github.com/goatnote-inc/robocache/loader/internal/plan"
)

// Loader gives the batches of one rank, epoch after epoch. All methods may be called from many goroutines; calls of Next wait for each other.
type Loader struct {
	a   *pipeline.Assembler
	cfg options.Config

	taking chan struct{} // holds a token while Next runs; taken before mu. A channel: who waits for it can give up

	mu       sync.Mutex
	at       *order.Progress // replaced by Restore
	run      *pipeline.EpochRun
	followed bool // an epoch ended, and the loader stands behind it: the next run goes on from epoch to epoch
	began    time.Time
	errors   map[string]int64 // by class
	random   *Randomness      // of the pool; nil until asked for
	randomOf *order.Ordering  // which it is of
	closed   bool
}

// New makes a Loader. Nothing is decoded, and no goroutine runs, before the first Next. The dataset stays the caller's: close the Loader first.
func New(ctx context.Context, ds robocache.Dataset, cfg options.Config) (*Loader, error) {
	return NewMix(ctx, []options.Mix{{Dataset: ds}}, cfg)
}

// NewMix makes a Loader of several datasets: each batch holds samples of all of them, in the shares that their weights say. Its keys are
// those of all sources; a key means the same in each, and `dataset_index` says which source a sample is of.
func NewMix(ctx context.Context, mix []options.Mix, cfg options.Config) (*Loader, error) {
	if err := cfg.Validate(true); err != nil {
		return nil, err
	}
	mix = slices.Clone(mix)
	if err := plan.CheckMix(mix, &cfg); err != nil {
		return nil, err
	}
	compiled, err := plan.Compile(ctx, mix, cfg)
	if err != nil {
		return nil, err
	}
	a, err := pipeline.New(ctx, compiled)
	if err != nil {
		return nil, err
	}
	l := &Loader{a: a, cfg: a.Config, taking: make(chan struct{}, 1)}
	if _, _, err = a.DecodeHorizon(); err == nil {
		l.at, err = startOfOrder(compiled, mix)
	}
	if err != nil {
		a.Close()
		return nil, err
	}
	return l, nil
}

// startOfOrder returns the progress at the start of the first epoch.
func startOfOrder(p *plan.Plan, mix []options.Mix) (*order.Progress, error) {
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

// Next gives the next batch, or io.EOF at the end of the epoch; the call after that begins the next epoch.
// After another error the loader stands where it stood: Next tries the same batch again.
func (l *Loader) Next(ctx context.Context) (*layout.Batch, error) {
	select {
	case l.taking <- struct{}{}:
		return l.next(ctx, true)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// TryNext is Next without waiting: ok is false where the next batch is not finished, or another Next runs. It starts the work on
// it, so that a later call finds it. At the end of the epoch err is io.EOF.
func (l *Loader) TryNext() (b *layout.Batch, ok bool, err error) {
	select {
	case l.taking <- struct{}{}:
		b, err = l.next(context.Background(), false)
	default:
	}
	return b, b != nil, err
}

// next gives the next batch; without waiting it may be none. The caller has put a token into taking.
func (l *Loader) next(ctx context.Context, wait bool) (*layout.Batch, error) {
	defer func() { <-l.taking }()
	begin := time.Now()
	for {
		r, epoch, err := l.running(begin)
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
		case <-r.NextBatch.Done: // the usual case needs no timer
		default:
			if !wait {
				return nil, nil
			}
			if over, err := l.await(ctx, r); over || err != nil {
				if err != nil {
					return nil, err
				}
				continue
			}
		}
		if b, retry, err := l.handOut(r, begin); !retry {
			return b, err
		}
	}
}

// await waits for the batch at the head of a run; over says that the run has ended instead. Workers do the head's parts
// first, so that a head without progress means that nothing moves.
func (l *Loader) await(ctx context.Context, r *pipeline.EpochRun) (over bool, err error) {
	u := r.NextBatch
	var late <-chan time.Time
	if l.cfg.Deadline > 0 {
		timer := time.NewTicker(time.Duration(l.cfg.Deadline * float64(time.Second)))
		defer timer.Stop()
		late = timer.C
	}
	left := u.Pending.Load()
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
			if now == left && now > 0 {
				return false, robocache.Temporary("loader", robocache.Where{"position": u.Batch.Position}, "no progress for %v s: the batch waits for %d more columns and frames", l.cfg.Deadline, now).
					WithHint("is the store reachable? deadline_s sets how long a batch may stand still")
			}
			left = now
		}
	}
}

// running gives the run, started where there is none, and the epoch where the loader stands.
func (l *Loader) running(now time.Time) (*pipeline.EpochRun, int64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil, 0, errClosed()
	}
	if l.began.IsZero() {
		l.began = now
	}
	if l.run == nil {
		l.run = pipeline.StartRun(l.a, *l.at, l.followed)
	}
	return l.run, l.at.Epoch, nil
}

func errClosed() error {
	return robocache.Misuse("loader", nil, "the loader is closed")
}

// endEpoch goes to the next epoch when a run has given all, or its next batch is of another; false where neither holds any more.
func (l *Loader) endEpoch(r *pipeline.EpochRun) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch u := r.NextBatch; {
	case l.run != r || u != nil && u.Epoch == l.at.Epoch:
		return false
	case u != nil:
		l.a.Report.Skipped.Add(u.SkippedBehind)
		u.SkippedBehind = 0
		l.leave()
	default:
		l.a.Report.Skipped.Add(r.Skipped)
		l.stopRun()
	}
	l.at.GoTo(l.at.Epoch + 1)
	l.followed = true
	return true
}

// leave lets go of what a pool's epoch, whose batches were all given, keeps for samples that drop_last leaves out; its run goes on into the next.
func (l *Loader) leave() {
	if l.cfg.Shuffle == Pool {
		l.a.Frames.ReleaseEpoch(l.at.Epoch)
	}
}

func (l *Loader) stopRun() {
	if l.run != nil {
		l.run.Stop()
		l.run = nil
	}
}

// handOut gives the finished batch at the head of a run. retry says that Next must look once more.
func (l *Loader) handOut(r *pipeline.EpochRun, begin time.Time) (b *layout.Batch, retry bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.run != r || l.closed {
		return nil, true, nil
	}
	u := r.NextBatch
	if u.Err != nil {
		l.stopRun()
		if u.Err != pipeline.ErrNoSpace {
			l.count(u.Err)
		}
		return nil, u.Err == pipeline.ErrNoSpace, u.Err
	}
	if len(u.BadEpisodes) > 0 {
		err := l.exclude(u.BadEpisodes)
		l.stopRun()
		return nil, err == nil, err
	}
	n := &l.a.Counters
	l.at.Given(u.CursorAfter)
	n.Wrapped.Add(u.Wrapped)
	l.a.Report.Skipped.Add(u.Skipped + u.SkippedBehind)
	n.Samples.Add(int64(u.Batch.Rows))
	if n.Batches.Add(1) == 1 {
		n.First.Store(int64(time.Since(l.began)))
	}
	n.WaitData.Add(int64(time.Since(begin)))
	r.NextBatch = nil
	return r.Release(u), false, nil
}

// count counts an error for Stats. l.mu is held.
func (l *Loader) count(err error) {
	if l.errors == nil {
		l.errors = map[string]int64{}
	}
	class, _ := robocache.ClassOf(err)
	l.errors[class]++
}

// exclude takes bad episodes out of the order, from the batch on that could not be made: that position does not depend on how
// far was prefetched.
func (l *Loader) exclude(found map[column.EpisodeKey]error) error {
	position := l.at.Position()
	episodes := slices.SortedFunc(maps.Keys(found), func(x, y column.EpisodeKey) int { return cmp.Or(x.Source-y.Source, x.Episode-y.Episode) })
	bad := make([]BadEpisode, 0, len(episodes))
	for _, e := range episodes {
		l.count(found[e])
		bad = append(bad, BadEpisode{Source: e.Source, Episode: e.Episode, Epoch: l.at.Epoch, Position: position, Error: found[e].Error()})
	}
	if !l.at.Exclude(bad) {
		return robocache.Malformed("loader", nil, "every episode is bad").
			WithCause(found[episodes[0]])
	}
	return nil
}

// Fields describes a batch, in its order, before there is one.
func (l *Loader) Fields() []layout.Field { return l.a.Schema.Fields }

// Samples is the number of samples of an epoch, over all ranks.
func (l *Loader) Samples() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.at.Order.Samples()
}

// Len is the number of batches of a whole epoch on each rank.
func (l *Loader) Len() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.at.Len()
}

// Remaining is the number of batches until the epoch ends.
func (l *Loader) Remaining() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.at.Remaining()
}

// Epoch is the epoch that the next batch belongs to.
func (l *Loader) Epoch() int64 { return l.Standing().Epoch }

// SetEpoch goes to the start of an epoch. It does nothing where the loader stands in that epoch and has given nothing
// since it was made or restored, so that set_epoch after load_state_dict keeps the place.
func (l *Loader) SetEpoch(epoch int64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return errClosed()
	}
	if l.at.Fresh(epoch) {
		return nil
	}
	// Who has had an epoch's last batch may know that it is the last, and not ask for more.
	l.followed = epoch == l.at.Epoch+1 && l.at.Ended()
	if l.run != nil && l.followed && l.run.IsEndless {
		l.leave()
	} else {
		l.stopRun()
	}
	l.at.GoTo(epoch)
	return nil
}

// Rows says which row of the dataset each sample is (with hz: which row of the episode's timeline).
func (l *Loader) Rows(indices []int64) ([]robocache.Row, error) { return l.a.RowsOf(indices) }

// Locate says for samples by number which source each is of, and which row of its dataset (with hz: which row of the episode's
// timeline). A loader of one dataset has one source, 0.
func (l *Loader) Locate(indices []int64, each func(i, source int, r robocache.Row)) error {
	return l.a.Locate(indices, each)
}

// Notes says what the loader chose without being asked for: the split for training.
func (l *Loader) Notes() []string { return l.a.Report.Notes }

// Close ends all goroutines and waits for them. Batches that were handed out stay valid until their Release.
func (l *Loader) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil
	}
	l.closed = true
	l.stopRun()
	l.a.Close()
	return nil
}
