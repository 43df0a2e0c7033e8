package storetest

import (
	"context"
	"io"
	"sync/atomic"
	"time"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/store"
)

// Op is a kind of operation. Values can be combined as bits.
type Op uint16

// The operations that a Plan can affect.
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

// Fault is the effect on a struck operation.
type Fault uint8

const (
	FaultFail Fault = iota // returns Plan.Err and does nothing
	// a read or write processes the first half of its bytes, then returns Plan.Err
	FaultShort
	FaultCorrupt // a read succeeds with one flipped bit; other operations fail
	FaultDelay   // waits for Plan.Delay or the end of the context, then continues
	FaultChanged // returns store.ErrChanged
	FaultLost    // a commit succeeds, but returns Plan.Err as if its response were lost
)

// Plan injects faults into the operations of one Faulty store. This loop tests every fault position
// of a caller, which is SQLite's method:
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
	Nth    int64 // number of the first struck operation, from 1; 0 means none
	Repeat bool  // also strike all later operations
	Ops    Op    // the operations that count; 0 means OpAll
	Fault  Fault
	Err    error // nil means a Temporary error
	Delay  time.Duration
	Match  func(op Op, name string) bool // nil means every file

	seen, struck atomic.Int64
}

// Struck reports whether the plan has struck an operation.
func (p *Plan) Struck() bool { return p.struck.Load() > 0 }

// Seen returns the number of operations counted so far.
func (p *Plan) Seen() int64 { return p.seen.Load() }

// strikes counts an operation and reports whether it is struck.
func (p *Plan) strikes(op Op, name string) bool {
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

func (p *Plan) faultError(name string) error {
	if p.Fault == FaultChanged {
		return robocache.Temporary("faulty", robocache.Where{"file": name}, "injected change").
			WithCause(store.ErrChanged)
	}
	if p.Err != nil {
		return memError("faulty", "faulty", name, p.Err)
	}
	return robocache.Temporary("faulty", robocache.Where{"file": name}, "injected fault")
}

// strikeBefore injects the fault of an operation that moves no bytes.
func (p *Plan) strikeBefore(ctx context.Context, op Op, name string) error {
	if !p.strikes(op, name) {
		return nil
	}
	if p.Fault == FaultDelay {
		return p.delay(ctx)
	}
	return p.faultError(name)
}

func (p *Plan) delay(ctx context.Context) error {
	select {
	case <-time.After(p.Delay):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Faulty returns a store that injects the faults of plan. It is store.Writable if s is.
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
	if err := f.plan.strikeBefore(ctx, OpOpen, name); err != nil {
		return nil, err
	}
	r, err := f.s.Open(ctx, name)
	if err != nil {
		return nil, err
	}
	return &faultyFile{Ranged: r, plan: f.plan, name: name}, nil
}

func (f *faulty) Stat(ctx context.Context, name string) (store.Entry, error) {
	if err := f.plan.strikeBefore(ctx, OpStat, name); err != nil {
		return store.Entry{}, err
	}
	return f.s.Stat(ctx, name)
}

func (f *faulty) List(ctx context.Context, prefix string) ([]store.Entry, error) {
	if err := f.plan.strikeBefore(ctx, OpList, prefix); err != nil {
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
	if !f.plan.strikes(OpRead, f.name) {
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
			return robocache.Temporary("faulty", robocache.Where{
				"file":   f.name,
				"offset": off,
			}, "injected short read").
				WithCause(io.ErrUnexpectedEOF)
		}
	}
	return f.plan.faultError(f.name)
}

type writableFaulty struct {
	*faulty
	w store.Writable
}

func (f *writableFaulty) Create(ctx context.Context, name string) (store.Writer, error) {
	return f.create(ctx, name, f.w.Create)
}

func (f *writableFaulty) CreateNew(ctx context.Context, name string) (store.Writer, error) {
	return f.create(ctx, name, func(ctx context.Context, name string) (store.Writer, error) {
		return store.CreateNew(ctx, f.w, name)
	})
}

func (f *writableFaulty) create(
	ctx context.Context,
	name string,
	make func(context.Context, string) (store.Writer, error),
) (store.Writer, error) {
	if err := f.plan.strikeBefore(ctx, OpCreate, name); err != nil {
		return nil, err
	}
	w, err := make(ctx, name)
	if err != nil {
		return nil, err
	}
	return &faultyWriter{Writer: w, ctx: ctx, plan: f.plan, name: name}, nil
}

func (f *writableFaulty) Remove(ctx context.Context, name string) error {
	if err := f.plan.strikeBefore(ctx, OpRemove, name); err != nil {
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
	if !w.plan.strikes(OpWrite, w.name) {
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
	return n, w.plan.faultError(w.name)
}

// Commit aborts on failure, as the writers of other stores do.
func (w *faultyWriter) Commit() error {
	if w.plan.Fault == FaultLost {
		if err := w.Writer.Commit(); err != nil || !w.plan.strikes(OpCommit, w.name) {
			return err
		}
		return w.plan.faultError(w.name)
	}
	if err := w.plan.strikeBefore(w.ctx, OpCommit, w.name); err != nil {
		w.Writer.Abort()
		return err
	}
	return w.Writer.Commit()
}

func (f *faulty) Remote() bool        { return robocache.IsRemote(f.s) }
func (f *faultyFile) Remote() bool    { return store.Remote(f.Ranged) }
func (f *faultyFile) Versioned() bool { return store.Versioned(f.Ranged) }
