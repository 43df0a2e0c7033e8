package loader

import (
	"context"
	"sync"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/loader/internal/frames"
	"github.com/goatnote-inc/robocache/loader/internal/layout"
	"github.com/goatnote-inc/robocache/loader/internal/options"
	"github.com/goatnote-inc/robocache/loader/internal/pipeline"
	"github.com/goatnote-inc/robocache/loader/internal/plan"
)

// Map gives samples by number. All methods may be called from many goroutines.
type Map struct {
	a      *pipeline.Assembler
	ctx    context.Context
	cancel context.CancelFunc

	mu     sync.RWMutex // held for reading during Items
	closed bool
}

// NewMap makes a Map. Order, batch size, ranks and prefetch of cfg do not matter to it.
func NewMap(ctx context.Context, ds robocache.Dataset, cfg options.Config) (*Map, error) {
	if err := cfg.Validate(false); err != nil {
		return nil, err
	}
	cfg.Shuffle = FileOrder // no pool
	if cfg.Missing == options.MissingPad {
		ds = robocache.PadLacking(ds)
	} else if cfg.Keys == nil {
		ds = robocache.WithoutUnasked(ds)
	}
	var err error
	if cfg.Stats, err = plan.RenameStats(cfg.Stats, nil, ds.Info(), ds.Info()); err != nil {
		return nil, err
	}
	compiled, err := plan.Compile(ctx, []options.Mix{{Dataset: ds}}, cfg)
	if err != nil {
		return nil, err
	}
	a, err := pipeline.New(ctx, compiled)
	if err != nil {
		return nil, err
	}
	m := &Map{a: a}
	m.ctx, m.cancel = context.WithCancel(context.Background())
	return m, nil
}

// Len is the number of samples.
func (m *Map) Len() int64 { return m.a.SampleCount() }

// Fields describes a batch of items, in its order.
func (m *Map) Fields() []layout.Field { return m.a.Schema.Fields }

// Rows says which row of the dataset each sample is (with hz: which row of the episode's timeline).
func (m *Map) Rows(indices []int64) ([]robocache.Row, error) { return m.a.RowsOf(indices) }

// Items gives samples by number, 0 ≤ index < Len, in the order asked, stacked. What several of them want is decoded once.
// The work is spread over cfg.Threads goroutines, the caller's among them.
func (m *Map) Items(ctx context.Context, indices []int64) (*layout.Batch, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if m.closed {
		return nil, robocache.Misuse("map", nil, "the map is closed")
	}
	a := m.a
	if err := a.Locate(indices, func(int, int, robocache.Row) {}); err != nil {
		return nil, err
	}
	if len(indices) == 0 {
		return a.Allocate(0)
	}
	if need := a.BatchBytes(len(indices)); need > a.Budget {
		return nil, pipeline.BudgetError(need, a.Budget, int64(a.Config.MemoryBudget))
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(m.ctx, cancel)()
	u, err := a.BeginBatch(0, indices, nil)
	if err != nil {
		return nil, err
	}
	q := frames.NewQueue(ctx, &a.Workers)
	u.OnDone = q.Close
	defer context.AfterFunc(ctx, q.Close)()
	parts := u.Pending.Load()
	a.SubmitJobs(q, []*pipeline.PlannedBatch{u})
	q.Start(int(min(parts, int64(a.Config.Threads))) - 1)
	q.Work()
	q.Wait()
	err = u.Outcome(ctx)
	a.ReleaseRagged(u)
	if err != nil {
		u.Batch.Release()
		return nil, err
	}
	b := u.Batch
	a.RecycleBatch(u)
	a.Counters.Samples.Add(int64(b.Rows))
	a.Counters.Batches.Add(1)
	return b, nil
}

// Notes says what the map chose without being asked for: the split for training.
func (m *Map) Notes() []string { return m.a.Report.Notes }

// Stats says what was done so far.
func (m *Map) Stats() Stats { return statsOf(m.a) }

// Close ends what runs and waits for it. Batches that were handed out stay valid until their Release.
func (m *Map) Close() error {
	m.cancel()
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.closed {
		m.closed = true
		m.a.Close()
	}
	return nil
}
