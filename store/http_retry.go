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

// transient is an error after which another attempt may succeed.
type transient struct {
	err   error // a *robocache.Error, or a cause without secrets
	after time.Duration
}

func (t *transient) Error() string { return t.err.Error() }

var (
	errStalled  = errors.New("no byte for the stall time")
	errDeadline = errors.New("the operation's time is over")
)

// operation is one call to the store: several attempts with one deadline.
type operation struct {
	h        *HTTP
	ctx      context.Context
	deadline time.Time
	timer    *time.Timer
}

// attempt is one attempt of an operation. A watchdog cancels it if no byte arrives.
type attempt struct {
	*operation
	ctx      context.Context
	watch    *time.Timer
	progress int64
	body     io.ReadCloser // body of the response; nil if there is none
}

// extendDeadline adds the time that n more bytes may take.
func (o *operation) extendDeadline(n int64) {
	seconds := float64(n) / float64(o.h.options.MinRate)
	o.deadline = o.deadline.Add(time.Duration(seconds * float64(time.Second)))
	o.timer.Reset(time.Until(o.deadline))
}

// resetWatchdog restarts the stall time. It is called when bytes are received or sent.
func (a *attempt) resetWatchdog() { a.watch.Reset(a.h.options.Stall) }

// progressGrain is the number of bytes that an attempt must receive to count as progress. Without
// it, a server that sends one byte and resets the connection could keep an operation running.
const progressGrain = 64 << 10

// runOperation calls try until it succeeds, fails permanently, or the limit of attempts or time is
// reached. bytes is the approximate size of the operation.
func (h *HTTP) runOperation(
	ctx context.Context,
	op, name string,
	bytes int64,
	try func(*attempt) error,
) error {
	// Take the slot before the clock starts. The wait for it is bounded by the operations that hold
	// slots.
	select {
	case h.slots <- struct{}{}:
		defer func() { <-h.slots }()
	case <-ctx.Done():
		return ctx.Err()
	}
	octx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	o := &operation{h: h, ctx: octx, deadline: time.Now().Add(h.options.Timeout)}
	o.timer = time.AfterFunc(h.options.Timeout, func() { cancel(errDeadline) })
	defer o.timer.Stop()
	o.extendDeadline(bytes)
	failures := 0
	for tries := 1; ; tries++ {
		if err := h.gate.waitUntilOpen(octx, o.deadline); err != nil {
			return h.budgetError(ctx, op, name, tries-1, err)
		}
		a := &attempt{operation: o}
		err := a.runWatched(try)
		if err == nil {
			return nil
		}
		if cerr := ctx.Err(); cerr != nil {
			return cerr
		}
		var again *transient
		if !errors.As(err, &again) {
			return storeError(op, h.uri, name, err)
		}
		if octx.Err() != nil {
			return h.budgetError(ctx, op, name, tries, errDeadline)
		}
		if a.progress >= progressGrain {
			failures = 0
		}
		failures++
		if failures >= h.options.Attempts {
			return h.budgetError(ctx, op, name, tries, again.err)
		}
		h.gate.closeFor(again.after)
		wait := rand.N(h.options.Backoff << min(failures, 5)) // full jitter
		if again.after > 0 {
			wait += again.after
		}
		if time.Until(o.deadline) < wait {
			return h.budgetError(ctx, op, name, tries, again.err)
		}
		if !sleepContext(octx, wait) {
			return h.budgetError(ctx, op, name, tries, errDeadline)
		}
	}
}

// runWatched calls try once. It cancels the context of the attempt if no byte arrives for the stall
// time, and closes the response body afterwards.
func (a *attempt) runWatched(try func(*attempt) error) error {
	actx, cancel := context.WithCancelCause(a.operation.ctx)
	defer cancel(nil)
	a.ctx = actx
	a.watch = time.AfterFunc(a.h.options.Stall, func() { cancel(errStalled) })
	defer a.watch.Stop()
	defer func() {
		if a.body != nil {
			a.body.Close()
		}
	}()
	return try(a)
}

// budgetError returns the last error of an operation whose limit is reached, as a temporary error.
func (h *HTTP) budgetError(ctx context.Context, op, name string, tries int, last error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	e := robocache.Temporary(op, robocache.Where{"attempts": tries}, "")
	var typed *robocache.Error
	if errors.As(last, &typed) {
		c := *typed
		e = &c
		e.Op = op
		e.Where = robocache.Where{"attempts": tries}
		for k, v := range typed.Where {
			e.Where[k] = v
		}
	} else {
		e.Err = last
	}
	switch {
	case errors.Is(last, errStalled):
		e.Msg = fmt.Sprintf("the server sent nothing for %v", h.options.Stall)
	case errors.Is(last, errDeadline):
		e.Msg = "too slow"
	}
	if e.Hint == "" {
		e.Hint = "try again later, or with fewer readers"
	}
	return storeError(op, h.uri, name, e)
}

// gate holds back all requests of a store after a Retry-After, because the response applies to the
// whole host.
type gate struct{ until atomic.Int64 } // Unix time in nanoseconds; 0 means open

// closeFor closes the gate for d from now, unless it is closed for longer already.
func (g *gate) closeFor(d time.Duration) {
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

// waitUntilOpen blocks until the gate is open. It returns an error at once if the gate opens after
// deadline.
func (g *gate) waitUntilOpen(ctx context.Context, deadline time.Time) error {
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
	if !sleepContext(ctx, d) {
		return errDeadline
	}
	return nil
}

// sleepContext sleeps for d. It returns false if ctx ends first.
func sleepContext(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
