package loader

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/crash"
	"github.com/goatnote-inc/robocache/loader/internal/arrivals"
	"github.com/goatnote-inc/robocache/loader/internal/order"
	"github.com/goatnote-inc/robocache/loader/internal/pipeline"
	"github.com/goatnote-inc/robocache/loader/options"
)

// Moments at which new episodes enter.
const (
	FollowEpoch = options.FollowEpoch
	FollowStep  = options.FollowStep
)

// Opener opens a dataset as it is now. The caller must close the result.
type Opener func(ctx context.Context) (robocache.Dataset, error)

// FollowStats describes the episodes of a growing dataset.
type FollowStats struct {
	Log      string   `json:"log"`                // file of the log of arrivals
	Run      string   `json:"run"`                // name of the run
	Boundary int64    `json:"boundary"`           // epoch at which the present episodes entered
	Arrivals int      `json:"arrivals"`           // episodes that had arrived by then
	Episodes int      `json:"episodes"`           // those that the rule keeps
	Waiting  []string `json:"waiting,omitempty"`  // episodes that are not complete, and why
	Failures int64    `json:"failures,omitempty"` // boundaries at which the dataset did not open
	Failure  string   `json:"failure,omitempty"`  // why it did not open last
}

// follower opens a growing dataset again at the boundaries of epochs. Its fields are guarded by
// Loader.mu, except for those that never change.
type follower struct {
	open   Opener
	rule   *arrivals.Rule
	log    *arrivals.Log
	ctx    context.Context // canceled by close
	cancel context.CancelFunc
	wg     sync.WaitGroup
	fields []Field // of all generations

	config     Config     // as given, with the defaults, and with the seed of a restored state
	run        string     // whose boundaries are used
	normalize  *Normalize // of the first generation, with its statistics; nil: not known
	current    *generation
	isPending  bool // the next batch needs another generation
	mustRenew  bool // the next generation is built even if it has the same episodes
	entry      *generationEntry
	reopenedAt [2]int64 // epoch and position at which the dataset was opened again last
	waiting    []string
	failures   int64
	failure    string
}

// generation is a loader's dataset between two boundaries.
type generation struct {
	boundary  arrivals.Boundary
	dataset   robocache.Dataset
	assembler *pipeline.Assembler
	progress  *order.Progress // at the start of the first epoch
	episodes  int             // that the rule keeps
	waiting   []string
}

// close releases the assembler and the dataset.
func (g *generation) close() error {
	g.assembler.Close()
	return g.dataset.Close()
}

// generationEntry is a change to another generation that is under way.
type generationEntry struct {
	done   chan struct{}
	cancel context.CancelFunc
	err    error // valid after done is closed
}

// NewFollower returns a Loader of a dataset that grows while it is read. New episodes enter at the
// boundaries that cfg.Follow states; package loader/internal/arrivals has the contract. open is
// called at each of them. Batches have the same keys and shapes before and after a boundary. The
// caller must call Close.
func NewFollower(ctx context.Context, open Opener, cfg Config) (*Loader, error) {
	if cfg.Follow == nil {
		cfg.Follow = &Follow{}
	}
	if err := cfg.Validate(true); err != nil {
		return nil, err
	}
	rule := cfg.Follow
	ds, err := open(ctx)
	if err != nil {
		return nil, err
	}
	path := cfg.Follow.Log
	if path == "" {
		if path, err = defaultLogPath(ds.Info().URI, rule.Terms()); err != nil {
			return nil, errors.Join(err, ds.Close())
		}
	}
	f := &follower{
		open:       open,
		rule:       rule.Rule(),
		config:     cfg,
		run:        rule.Run,
		reopenedAt: [2]int64{-1, -1},
	}
	f.config.Split = robocache.SplitAll
	note, err := checkSplits(ds.Info(), cfg.Split)
	if err == nil {
		err = f.nameRun()
	}
	if err == nil {
		f.log, err = arrivals.Open(path, rule.Terms())
	}
	if err != nil {
		return nil, errors.Join(err, ds.Close())
	}
	f.ctx, f.cancel = context.WithCancel(context.Background())
	if f.current, err = f.firstGeneration(ctx, ds); err != nil {
		f.cancel()
		return nil, err
	}
	f.waiting = f.current.waiting
	a := f.current.assembler
	f.fields = a.Schema.Fields
	if note != "" {
		a.Report.Notes = append(a.Report.Notes, note)
	}
	if settled := a.SettledNormalize(); !settled[0].IsZero() && !cfg.RefreshStats {
		f.normalize = &settled[0]
		a.Report.Notes = append(a.Report.Notes, fmt.Sprintf(
			"follow: normalization keeps the statistics of the first %d episodes; %s computes "+
				"them again", f.current.episodes, robocache.Option("refresh", true)))
	}
	return &Loader{
		assembler:    a,
		config:       a.Config,
		consumerLock: make(chan struct{}, 1),
		progress:     f.current.progress,
		follow:       f,
	}, nil
}

