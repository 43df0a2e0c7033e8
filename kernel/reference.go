package kernel

import (
	"fmt"
	"math"

	"github.com/goatnote-inc/robocache"
)

// Reference runs operations in plain Go on one thread, entry by entry and row by row. It defines
// their results and is not optimized. All tensors must be in host memory.
type Reference struct{}

// Repeats marks that each run of an operation does the same things in the same order. Package
// conform then runs each case once.
func (Reference) Repeats() {}

// Backend runs operations on tensors in host memory. It is implemented by Reference, by package
// cpu, and by a wrapper of a device that copies tensors there and back.
type Backend interface{ Run(op Op) error }

// Rowwise is an operation whose rows are computed one by one, in any order, on the host.
type Rowwise interface {
	Op
	Rows() (n, pixels int) // number of rows, and the approximate number of pixels in each
	Row(i int)
}

// Run runs an operation.
func (Reference) Run(op Op) error {
	if err := CheckHost(op); err != nil {
		return err
	}
	switch op := op.(type) {
	case *FuseOp:
		return op.runReference()
	case *FuseGradOp:
		return op.runReference()
	case *ApplyOp:
		return op.runReference()
	case *VoxelOp:
		return op.runReference()
	case Rowwise:
		n, _ := op.Rows()
		for i := range n {
			op.Row(i)
		}
	}
	return nil
}

// addInt64 adds n to the int64 at an index. A nil tensor is ignored.
func (t *Tensor) addInt64(n int64, index ...int) {
	if t != nil {
		at := t.Data[t.byteOffset(index...):]
		le.PutUint64(at, le.Uint64(at)+uint64(n))
	}
}

// matrixView returns the rows from … from+n-1 of the last two axes, at the given index of the other
// axes.
func (t *Tensor) matrixView(from, n int, index ...int) Matrix {
	axis := len(t.Shape) - 2
	base := t.Base + from*t.Step(axis)
	for a, i := range index {
		base += i * t.Step(a)
	}
	return Matrix{
		Data:      t.Data,
		DType:     t.DType,
		Rows:      n,
		Cols:      t.Shape[axis+1],
		RowStride: t.Step(axis),
		ColStride: t.Step(axis + 1),
		Base:      base,
	}
}

// timeValues holds the timestamps or targets of one entry. ns is set under Nanoseconds, seconds
// under AsGiven.
type timeValues struct {
	ns      []int64
	seconds []float64
}

// readTimes reads n times of an entry from index from on. Under Nanoseconds, seconds become
// rint(t·1e9) ns. NaN and Inf are errors, in which key and what name the time. The later check of
// timestamps rejects times beyond ±2^62 ns.
func (t *Tensor) readTimes(
	clock Clock,
	from, n, entry int,
	key, what string,
) (out timeValues, err error) {
	if clock == AsGiven {
		out.seconds = make([]float64, n)
	} else {
		out.ns = make([]int64, n)
	}
	for i := range n {
		index := []int{from + i}
		if len(t.Shape) == 2 {
			index = []int{entry, from + i}
		}
		switch {
		case t.DType == robocache.Int64:
			out.ns[i] = int64(le.Uint64(t.Data[t.byteOffset(index...):]))
		case clock == AsGiven:
			out.seconds[i] = t.float64At(t.byteOffset(index...))
		default:
			s := t.float64At(t.byteOffset(index...))
			if !isFinite(s) {
				return out, notFinite(key, i, what, s)
			}
			out.ns[i] = FromSeconds(s)
		}
	}
	return out, nil
}

// FromSeconds returns rint(s·1e9). Beyond ±2^62 it returns ±2^62, which every check rejects.
func FromSeconds(s float64) int64 {
	return int64(max(-MaxTime, min(MaxTime, math.RoundToEven(s*1e9))))
}

// isFinite reports whether x is neither NaN nor infinite.
func isFinite(x float64) bool { return !math.IsNaN(x) && !math.IsInf(x, 0) }

// shapeError returns the error for a result tensor with a wrong shape.
func shapeError(op, name string, want, got []int) error {
	return robocache.Misuse(op, robocache.Where{"tensor": name}, "out has wrong shape").
		Expected(fmt.Sprint(want), fmt.Sprint(got))
}
