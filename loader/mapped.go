package loader

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/loader/internal/frames"
)

// Map gives samples by number. All methods may be called from many goroutines.
type Map struct {
	a      *assembler
	ctx    context.Context
	cancel context.CancelFunc

	mu     sync.RWMutex // held for reading during Items
	closed bool
}

// NewMap makes a Map. Order, batch size, ranks and prefetch of cfg do not matter to it.
func NewMap(ctx context.Context, ds robocache.Dataset, cfg Config) (*Map, error) {
	if err := cfg.check(false); err != nil {
		return nil, err
	}
	cfg.Shuffle = FileOrder // no pool
	if cfg.Missing == MissingPad {
		ds = robocache.PadLacking(ds)
	} else if cfg.Keys == nil {
		ds = robocache.WithoutUnasked(ds)
	}
	var err error
	if cfg.Stats, err = followed(cfg.Stats, nil, ds.Info(), ds.Info()); err != nil {
		return nil, err
	}
	a, err := newAssembler(ctx, []Mix{{Dataset: ds}}, cfg)
	if err != nil {
		return nil, err
	}
	m := &Map{a: a}
	m.ctx, m.cancel = context.WithCancel(context.Background())
	return m, nil
}

// Len is the number of samples.
func (m *Map) Len() int64 { return m.a.samples() }

// Fields describes a batch of items, in its order.
func (m *Map) Fields() []Field { return m.a.schema.fields }

// Rows says which row of the dataset each sample is (with hz: which row of the episode's timeline).
func (m *Map) Rows(indices []int64) ([]robocache.Row, error) { return m.a.rowsOf(indices) }

// locate finds the sources and rows of samples.
func (a *assembler) locate(indices []int64, each func(i, source int, r robocache.Row)) error {
	n := a.samples()
	for _, i := range indices {
		if i < 0 || i >= n {
			return robocache.Misuse("loader", robocache.Where{"index": i}, "index out of range").
				Expected(fmt.Sprintf("0 to %d", n-1), fmt.Sprint(i))
		}
	}
	for i, sample := range indices {
		src, number := a.sourceOf(sample)
		r, _ := src.table.Row(number)
		each(i, src.index, r)
	}
	return nil
}

func (a *assembler) rowsOf(indices []int64) ([]robocache.Row, error) {
	out := make([]robocache.Row, len(indices))
	err := a.locate(indices, func(i, _ int, r robocache.Row) { out[i] = r })
	return out, err
}

// Items gives samples by number, 0 ≤ index < Len, in the order asked, stacked. What several of them want is decoded once.
// The work is spread over cfg.Threads goroutines, the caller's among them.
func (m *Map) Items(ctx context.Context, indices []int64) (*Batch, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if m.closed {
		return nil, robocache.Misuse("map", nil, "the map is closed")
	}
	a := m.a
	if err := a.locate(indices, func(int, int, robocache.Row) {}); err != nil {
		return nil, err
	}
	if len(indices) == 0 {
		return a.allocate(0)
	}
	if need := a.batchBytes(len(indices)); need > a.budget {
		return nil, budgetError(need, a.budget, int64(a.cfg.MemoryBudget))
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(m.ctx, cancel)()
	u, err := a.begin(0, indices, nil)
	if err != nil {
		return nil, err
	}
	q := frames.NewQueue(ctx, &a.workers)
	u.onDone = q.Close
	defer context.AfterFunc(ctx, q.Close)()
	parts := u.left.Load()
	a.submit(q, []*unit{u})
	q.Start(int(min(parts, int64(a.cfg.Threads))) - 1)
	q.Work()
	q.Wait()
	err = u.outcome(ctx)
	a.leave(u)
	if err != nil {
		u.batch.Release()
		return nil, err
	}
	b := u.batch
	a.recycle(u)
	a.n.samples.Add(int64(b.Rows))
	a.n.batches.Add(1)
	return b, nil
}

// outcome is the error of a unit that nobody works at any more.
func (u *unit) outcome(ctx context.Context) error {
	if u.left.Load() != 0 {
		return ctx.Err()
	}
	if u.err != nil || len(u.bad) == 0 {
		return u.err
	}
	// A map has no order to leave an episode out of.
	return u.bad[slices.MinFunc(slices.Collect(maps.Keys(u.bad)), func(x, y badKey) int { return x.episode - y.episode })]
}

// Notes says what the map chose without being asked for: the split for training.
func (m *Map) Notes() []string { return m.a.report.notes }

// Stats says what was done so far.
func (m *Map) Stats() Stats { return statsOf(m.a) }

// Close ends what runs and waits for it. Batches that were handed out stay valid until their Release.
func (m *Map) Close() error {
	m.cancel()
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.closed {
		m.closed = true
		m.a.close()
	}
	return nil
}