// nameRun gives the run a new name if it has none.
func (f *follower) nameRun() error {
	if f.run != "" {
		return nil
	}
	var name [8]byte
	if _, err := rand.Read(name[:]); err != nil {
		return err
	}
	f.run = hex.EncodeToString(name[:])
	return nil
}

// checkSplits rejects a dataset whose default is one of several splits: their ranges say nothing
// about episodes that arrive later. A recorder that is at work may have saved an episode that its
// only split does not cover yet; note then states that the split is not used.
func checkSplits(info *robocache.Info, asked string) (note string, err error) {
	name, positions := info.TrainSplit()
	if name == "" || asked != "" {
		return "", nil
	}
	isPrefix := robocache.Spans(positions) == fmt.Sprintf("0:%d", len(positions))
	if len(info.Splits) == 1 && isPrefix {
		return fmt.Sprintf("follow: all episodes are read, also those after the split %s, which "+
			"has the first %d of %d", name, len(positions), info.Episodes), nil
	}
	return "", robocache.Misuse("loader", robocache.Where{"dataset": info.URI},
		"the split %s would be read, and it cannot be followed: new episodes are in no split",
		name).
		WithHint("%s follows all episodes.", robocache.Option("split", robocache.SplitAll))
}

// defaultLogPath returns the file of the log of a dataset: next to a local one, and in the user's
// cache folder for others. Other terms have other files.
func defaultLogPath(uri string, terms arrivals.Terms) (string, error) {
	name := ".arrivals"
	if terms != (arrivals.Terms{}) {
		text, err := json.Marshal(terms)
		if err != nil {
			return "", err
		}
		sum := sha256.Sum256(text)
		name += "-" + hex.EncodeToString(sum[:4])
	}
	name += ".log"
	path := strings.TrimPrefix(uri, "file://")
	if _, err := os.Stat(path); err == nil {
		return filepath.Clean(path) + name, nil
	}
	folder, err := os.UserCacheDir()
	if err != nil {
		return "", robocache.Misuse("loader", nil, "there is no folder for the log of arrivals").
			WithCause(err).
			WithHint("Name a file: %s.", robocache.Option("follow", "log", "FILE"))
	}
	folder = filepath.Join(folder, "robocache")
	if err := os.MkdirAll(folder, 0o777); err != nil {
		return "", robocache.Misuse("loader", nil, "the folder for the log of arrivals").
			WithCause(err).
			WithHint("Name a file: %s.", robocache.Option("follow", "log", "FILE"))
	}
	sum := sha256.Sum256([]byte(uri))
	return filepath.Join(folder, hex.EncodeToString(sum[:8])+name), nil
}

// boundaryEpoch returns the epoch whose boundary determines the episodes of an epoch.
func (f *follower) boundaryEpoch(epoch int64) int64 {
	if f.config.Follow.At == FollowStep {
		return epoch
	}
	return epoch - epoch%int64(f.config.Follow.Every)
}

// moveTo notes that the next batch is of an epoch. Caller must hold Loader.mu.
func (f *follower) moveTo(epoch int64) {
	f.cancelEntry()
	f.isPending = f.mustRenew || f.boundaryEpoch(epoch) != f.current.boundary.Epoch
}

// cancelEntry gives up a change of the generation. Caller must hold Loader.mu.
func (f *follower) cancelEntry() {
	if f.entry != nil {
		f.entry.cancel()
		f.entry = nil
	}
}

// close ends all goroutines and closes the dataset.
func (f *follower) close() error {
	f.cancel()
	f.wg.Wait()
	return f.current.dataset.Close()
}

// stats returns the statistics. Caller must hold Loader.mu.
func (f *follower) stats() *FollowStats {
	return &FollowStats{
		Log:      f.log.Path(),
		Run:      f.run,
		Boundary: f.current.boundary.Epoch,
		Arrivals: f.current.boundary.Arrivals,
		Episodes: f.current.episodes,
		Waiting:  slices.Clone(f.waiting),
		Failures: f.failures,
		Failure:  f.failure,
	}
}

// listDataset opens the dataset and lists it. The caller must close the dataset of the listing.
func (f *follower) listDataset(ctx context.Context) (*arrivals.Listing, error) {
	ds, err := f.open(ctx)
	if err != nil {
		return nil, err
	}
	return listOrClose(ctx, ds)
}

