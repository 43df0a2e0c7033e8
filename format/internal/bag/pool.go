package bag

import (
	"container/list"
	"context"
	"errors"
	"sync"

	"github.com/goatnote-inc/robocache"
)

// Recording is one recording of a dataset, opened when it is wanted.
type Recording struct {
	Name string // for errors: the file, relative to the dataset
	Open func(ctx context.Context) (Storage, error)
}

// pool keeps recordings open, as many as descriptors and memory allow; the ones unused for longest are closed.
type pool struct {
	recs   []Recording
	limit  int   // open at a time, unless more are in use
	budget int64 // bytes of their indexes
	found  func(rec int, s Storage)

	mu     sync.Mutex
	open   map[int]*handle
	idle   list.List // of *handle, most recent first
	closed bool
}

type handle struct {
	rec   int
	users int
	ready chan struct{}
	s     Storage
	err   error
	place *list.Element // in idle
}

var errClosed = &robocache.Error{Class: robocache.ErrMisuse, Op: "read", Msg: "the dataset is closed"}

func newPool(recs []Recording, limit int, budget int64, found func(int, Storage)) *pool {
	return &pool{recs: recs, limit: limit, budget: budget, found: found, open: map[int]*handle{}}
}

// use runs fn with an open recording.
func (p *pool) use(ctx context.Context, rec int, fn func(Storage) error) error {
	h, err := p.acquire(ctx, rec)
	if err != nil {
		return err
	}
	defer p.release(h)
	return fn(h.s)
}

func (p *pool) acquire(ctx context.Context, rec int) (*handle, error) {
	for {
		p.mu.Lock()
		if p.closed {
			p.mu.Unlock()
			return nil, errClosed
		}
		h := p.open[rec]
		if h == nil {
			h = &handle{rec: rec, users: 1, ready: make(chan struct{})}
			p.open[rec] = h
			p.mu.Unlock()
			p.fill(ctx, h)
			return h, h.err
		}
		h.users++
		if h.place != nil {
			p.idle.Remove(h.place)
			h.place = nil
		}
		p.mu.Unlock()
		select {
		case <-h.ready:
		case <-ctx.Done():
			p.release(h)
			return nil, ctx.Err()
		}
		if h.err == nil {
			return h, nil
		}
		if (errors.Is(h.err, context.Canceled) || errors.Is(h.err, context.DeadlineExceeded)) && ctx.Err() == nil {
			continue // its own caller gave up
		}
		return nil, h.err
	}
}

var errPanicked = errors.New("opening the recording failed")

// fill opens a recording. Who waits for it goes on also when that panics; the panic goes on to the border of the format.
func (p *pool) fill(ctx context.Context, h *handle) {
	h.err = errPanicked
	defer func() {
		if h.err != nil {
			p.mu.Lock()
			delete(p.open, h.rec)
			p.mu.Unlock()
		}
		close(h.ready)
	}()
	h.s, h.err = p.recs[h.rec].Open(ctx)
}

func (p *pool) release(h *handle) {
	var out []Storage
	p.mu.Lock()
	h.users--
	if h.users == 0 && p.open[h.rec] == h {
		h.place = p.idle.PushFront(h)
		var held int64
		for _, o := range p.open {
			// Of one that is in use nothing is looked at: it may be about to be opened.
			if o.users > 0 {
				continue
			}
			held += o.s.Held()
		}
		for p.idle.Len() > 0 && (len(p.open) > p.limit || p.closed || held > p.budget && p.idle.Len() > 1) {
			old := p.idle.Remove(p.idle.Back()).(*handle)
			delete(p.open, old.rec)
			held -= old.s.Held()
			if p.found != nil {
				p.found(old.rec, old.s)
			}
			out = append(out, old.s)
		}
	}
	p.mu.Unlock()
	for _, s := range out {
		_ = s.Close()
	}
}

// each runs fn with every recording that is open now.
func (p *pool) each(fn func(rec int, s Storage)) {
	p.mu.Lock()
	var hs []*handle
	for _, h := range p.open {
		select {
		case <-h.ready:
			if h.err == nil {
				h.users++
				if h.place != nil {
					p.idle.Remove(h.place)
					h.place = nil
				}
				hs = append(hs, h)
			}
		default:
		}
	}
	p.mu.Unlock()
	for _, h := range hs {
		fn(h.rec, h.s)
		p.release(h)
	}
}

// close closes what nobody uses; what is in use is closed when it is given back.
func (p *pool) close() (err error) {
	p.mu.Lock()
	p.closed = true
	var out []Storage
	for p.idle.Len() > 0 {
		h := p.idle.Remove(p.idle.Front()).(*handle)
		delete(p.open, h.rec)
		out = append(out, h.s)
	}
	p.mu.Unlock()
	for _, s := range out {
		err = errors.Join(err, s.Close())
	}
	return err
}
