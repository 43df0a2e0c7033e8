package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/goatnote-inc/robocache"
)

// transient is a failure that another try may pass.
type transient struct {
	err   error // a *robocache.Error, or a cause without secrets
	after time.Duration
}

func (t *transient) Error() string { return t.err.Error() }

var (
	errStalled  = errors.New("no byte for the stall time")
	errDeadline = errors.New("the operation's time is over")
)

// operation is one call of the store's user: several tries under one deadline.
type operation struct {
	h        *HTTP
	ctx      context.Context
	deadline time.Time
	timer    *time.Timer
}

// attempt is one try of an operation, with a watchdog that ends it when no byte comes.
type attempt struct {
	*operation
	ctx      context.Context
	watch    *time.Timer
	progress int64
	body     io.ReadCloser // of the answer, nil while there is none
}

// extend gives the operation the time that n more bytes may take.
func (o *operation) extend(n int64) {
	o.deadline = o.deadline.Add(
		time.Duration(float64(n) / float64(o.h.opt.MinRate) * float64(time.Second)),
	)
	o.timer.Reset(time.Until(o.deadline))
}

func (a *attempt) alive() { a.watch.Reset(a.h.opt.Stall) }

// progressGrain is how much a try must bring to count as progress: a server that sends a byte and
// resets must not keep us for ever.
const progressGrain = 64 << 10

// do runs try, which is about so many bytes, until it succeeds, fails for good, or its budget of
// tries and of time is spent.
func (h *HTTP) do(
	ctx context.Context,
	op, name string,
	bytes int64,
	try func(*attempt) error,
) error {
	// before the clock starts: waiting for a connection of our own is bounded by the operations
	// that hold them
	select {
	case h.slots <- struct{}{}:
		defer func() { <-h.slots }()
	case <-ctx.Done():
		return ctx.Err()
	}
	octx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	o := &operation{h: h, ctx: octx, deadline: time.Now().Add(h.opt.Timeout)}
	o.timer = time.AfterFunc(h.opt.Timeout, func() { cancel(errDeadline) })
	defer o.timer.Stop()
	o.extend(bytes)
	failures := 0
	for tries := 1; ; tries++ {
		if err := h.gate.wait(octx, o.deadline); err != nil {
			return h.spent(ctx, op, name, tries-1, err)
		}
		a := &attempt{operation: o}
		err := a.run(try)
		if err == nil {
			return nil
		}
		if cerr := ctx.Err(); cerr != nil {
			return cerr
		}
		var again *transient
		if !errors.As(err, &again) {
			return fail(op, h.uri, name, err)
		}
		if octx.Err() != nil {
			return h.spent(ctx, op, name, tries, errDeadline)
		}
		if a.progress >= progressGrain {
			failures = 0
		}
		if failures++; failures >= h.opt.Attempts {
			return h.spent(ctx, op, name, tries, again.err)
		}
		h.gate.hold(again.after)
		wait := rand.N(h.opt.Backoff << min(failures, 5)) // full jitter
		if again.after > 0 {
			wait += again.after
		}
		if time.Until(o.deadline) < wait {
			return h.spent(ctx, op, name, tries, again.err)
		}
		if !sleep(octx, wait) {
			return h.spent(ctx, op, name, tries, errDeadline)
		}
	}
}

func (a *attempt) run(try func(*attempt) error) error {
	actx, cancel := context.WithCancelCause(a.operation.ctx)
	defer cancel(nil)
	a.ctx = actx
	a.watch = time.AfterFunc(a.h.opt.Stall, func() { cancel(errStalled) })
	defer a.watch.Stop()
	defer func() {
		if a.body != nil {
			a.body.Close()
		}
	}()
	return try(a)
}

// spent is the end of an operation whose budget is used up: the last failure, as temporary.
func (h *HTTP) spent(ctx context.Context, op, name string, tries int, last error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	e := robocache.Temporary(op, robocache.Where{"attempts": tries}, "")
	var typed *robocache.Error
	if errors.As(last, &typed) {
		c := *typed
		e = &c
		e.Op, e.Where = op, robocache.Where{"attempts": tries}
		for k, v := range typed.Where {
			e.Where[k] = v
		}
	} else {
		e.Err = last
	}
	switch {
	case errors.Is(last, errStalled):
		e.Msg = fmt.Sprintf("the server sent nothing for %v", h.opt.Stall)
	case errors.Is(last, errDeadline):
		e.Msg = "too slow"
	}
	if e.Hint == "" {
		e.Hint = "try again later, or with fewer readers"
	}
	return fail(op, h.uri, name, e)
}

// gate holds back all requests of a store after a Retry-After: one answer speaks for the host.
type gate struct{ until atomic.Int64 } // Unix ns; 0 = open

func (g *gate) hold(d time.Duration) {
	if d <= 0 {
		return
	}
	t := time.Now().Add(d).UnixNano()
	for {
		old := g.until.Load()
		if old >= t || g.until.CompareAndSwap(old, t) {
			return
		}
	}
}

func (g *gate) wait(ctx context.Context, deadline time.Time) error {
	t := g.until.Load()
	if t == 0 {
		return nil
	}
	d := time.Until(time.Unix(0, t))
	if d <= 0 {
		return nil
	}
	if time.Until(deadline) < d {
		return robocache.Temporary(
			"",
			nil,
			"the server asks to wait %v, longer than this operation may",
			d.Round(time.Second),
		)
	}
	if !sleep(ctx, d) {
		return errDeadline
	}
	return nil
}

func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
