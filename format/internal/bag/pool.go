package bag

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/internal/handles"
	"github.com/goatnote-inc/robocache/internal/guard"
)

// Recording is one recording of a dataset, opened when it is wanted.
type Recording struct {
	Name string // for errors: the file, relative to the dataset
	Open func(ctx context.Context) (Storage, error)
}

// pool keeps recordings open, as many as descriptors and the memory of their indexes allow; the
// ones unused for longest are closed.
type pool struct {
	recs    []Recording
	open    *handles.Pool[int, *opened]
	opening []sync.Mutex // held while a recording is opened: others wait for it
	found   func(s Storage)
	closed  atomic.Bool
}

// opened is an open recording.
type opened struct {
	Storage
	held  atomic.Int64 // as the pool knows it
	found func(s Storage)
}

// Close hands on what was found before it is lost.
func (o *opened) Close() error {
	o.found(o.Storage)
	return o.Storage.Close()
}

var errClosed = robocache.Misuse("read", nil, "the dataset is closed")

// newPool keeps at most limit recordings open, whose indexes take at most budget bytes.
func newPool(recs []Recording, limit int, budget int64, found func(Storage)) *pool {
	return &pool{
		recs:    recs,
		open:    handles.New[int, *opened](limit, budget),
		opening: make([]sync.Mutex, len(recs)),
		found:   found,
	}
}

// use runs fn with an open recording.
func (p *pool) use(ctx context.Context, rec int, fn func(Storage) error) error {
	if p.closed.Load() {
		return errClosed
	}
	h, err := p.get(ctx, rec)
	if err != nil {
		return err
	}
	defer func() {
		now := h.Value.Held()
		p.open.Grow(h, now-h.Value.held.Swap(now))
		p.open.Put(h)
	}()
	return fn(h.Value.Storage)
}

// use runs fn with an open recording, and ends the work where it cannot be opened.
func (d *Dataset) use(ctx context.Context, rec int, fn func(Storage)) {
	guard.Check(d.pool.use(ctx, rec, func(s Storage) error { fn(s); return nil }))
}

func (p *pool) get(ctx context.Context, rec int) (*handles.Handle[int, *opened], error) {
	p.opening[rec].Lock()
	defer p.opening[rec].Unlock()
	return p.open.Get(rec, func() (*opened, error) {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		s, err := p.recs[rec].Open(ctx)
		return &opened{Storage: s, found: p.found}, err
	})
}

// each runs fn with every recording that is open now.
func (p *pool) each(fn func(s Storage)) {
	for rec := range p.recs {
		if h := p.open.Peek(rec); h != nil {
			fn(h.Value.Storage)
			p.open.Put(h)
		}
	}
}

// close closes what nobody uses; what is in use is closed when it is given back.
func (p *pool) close() error {
	p.closed.Store(true)
	return p.open.Close()
}
