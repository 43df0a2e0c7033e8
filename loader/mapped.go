package loader

import (
	"context"
	"sync"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/loader/internal/frames"
	"github.com/goatnote-inc/robocache/loader/internal/pipeline"
	"github.com/goatnote-inc/robocache/loader/internal/plan"
	"github.com/goatnote-inc/robocache/loader/options"
)

// Map returns samples by number. Safe for concurrent use.
type Map struct {
	assembler *pipeline.Assembler
	ctx       context.Context
	cancel    context.CancelFunc

	mu       sync.RWMutex // held for reading during Items
	isClosed bool
}

// NewMap returns a Map of a dataset. It ignores the order, batch size, ranks and prefetch of cfg.
// The caller keeps ds and must call Close before closing it.
func NewMap(ctx context.Context, ds robocache.Dataset, cfg Config) (*Map, error) {
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
	compiled, err := plan.Compile(ctx, []Mix{{Dataset: ds}}, cfg)
	if err != nil {
		return nil, err
	}
	a, err := pipeline.New(ctx, compiled)
	if err != nil {
		return nil, err
	}
	m := &Map{assembler: a}
	m.ctx, m.cancel = context.WithCancel(context.Background())
	return m, nil
}

// Len returns the number of samples.
func (m *Map) Len() int64 { return m.assembler.SampleCount() }

// Fields returns the description of a batch of items, in the order of its entries.
func (m *Map) Fields() []Field { return m.assembler.Schema.Fields }

// Rows returns the dataset row of each sample. With hz, rows count on the episode's timeline
// instead.
func (m *Map) Rows(indices []int64) ([]robocache.Row, error) { return m.assembler.RowsOf(indices) }

// Times returns the time of each sample in ns.
func (m *Map) Times(ctx context.Context, indices []int64) ([]int64, error) {
	return m.assembler.SampleTimes(ctx, indices)
}

// Items returns a batch of the given samples, in the given order. 0 ≤ index < Len. A frame that
// several samples need is decoded once. The work runs on cfg.Threads goroutines, one of which is
// the calling one. Items blocks until the batch is complete or ctx is canceled. The caller must
// call Release on the batch.
func (m *Map) Items(ctx context.Context, indices []int64) (*Batch, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if m.isClosed {
		return nil, robocache.Misuse("map", nil, "the map is closed")
	}
	a := m.assembler
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

// Notes returns messages about defaults that the map chose, such as the training split.
func (m *Map) Notes() []string { return m.assembler.Report.Notes }

// Stats returns totals of the work so far.
func (m *Map) Stats() Stats { return collectStats(m.assembler) }

// Close cancels running calls and waits for them. Batches that the consumer holds stay valid until
// their Release.
func (m *Map) Close() error {
	m.cancel()
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.isClosed {
		m.isClosed = true
		m.assembler.Close()
	}
	return nil
}
