package ops

import (
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/goatnote-inc/robocache/internal/guard"
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

// threadTime is the CPU time of the calling thread.
func threadTime() time.Duration {
	var t unix.Timespec
	guard.Check(unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t))
	return time.Duration(t.Nano())
}

// time gives µs a call, a figure a chunk: long enough for the clock, and short enough that an interruption spoils few. As runners/ops.py does.
func (a *hostRunner) time(seconds float64, cold bool) (out []float64) {
	ring, next := a.calls[:1], 0
	for cold && len(a.calls) < a.want {
		a.calls = append(a.calls, a.more())
	}
	if cold {
		ring = a.calls
	}
	// chunk is the seconds of n calls, one after another.
	chunk := func(n int) float64 {
		start := a.now()
		for range n {
			if err := ring[next](); err != nil {
				guard.Fail(err)
			}
			if next++; next == len(ring) {
				next = 0
			}
		}
		return (a.now() - start).Seconds()
	}
	chunk(len(ring)) // warm
	once := chunk(1)
	if once > seconds {
		return []float64{once * 1e6}
	}
	once = max(once, 1e-7)
	n := max(1, min(int(2e-4/once), int(seconds/5/once)))
	for begin := a.now(); len(out) < 3 || (a.now()-begin).Seconds() < seconds; {
		out = append(out, chunk(n)/float64(n)*1e6)
	}
	return out
}

// hostRow is ours, the copy, and the reference where it is asked for.
func (s *session) hostRow(row *rowRun) (field []*candidate) {
	add := func(name, setting string, more func() func() error) *candidate {
		e := &candidate{Runner{Name: name, Setting: setting}, &hostRunner{calls: []func() error{more()}, more: more, want: row.copies, now: s.now}}
		field = append(field, e)
		return e
	}
	own := cpu.New(s.threads)
	compute := func(name, setting string, b kernel.Backend) {
		next := row.call // the row's own first
		e := add(name, setting, func() func() error {
			op := next
			if next = nil; op == nil {
				op = row.in.copied(&row.res.Work)
			}
			return func() error { return b.Run(op) }
		})
		s.proven(row, e, b.Run(row.call))
	}
	threads := strconv.Itoa(s.threads)
	compute(Ours, "kernel/cpu, "+own.Instructions()+", "+threads+" threads", own)
	if s.r.Runners != nil && wanted("reference", s.r.Runners, s.r.Without) {
		compute("reference", "pure Go, one thread", kernel.Reference{})
	}
	if wanted("memcpy go", nil, s.r.Without) {
		// The limit: half of the bytes into the other half, over so many threads.
		add("memcpy go", "copy of half the bytes, "+threads+" goroutines", func() func() error {
			n := max(int(row.res.Bytes/2), 1)
			src, dst := aligned(n), aligned(n)
			return func() error {
				var wg sync.WaitGroup
				for i := 1; i < s.threads; i++ {
					lo, hi := n*i/s.threads, n*(i+1)/s.threads
					wg.Go(func() { copy(dst[lo:hi], src[lo:hi]) })
				}
				copy(dst[:n/s.threads], src[:n/s.threads])
				wg.Wait()
				return nil
			}
		})
	}
	return field
}

// proven compares what a call has written with the truth; ran is its error.
func (s *session) proven(row *rowRun, e *candidate, ran error) {
	if ran == nil {
		ran = row.truth.compare(row.call)
	}
	if ran != nil {
		e.runner.Failed = ran.Error()
	} else if e.runner.Name == Ours {
		row.res.Checked = row.truth.words()
	}
}
