package cpu

import (
	"runtime"

	"github.com/goatnote-inc/robocache/kernel"
)

// Backend runs the operations on the processor's cores. It may be used by many goroutines at once;
// each call uses up to Threads of them.
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

// pixels is the least number of pixels or voxels that a thread is worth. Tests change it.
var pixels = 4096

// Run runs an op. After an error its results may hold anything (C6).
func (b *Backend) Run(op kernel.Op) error {
	if err := kernel.CheckHost(op); err != nil {
		return err
	}
	switch op := op.(type) {
	case *kernel.FuseOp:
		return b.fuse(op)
	case *kernel.FuseGradOp:
		return b.grad(op)
	case *kernel.ApplyOp:
		return b.apply(op)
	case *kernel.VoxelOp:
		return b.voxelize(op)
	case kernel.Rowwise:
		n, wide := op.Rows()
		spread(max(1, min(b.threads, n*wide/pixels, n)), n, func() func(int) { return op.Row })
	}
	return nil
}

// Threads is how many cores a call uses at most.
func (b *Backend) Threads() int { return b.threads }

// Instructions says what the back end computes with on this processor: what self-tests and
// benchmarks print.
func (b *Backend) Instructions() string {
	if instructions != "" {
		return instructions
	}
	return "plain Go"
}