// listOrClose lists a dataset, and closes it on error.
func listOrClose(ctx context.Context, ds robocache.Dataset) (*arrivals.Listing, error) {
	listing, err := arrivals.List(ctx, ds)
	if err != nil {
		return nil, errors.Join(err, ds.Close())
	}
	return listing, nil
}

// reopenInterval is the time between two attempts to open a dataset that lacks episodes.
const reopenInterval = 200 * time.Millisecond

// listPrefix lists the dataset until it holds the first n arrivals, because a file system may show
// them later than rank 0 saw them. It gives up when timeout has passed. listing is the first
// attempt; nil: there was none.
func (f *follower) listPrefix(
	ctx context.Context, n int, listing *arrivals.Listing, timeout time.Duration,
) (*arrivals.Listing, error) {
	deadline := time.Now().Add(timeout)
	for {
		var err error
		if listing == nil {
			listing, err = f.listDataset(ctx)
		}
		if err == nil && listing.Has(f.log.Prefix(n)) || time.Now().After(deadline) {
			return listing, err // View names an episode that is missing
		}
		if listing != nil {
			_ = listing.Dataset.Close()
			listing = nil
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(reopenInterval):
		}
	}
}

// presence is the time for which rank 0 waits for arrivals of its own log that the dataset lacks.
const presence = 2 * time.Second

// patience is the time within which a dataset must open again before its earlier episodes are used.
const patience = 500 * time.Millisecond

// firstGeneration returns the generation of epoch 0. It owns ds, also on error.
func (f *follower) firstGeneration(
	ctx context.Context, ds robocache.Dataset,
) (*generation, error) {
	listing, err := listOrClose(ctx, ds)
	if err != nil {
		return nil, err
	}
	b, listing, err := f.decide(ctx, f.run, 0, listing)
	if err != nil {
		if listing != nil {
			err = errors.Join(err, listing.Dataset.Close())
		}
		return nil, err
	}
	return f.build(ctx, b, listing)
}

// decide returns the boundary of an epoch of a run, and a listing of the dataset that holds its
// arrivals. Rank 0 appends new arrivals and the boundary to the log, unless the log has the boundary
// already; the other ranks wait for it. listing may be nil. The caller must close its dataset, also
// on error.
func (f *follower) decide(
	ctx context.Context, run string, epoch int64, listing *arrivals.Listing,
) (arrivals.Boundary, *arrivals.Listing, error) {
	cfg := &f.config
	timeout := time.Duration(cfg.Follow.Timeout * float64(time.Second))
	if cfg.Rank != 0 {
		b, err := f.log.Await(ctx, run, epoch, timeout)
		if err == nil {
			listing, err = f.listPrefix(ctx, b.Arrivals, listing, timeout)
		}
		return b, listing, err
	}
	if err := f.log.Refresh(); err != nil {
		return arrivals.Boundary{}, listing, err
	}
	if b, ok := f.log.Boundary(run, epoch); ok {
		listing, err := f.listPrefix(ctx, b.Arrivals, listing, presence)
		return b, listing, err
	}
	var err error
	if listing == nil { // a recorder may be about to replace its files
		if listing, err = f.listPrefix(ctx, 0, nil, patience); err != nil {
			return arrivals.Boundary{}, listing, err
		}
	}
	list, err := listing.NewArrivals(ctx, f.log, cfg.Follow.Terms(), time.Now(), cfg.Threads)
	if err != nil {
		return arrivals.Boundary{}, listing, err
	}
	b, err := f.writeBoundary(run, epoch, func() ([]arrivals.Arrival, int) {
		list := listing.Number(f.log, list)
		return list, f.log.Len() + len(list)
	})
	if err != nil {
		return b, listing, err
	}
	listing, err = f.listPrefix(ctx, b.Arrivals, listing, presence)
	return b, listing, err
}

// writeBoundary appends arrivals and the boundary of an epoch to the log, unless the log has it. of
// returns the arrivals and how many the epoch sees.
func (f *follower) writeBoundary(
	run string, epoch int64, of func() (list []arrivals.Arrival, seen int),
) (b arrivals.Boundary, err error) {
	err = f.log.Update(func() ([]arrivals.Arrival, *arrivals.Boundary, error) {
		var decided bool
		if b, decided = f.log.Boundary(run, epoch); decided {
			return nil, nil, nil
		}
		list, seen := of()
		b = arrivals.Boundary{Run: run, Epoch: epoch, Arrivals: seen, Samples: f.stepSamples()}
		return list, &b, nil
	})
	return b, err
}

