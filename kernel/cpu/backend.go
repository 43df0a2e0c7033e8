package cpu

import (
	"runtime"

	"github.com/goatnote-inc/robocache/kernel"
)

// Backend runs operations on the cores of the processor. It is safe for concurrent use; each call
// uses up to Threads cores.
type Backend struct {
	threads int
}

// New returns a back end that uses the given number of threads. 0 means the value of GOMAXPROCS at
// the time of the call.
func New(threads int) *Backend {
	if threads <= 0 {
		threads = runtime.GOMAXPROCS(0)
	}
	return &Backend{threads: threads}
}

// minPixels is the smallest number of pixels or voxels for which a thread is started. Tests change
// it.
var minPixels = 4096

// Run runs an operation. After an error its results are undefined (cpu.C6).
func (b *Backend) Run(op kernel.Op) error {
	if err := kernel.CheckHost(op); err != nil {
		return err
	}
	switch op := op.(type) {
	case *kernel.FuseOp:
		return b.runFuse(op)
	case *kernel.FuseGradOp:
		return b.runGrad(op)
	case *kernel.ApplyOp:
		return b.runApply(op)
	case *kernel.VoxelOp:
		return b.runVoxelize(op)
	case kernel.Rowwise:
		n, wide := op.Rows()
		spreadIndices(
			max(1, min(b.threads, n*wide/minPixels, n)),
			n,
			func() func(int) { return op.Row },
		)
	}
	return nil
}

// Threads returns the maximal number of cores that a call uses.
func (b *Backend) Threads() int { return b.threads }

// Instructions returns the names of the vector instructions that the back end uses on this
// processor. Self-tests and benchmarks print them.
func (b *Backend) Instructions() string {
	if instructions != "" {
		return instructions
	}
	return "plain Go"
}
