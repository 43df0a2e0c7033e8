package pipeline

import (
	"context"

	"github.com/goatnote-inc/robocache/internal/crash"
	"github.com/goatnote-inc/robocache/loader/internal/column"
	"github.com/goatnote-inc/robocache/loader/internal/frames"
	"github.com/goatnote-inc/robocache/loader/internal/layout"
)

// Ticker builds the observation of one time after the other from a dataset that changes in between.
// It fills columns as batches of a Loader are filled, on the calling goroutine. It is not safe for
// concurrent use.
type Ticker struct {
	assembler *Assembler
	planes    column.PlaneSource
	tick      column.Tick
	unit      PlannedBatch
	queue     *frames.Queue
	worker    *worker
}

// NewTicker returns a Ticker that executes a plan of one source. planes provides the frames of video,
// which are decoded already. The Ticker owns a. The caller must call Close.
func NewTicker(a *Assembler, planes column.PlaneSource) *Ticker {
	t := &Ticker{assembler: a, planes: planes}
	src := a.Sources[0]
	src.Tick = &t.tick
	src.Timestamps.IsChanging, src.Arrivals.IsChanging = true, true
	t.queue = frames.NewQueue(context.Background(), &a.Workers)
	t.worker = t.queue.Borrow().Owner.(*worker)
	t.unit.Parts = make([]column.Part, 1)
	t.unit.Parts[0] = column.Part{Build: &t.unit.BatchBuild, Source: &src.DataSource}
	return t
}

// neverComplete is the number of pending parts of an observation. It never reaches zero, because
// Observe fills the parts itself and waits for none.
const neverComplete = 1 << 60

// Observe fills b with the observation at the time now. first is the time of the first observation.
// It replaces earlier times of windows. Both are in ns.
func (t *Ticker) Observe(now, first int64, b *layout.Batch) error {
	t.tick = column.Tick{Time: now, First: first}
	u := &t.unit
	u.Batch, u.Err, u.BadEpisodes = b, nil, nil
	p := &u.Parts[0]
	p.BeginTick()
	u.Pending.Store(neverComplete)
	for _, c := range p.Source.Columns {
		if err := t.fillColumn(p, c); err != nil {
			p.FailAt(err)
		}
		if u.Err != nil {
			return u.Err
		}
	}
	for _, i := range t.assembler.Schema.Ragged {
		t.worker.buildRagged(u, i)
	}
	t.assembler.ReleaseRagged(u)
	return u.Err
}

// fillColumn fills one column. A panic becomes an internal error.
func (t *Ticker) fillColumn(p *column.Part, c *column.Column) (err error) {
	defer crash.Recover("live", &err)
	if i := c.Image(); i != nil {
		return t.worker.FillFrames(p, i, t.planes)
	}
	if f, ok := c.Kind.(column.Filler); ok && c.Kind.Waits(1) > 0 {
		return f.Fill(&t.worker.Reader, p)
	}
	return nil
}

// Allocate returns memory for an observation. The caller must call Release.
func (t *Ticker) Allocate() (*layout.Batch, error) { return t.assembler.Allocate(1) }

// Close releases the plan and the memory of observations that are not in use.
func (t *Ticker) Close() {
	t.queue.Return(t.worker.Worker)
	t.queue.Close()
	t.queue.Wait()
	t.assembler.Close()
}
