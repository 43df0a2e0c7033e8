package storetest

import (
	"context"
	"io"
	"sync/atomic"
	"time"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/store"
)

// Op is a kind of operation; values combine as bits.
type Op uint16

// The operations that a Plan can strike.
const (
	OpOpen Op = 1 << iota
	OpStat
	OpList
	OpRead
	OpCreate
	OpWrite
	OpCommit
	OpRemove
	OpAll Op = 1<<iota - 1
)

// Fault is what happens to a struck operation.
type Fault uint8

const (
	FaultFail Fault = iota // it fails with Plan.Err and does nothing
	// a read or write does the first half of its bytes, then fails with Plan.Err
	FaultShort
	FaultCorrupt // a read succeeds with one bit flipped; other operations fail
	FaultDelay   // it waits Plan.Delay, or for the context's end, then goes on
	FaultChanged // it fails with store.ErrChanged
	FaultLost    // a commit is done, and its answer lost: it fails with Plan.Err
)

// Plan strikes operations of one Faulty store. The loop that proves a caller sound (SQLite's
// method):
//
//	for n := int64(1); ; n++ {
//		plan := &storetest.Plan{Nth: n}
//		err := run(storetest.Faulty(s, plan))
//		if !plan.Struck() {
//			break // the run had fewer than n operations
//		}
//		// err must be typed, or the result right; nothing may be left open or half-written
//	}
type Plan struct {
	Nth    int64 // the first operation struck, from 1; 0 = none
	Repeat bool  // all from the Nth on
	Ops    Op    // which operations count; 0 = OpAll
	Fault  Fault
	Err    error // nil = a Temporary error
	Delay  time.Duration
	Match  func(op Op, name string) bool // nil = every file

	seen, struck atomic.Int64
}

// Struck says whether the plan has struck yet.
func (p *Plan) Struck() bool { return p.struck.Load() > 0 }

// Seen is the number of operations that counted so far.
func (p *Plan) Seen() int64 { return p.seen.Load() }

// hit counts an operation and says whether it is struck.
func (p *Plan) hit(op Op, name string) bool {
	if p.Ops != 0 && p.Ops&op == 0 || p.Match != nil && !p.Match(op, name) {
		return false
	}
	n := p.seen.Add(1)
	if p.Nth == 0 || n < p.Nth || n > p.Nth && !p.Repeat {
		return false
	}
	p.struck.Add(1)
	return true
}

func (p *Plan) err(name string) error {
	if p.Fault == FaultChanged {
		return robocache.Temporary("faulty", robocache.Where{"file": name}, "injected change").
			WithCause(store.ErrChanged)
	}
	if p.Err != nil {
		return fail("faulty", "faulty", name, p.Err)
	}
	return robocache.Temporary("faulty", robocache.Where{"file": name}, "injected fault")
}

// before strikes an operation that moves no bytes.
func (p *Plan) before(ctx context.Context, op Op, name string) error {
	if !p.hit(op, name) {
		return nil
	}
	if p.Fault == FaultDelay {
		return p.delay(ctx)
	}
	return p.err(name)
}