// stepSamples returns the samples of an epoch that ends after a number of steps; 0: epochs do not.
func (f *follower) stepSamples() int64 {
	cfg := &f.config
	if cfg.Follow.At != FollowStep {
		return 0
	}
	return int64(cfg.Follow.Every) * int64(cfg.BatchSize) * int64(cfg.WorldSize)
}

// build compiles the generation of a boundary. It owns the dataset of the listing, also on error.
func (f *follower) build(
	ctx context.Context, b arrivals.Boundary, listing *arrivals.Listing,
) (_ *generation, err error) {
	defer func() {
		if err != nil {
			err = errors.Join(err, listing.Dataset.Close())
		}
	}()
	prefix := f.log.Prefix(b.Arrivals)
	kept, weights := f.rule.Select(prefix)
	if len(kept) == 0 {
		return nil, robocache.Temporary("loader", robocache.Where{"file": f.log.Path()},
			"the rule keeps none of the %d episodes that have arrived", len(prefix)).
			WithHint("Wait until episodes are recorded, or change where and version_lag of %s.",
				robocache.Option("follow"))
	}
	view, err := listing.View(prefix)
	if err != nil {
		return nil, err
	}
	cfg := f.config
	cfg.Episodes = make([]int, len(kept))
	for i, position := range kept {
		cfg.Episodes[i] = int(prefix[position].Index)
	}
	if weights != nil {
		cfg.EpisodeWeights = options.EpisodeWeights{}
		for i, position := range kept {
			cfg.EpisodeWeights[prefix[position].Index] = weights[i]
		}
	}
	cfg.EpochSize = b.Samples
	cfg.ComputeStats = cfg.ComputeStats || cfg.RefreshStats
	if f.normalize != nil {
		cfg.Normalize, cfg.Stats, cfg.ComputeStats = *f.normalize, nil, false
	}
	g := &generation{boundary: b, dataset: view, episodes: len(kept), waiting: listing.Waiting}
	g.assembler, g.progress, err = newAssembler(ctx, []Mix{{Dataset: view}}, cfg)
	if err != nil {
		return nil, err
	}
	if f.fields != nil && !reflect.DeepEqual(f.fields, g.assembler.Schema.Fields) {
		g.assembler.Close()
		return nil, fieldsDiffer(f.fields, g.assembler.Schema.Fields)
	}
	return g, nil
}

// fieldsDiffer returns the error of a generation whose batches have another form.
func fieldsDiffer(want, got []Field) error {
	describe := func(fields []Field, others []Field) string {
		var texts []string
		for i := range fields {
			x := &fields[i]
			isSame := slices.ContainsFunc(others, func(o Field) bool {
				return reflect.DeepEqual(*x, o)
			})
			if !isSame {
				texts = append(texts, fmt.Sprintf("%s: %s %v", x.Key, x.DType, x.Shape))
			}
		}
		return cmp.Or(strings.Join(texts, ", "), "no more")
	}
	return robocache.Unsupported("loader", nil, "new episodes change the form of a batch").
		WithHint("Name the keys of a batch (%s), or start again with the new episodes.",
			robocache.Option("keys")).
		Expected(describe(want, got), describe(got, want))
}

// enterGeneration makes the generation of the next batch the current one. Without wait it only
// starts the work, and isReady reports whether the work is done.
func (l *Loader) enterGeneration(ctx context.Context, wait bool) (isReady bool, err error) {
	f := l.follow
	if f == nil {
		return true, nil
	}
	for {
		l.mu.Lock()
		if l.isClosed || !f.isPending {
			l.mu.Unlock()
			return true, nil
		}
		if f.entry == nil {
			l.beginEntry()
		}
		e := f.entry
		l.mu.Unlock()
		select {
		case <-e.done:
		default:
			if !wait {
				return false, nil
			}
			select {
			case <-e.done:
			case <-ctx.Done():
				return false, ctx.Err()
			}
		}
		l.mu.Lock()
		err := e.err
		if f.entry == e {
			f.entry = nil // the next call tries again after an error
		} else {
			err = nil // the loader was moved
		}
		if err != nil && !l.isClosed {
			l.countError(err)
		}
		l.mu.Unlock()
		if err != nil {
			return false, err
		}
	}
}

