package cpu

import "runtime"

// Backend runs the operations on the processor's cores. It may be used by many goroutines at once; each call uses up to Threads of them.
type Backend struct {
	threads int
}

// New makes a back end of so many threads; 0 = GOMAXPROCS at the time of the call.
func New(threads int) *Backend {
	if threads <= 0 {
		threads = runtime.GOMAXPROCS(0)
	}
	return &Backend{threads: threads}
}

// Threads is how many cores a call uses at most.
func (b *Backend) Threads() int { return b.threads }

// Instructions says what the back end computes with on this processor: what self-tests and benchmarks print.
func (b *Backend) Instructions() string {
	if fast {
		return "AVX2, FMA, F16C"
	}
	return "plain Go"
}
