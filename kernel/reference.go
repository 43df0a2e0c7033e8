package kernel

import (
	"fmt"
	"math"

	"github.com/goatnote-inc/robocache"
)

// Reference runs the operations in plain Go on one thread, entry by entry and row by row: what they
// mean, not how fast they can be. All tensors lie in host memory.
type Reference struct{}

// Repeats says that each run of an op does the same things in the same order: package conform runs
// a case once.
func (Reference) Repeats() {}

// Backend runs operations on tensors of the host: Reference, package cpu, and a device's that moves
// them there and back.
type Backend interface{ Run(op Op) error }

// Rowwise is an op whose rows are made one by one, in any order, on the host.
type Rowwise interface {
	Op
	Rows() (n, pixels int) // and about how many pixels each has
	Row(i int)
}

// Run runs an op.
func (Reference) Run(op Op) error {
	if err := CheckHost(op); err != nil {
		return err
	}
	switch op := op.(type) {
	case *FuseOp:
		return op.reference()
	case *FuseGradOp:
		return op.reference()
	case *ApplyOp:
		return op.reference()
	case *VoxelOp:
		return op.reference()
	case Rowwise:
		n, _ := op.Rows()
		for i := range n {
			op.Row(i)
		}
	}
	return nil
}

func (t *Tensor) addInt64(n int64, index ...int) {
	if t != nil {
		at := t.Data[t.at(index...):]
		le.PutUint64(at, le.Uint64(at)+uint64(n))
	}
}

// matrix is rows from … from+n-1 of the last two axes, at the index of the others.
func (t *Tensor) matrix(from, n int, index ...int) Matrix {
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

// times are one entry's timestamps or targets: in ns, or as given.
type times struct {
	ns      []int64
	seconds []float64
}

// read takes n times from an index on. Seconds become rint(t·1e9) ns under Nanoseconds; what that
// makes of NaN, Inf and times beyond ±2^62 ns is for the check of timestamps to say.
func (t *Tensor) read(clock Clock, from, n, entry int, key, what string) (out times, err error) {
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
			out.ns[i] = int64(le.Uint64(t.Data[t.at(index...):]))
		case clock == AsGiven:
			out.seconds[i] = t.float64At(t.at(index...))
		default:
			s := t.float64At(t.at(index...))
			if !finite(s) {
				return out, notFinite(key, i, what, s)
			}
			out.ns[i] = FromSeconds(s)
		}
	}
	return out, nil
}

// FromSeconds is rint(s·1e9); beyond ±2^62 it is ±2^62, which no check lets pass.
func FromSeconds(s float64) int64 {
	return int64(max(-MaxTime, min(MaxTime, math.RoundToEven(s*1e9))))
}

func finite(x float64) bool { return !math.IsNaN(x) && !math.IsInf(x, 0) }

func shapeError(op, name string, want, got []int) error {
	return robocache.Misuse(op, robocache.Where{"tensor": name}, "out has wrong shape").
		Expected(fmt.Sprint(want), fmt.Sprint(got))
}