// beginEntry starts the change to the generation of the loader's epoch. Caller must hold l.mu.
func (l *Loader) beginEntry() {
	f := l.follow
	ctx, cancel := context.WithCancel(f.ctx)
	e := &generationEntry{done: make(chan struct{}), cancel: cancel}
	f.entry = e
	epoch, run := f.boundaryEpoch(l.progress.Epoch), f.run
	old := f.current
	// A dataset that is opened again within an epoch keeps its boundary.
	isSame := old.boundary.Epoch == epoch && old.boundary.Run == run
	mustRenew := f.mustRenew || f.config.RefreshStats
	f.wg.Go(func() {
		defer close(e.done)
		defer cancel()
		g, failure, err := f.nextGeneration(ctx, run, epoch, old, isSame, mustRenew)
		l.mu.Lock()
		defer l.mu.Unlock()
		if f.entry != e || l.isClosed {
			if g != nil && g != old && g.assembler != old.assembler {
				_ = g.close()
			}
			return
		}
		if failure != nil {
			f.failures++
			f.failure = failure.Error()
			l.assembler.Report.Warn("follow: the dataset did not open, and its earlier episodes " +
				"are used: " + f.failure)
		}
		if e.err = err; err != nil {
			return
		}
		if failure == nil {
			f.waiting = g.waiting
		}
		l.useGeneration(g, nil)
	})
}

// nextGeneration returns the generation of an epoch. If it has the same episodes as the old one,
// only its boundary is new, unless mustRenew is set. failure is the error of opening the dataset if
// the old episodes can be used instead.
func (f *follower) nextGeneration(
	ctx context.Context, run string, epoch int64, old *generation, isSame, mustRenew bool,
) (g *generation, failure, err error) {
	defer crash.Recover("loader", &err)
	var listing *arrivals.Listing
	b := old.boundary
	if isSame {
		listing, err = f.listPrefix(ctx, b.Arrivals, nil, presence)
	} else {
		b, listing, err = f.decide(ctx, run, epoch, nil)
	}
	closeListing := func() {
		if listing != nil {
			err = errors.Join(err, listing.Dataset.Close())
		}
	}
	if err != nil {
		closeListing()
		listing = nil
		if mustRenew || f.config.Rank != 0 || ctx.Err() != nil || !isUnreadable(err) {
			return nil, nil, err
		}
		failure = err
		b, err = f.writeBoundary(run, epoch, func() ([]arrivals.Arrival, int) {
			return nil, old.boundary.Arrivals
		})
		if err != nil {
			return nil, nil, err
		}
		if b.Arrivals != old.boundary.Arrivals {
			return nil, nil, failure
		}
	}
	if !mustRenew && b.Arrivals == old.boundary.Arrivals && b.Samples == old.boundary.Samples {
		g = &generation{}
		*g = *old
		g.boundary = b
		if listing != nil {
			g.waiting = listing.Waiting
		}
		closeListing()
		return g, failure, err
	}
	g, err = f.build(ctx, b, listing)
	return g, nil, err
}

// isUnreadable reports whether an error of opening a dataset may be due to a recorder that is at
// work, or was killed.
func isUnreadable(err error) bool {
	return errors.Is(err, robocache.ErrMalformed) || errors.Is(err, robocache.ErrNotFound) ||
		errors.Is(err, robocache.ErrTemporary)
}

// useGeneration makes g the current generation. progress is the loader's position in it; nil: its
// present epoch and position. Caller must hold l.mu.
func (l *Loader) useGeneration(g *generation, progress *order.Progress) {
	f := l.follow
	l.stopRun()
	old := f.current
	f.current, f.isPending, f.mustRenew = g, false, false
	if g.assembler == old.assembler {
		return
	}
	if progress == nil {
		moved := *l.progress
		moved.Order = g.progress.Order
		progress = &moved
	}
	total := collectStats(old.assembler)
	total.addEarlier(&l.earlier)
	l.earlier = total
	l.assemblerLock.Lock()
	l.assembler = g.assembler
	l.assemblerLock.Unlock()
	l.progress, l.isContinuing = progress, false
	_ = old.close()
}

// reopenAfter reports whether the dataset is opened again because a batch of the run failed: the
// recorder may have replaced a file while it was read. It happens once for each batch. Caller must
// hold l.mu.
func (l *Loader) reopenAfter(u *pipeline.PlannedBatch) bool {
	f := l.follow
	if f == nil || u.Err == nil && len(u.BadEpisodes) == 0 || u.Err == pipeline.ErrNoSpace {
		return false
	}
	if u.Err != nil && !isUnreadable(u.Err) {
		return false
	}
	position := [2]int64{l.progress.Epoch, l.progress.Position()}
	if f.reopenedAt == position {
		return false
	}
	f.reopenedAt = position
	l.stopRun()
	f.isPending, f.mustRenew = true, true
	return true
}
