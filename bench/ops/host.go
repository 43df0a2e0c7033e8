package ops

import (
	"sync"
	"time"
)

// hostRunner is a runner of this process: calls on host memory, timed by the clock.
type hostRunner struct {
	calls []func() error // [0] is the one that is hot; all of them, in turn, are cold
	more  func() (func() error, error)
	want  int // copies for cold
	now   func() time.Duration
}

// wallTime counts from the first use of the program.
func wallTime() time.Duration { return time.Since(began) }

var began = time.Now()

// turn is what to call.
func (a *hostRunner) turn(cold bool) (func() error, int, error) {
	if !cold || a.more == nil {
		return a.calls[0], 1, nil
	}
	for len(a.calls) < a.want {
		c, err := a.more()
		if err != nil {
			return nil, 0, err
		}
		a.calls = append(a.calls, c)
	}
	i := 0
	return func() error {
		c := a.calls[i]
		if i++; i == len(a.calls) {
			i = 0
		}
		return c()
	}, len(a.calls), nil
}

// time gives µs a call, a figure a chunk: long enough for the clock, and short enough that an interruption spoils few. As runners/ops_common.py does.
func (a *hostRunner) time(seconds float64, cold bool) ([]float64, error) {
	call, warm, err := a.turn(cold)
	if err != nil {
		return nil, err
	}
	for range warm {
		if err := call(); err != nil {
			return nil, err
		}
	}
	now := a.now
	start := now()
	if err := call(); err != nil {
		return nil, err
	}
	once := max((now() - start).Seconds(), 1e-7)
	if once > seconds {
		return []float64{once * 1e6}, nil
	}
	n := max(1, min(int(2e-4/once), int(seconds/5/once)))
	var out []float64
	for begin := now(); len(out) < 3 || (now()-begin).Seconds() < seconds; {
		start := now()
		for range n {
			if err := call(); err != nil {
				return nil, err
			}
		}
		out = append(out, float64((now()-start).Nanoseconds())/float64(n)/1e3)
	}
	return out, nil
}

// copyRunner is the limit in Go: copying half of the bytes into the other half, over so many threads.
func copyRunner(bytes int64, threads, copies int, now func() time.Duration) *hostRunner {
	a := &hostRunner{want: copies, now: now}
	a.more = func() (func() error, error) {
		n := max(int(bytes/2), 1)
		src, dst := aligned(n), aligned(n)
		if threads == 1 {
			return func() error { copy(dst, src); return nil }, nil
		}
		return func() error {
			var wg sync.WaitGroup
			for i := 1; i < threads; i++ {
				lo, hi := n*i/threads, n*(i+1)/threads
				wg.Go(func() { copy(dst[lo:hi], src[lo:hi]) })
			}
			copy(dst[:n/threads], src[:n/threads])
			wg.Wait()
			return nil
		}, nil
	}
	first, _ := a.more()
	a.calls = []func() error{first}
	return a
}

// backendRunner is a back end of host memory on a row.
func backendRunner(b backend, c *opCall, copies int, now func() time.Duration) *hostRunner {
	return &hostRunner{now: now, calls: []func() error{func() error { return c.run(b) }}, want: copies, more: func() (func() error, error) {
		other := c.again()
		return func() error { return other.run(b) }, nil
	}}
}