func (p *Plan) delay(ctx context.Context) error {
	select {
	case <-time.After(p.Delay):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Faulty wraps a store so that plan strikes its operations. It is store.Writable where s is.
func Faulty(s store.Store, plan *Plan) store.Store {
	f := &faulty{s: s, plan: plan}
	if w, ok := s.(store.Writable); ok {
		return &writableFaulty{faulty: f, w: w}
	}
	return f
}

type faulty struct {
	s    store.Store
	plan *Plan
}

func (f *faulty) URI() string  { return f.s.URI() }
func (f *faulty) Close() error { return store.Close(f.s) }

func (f *faulty) Open(ctx context.Context, name string) (robocache.Ranged, error) {
	if err := f.plan.before(ctx, OpOpen, name); err != nil {
		return nil, err
	}
	r, err := f.s.Open(ctx, name)
	if err != nil {
		return nil, err
	}
	return &faultyFile{Ranged: r, plan: f.plan, name: name}, nil
}

func (f *faulty) Stat(ctx context.Context, name string) (store.Entry, error) {
	if err := f.plan.before(ctx, OpStat, name); err != nil {
		return store.Entry{}, err
	}
	return f.s.Stat(ctx, name)
}

func (f *faulty) List(ctx context.Context, prefix string) ([]store.Entry, error) {
	if err := f.plan.before(ctx, OpList, prefix); err != nil {
		return nil, err
	}
	return f.s.List(ctx, prefix)
}

type faultyFile struct {
	robocache.Ranged
	plan *Plan
	name string
}

func (f *faultyFile) ReadAt(ctx context.Context, p []byte, off int64) error {
	if !f.plan.hit(OpRead, f.name) {
		return f.Ranged.ReadAt(ctx, p, off)
	}
	switch f.plan.Fault {
	case FaultDelay:
		if err := f.plan.delay(ctx); err != nil {
			return err
		}
		return f.Ranged.ReadAt(ctx, p, off)
	case FaultCorrupt:
		err := f.Ranged.ReadAt(ctx, p, off)
		if err == nil && len(p) > 0 {
			p[len(p)/2] ^= 0x10
		}
		return err
	case FaultShort:
		if err := f.Ranged.ReadAt(ctx, p[:len(p)/2], off); err != nil {
			return err
		}
		if f.plan.Err == nil {
			return robocache.Temporary("faulty", robocache.Where{"file": f.name, "offset": off}, "injected short read").
				WithCause(io.ErrUnexpectedEOF)
		}
	}
	return f.plan.err(f.name)
}

type writableFaulty struct {
	*faulty
	w store.Writable
}

func (f *writableFaulty) Create(ctx context.Context, name string) (store.Writer, error) {
	return f.create(ctx, name, f.w.Create)
}

func (f *writableFaulty) CreateNew(ctx context.Context, name string) (store.Writer, error) {
	return f.create(
		ctx,
		name,
		func(ctx context.Context, name string) (store.Writer, error) { return store.CreateNew(ctx, f.w, name) },
	)
}

func (f *writableFaulty) create(
	ctx context.Context,
	name string,
	make func(context.Context, string) (store.Writer, error),
) (store.Writer, error) {
	if err := f.plan.before(ctx, OpCreate, name); err != nil {
		return nil, err
	}
	w, err := make(ctx, name)
	if err != nil {
		return nil, err
	}
	return &faultyWriter{Writer: w, ctx: ctx, plan: f.plan, name: name}, nil
}

func (f *writableFaulty) Remove(ctx context.Context, name string) error {
	if err := f.plan.before(ctx, OpRemove, name); err != nil {
		return err
	}
	return f.w.Remove(ctx, name)
}

type faultyWriter struct {
	store.Writer
	ctx  context.Context
	plan *Plan
	name string
}

func (w *faultyWriter) Write(p []byte) (int, error) {
	return w.write(p, w.Writer.Write)
}

func (w *faultyWriter) WriteAt(p []byte, off int64) (int, error) {
	return w.write(p, func(p []byte) (int, error) { return w.Writer.WriteAt(p, off) })
}

func (w *faultyWriter) write(p []byte, do func([]byte) (int, error)) (int, error) {
	if !w.plan.hit(OpWrite, w.name) {
		return do(p)
	}
	n := 0
	switch w.plan.Fault {
	case FaultDelay:
		if err := w.plan.delay(w.ctx); err != nil {
			return 0, err
		}
		return do(p)
	case FaultShort:
		var err error
		if n, err = do(p[:len(p)/2]); err != nil {
			return n, err
		}
	}
	return n, w.plan.err(w.name)
}

// Commit that fails has aborted, as the stores' own.
func (w *faultyWriter) Commit() error {
	if w.plan.Fault == FaultLost {
		if err := w.Writer.Commit(); err != nil || !w.plan.hit(OpCommit, w.name) {
			return err
		}
		return w.plan.err(w.name)
	}
	if err := w.plan.before(w.ctx, OpCommit, w.name); err != nil {
		w.Writer.Abort()
		return err
	}
	return w.Writer.Commit()
}

func (f *faulty) Remote() bool        { return robocache.IsRemote(f.s) }
func (f *faultyFile) Remote() bool    { return store.Remote(f.Ranged) }
func (f *faultyFile) Versioned() bool { return store.Versioned(f.Ranged) }
