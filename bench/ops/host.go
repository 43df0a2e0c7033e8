package ops

import (
	"strconv"
	"sync"
	"time"

	"github.com/goatnote-inc/robocache/kernel"
	"github.com/goatnote-inc/robocache/kernel/cpu"
)

// hostRunner is a runner of this process: calls on host memory, timed by the clock.
type hostRunner struct {
	calls []func() error      // [0] is the one that is hot; all of them, in turn, are cold
	more  func() func() error // another, on memory of its own
	want  int                 // copies for cold
	now   func() time.Duration
}

// wallTime counts from the first use of the program.
func wallTime() time.Duration { return time.Since(began) }

var began = time.Now()

// time gives µs a call, a figure a chunk: long enough for the clock, and short enough that an interruption spoils few. As runners/ops.py does.
func (a *hostRunner) time(seconds float64, cold bool) ([]float64, error) {
	ring, next := a.calls[:1], 0
	for cold && len(a.calls) < a.want {
		a.calls = append(a.calls, a.more())
	}
	if cold {
		ring = a.calls
	}
	// chunk is the seconds of n calls, one after another.
	chunk := func(n int) (float64, error) {
		start := a.now()
		for range n {
			if err := ring[next](); err != nil {
				return 0, err
			}
			if next++; next == len(ring) {
				next = 0
			}
		}
		return (a.now() - start).Seconds(), nil
	}
	if _, err := chunk(len(ring)); err != nil { // warm
		return nil, err
	}
	once, err := chunk(1)
	if err != nil || once > seconds {
		return []float64{once * 1e6}, err
	}
	once = max(once, 1e-7)
	n := max(1, min(int(2e-4/once), int(seconds/5/once)))
	var out []float64
	for begin := a.now(); len(out) < 3 || (a.now()-begin).Seconds() < seconds; {
		s, err := chunk(n)
		if err != nil {
			return nil, err
		}
		out = append(out, s/float64(n)*1e6)
	}
	return out, nil
}

// copyRunner is the limit in Go: copying half of the bytes into the other half, over so many threads.
func copyRunner(bytes int64, threads, copies int, now func() time.Duration) *hostRunner {
	more := func() func() error {
		n := max(int(bytes/2), 1)
		src, dst := aligned(n), aligned(n)
		return func() error {
			var wg sync.WaitGroup
			for i := 1; i < threads; i++ {
				lo, hi := n*i/threads, n*(i+1)/threads
				wg.Go(func() { copy(dst[lo:hi], src[lo:hi]) })
			}
			copy(dst[:n/threads], src[:n/threads])
			wg.Wait()
			return nil
		}
	}
	return &hostRunner{calls: []func() error{more()}, more: more, want: copies, now: now}
}

// hostRow is ours and the copy, and the reference where it is asked for.
func (s *session) hostRow(row *rowRun) []*candidate {
	own := cpu.New(s.threads)
	backends := []struct {
		Runner
		backend
	}{{Runner{Name: Ours, Setting: "kernel/cpu, " + own.Instructions() + ", " + strconv.Itoa(s.threads) + " threads"}, own}}
	if s.r.Runners != nil && wanted("reference", s.r.Runners, s.r.Without) {
		backends = append(backends, struct {
			Runner
			backend
		}{Runner{Name: "reference", Setting: "pure Go, one thread"}, kernel.Reference{}})
	}
	var field []*candidate
	for _, b := range backends {
		e := &candidate{runner: b.Runner, c: &hostRunner{now: s.now, want: row.copies, calls: []func() error{func() error { return row.call.run(b.backend) }}, more: func() func() error {
			other := row.call.again()
			return func() error { return other.run(b.backend) }
		}}}
		s.proven(row, e, row.call.run(b.backend))
		field = append(field, e)
	}
	if wanted("memcpy go", nil, s.r.Without) {
		field = append(field, &candidate{Runner{Name: "memcpy go", Setting: "copy of half the bytes, " + strconv.Itoa(s.threads) + " goroutines"}, copyRunner(row.res.Bytes, s.threads, row.copies, s.now)})
	}
	return field
}

// proven compares what a call has written with the truth; ran is its error.
func (s *session) proven(row *rowRun, e *candidate, ran error) {
	if ran == nil {
		ran = row.truth.compare(row.call.results())
	}
	if ran != nil {
		e.runner.Failed = ran.Error()
	} else if e.runner.Name == Ours {
		row.res.Checked = row.truth.words()
	}
}
