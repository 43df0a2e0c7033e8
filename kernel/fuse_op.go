package kernel

import (
	"slices"

	"github.com/goatnote-inc/robocache"
)

// Rule states how the values of a stream at target times are computed from its samples.
type Rule struct {
	Mode   Mode
	Edge   Edge
	MaxGap int64 // ns; 0 = no limit
	// mean: the window is [t-Before, t+After), in ns; sum: a row covers [t, t+After)
	Before, After int64
	Period        float64  // angle; 0 = 2π
	Lo            *float64 // angle: results lie in [Lo, Lo+Period); nil = -Period/2
	// slerp: the channels of each quaternion; nil = every four columns. Other channels are linear.
	Quats [][4]int
	// Rotations are the channels of rotations in any form, under slerp (kernel.K21). If Rotations
	// is set, nil Quats means no quaternions. A back end may return Unsupported.
	Rotations []robocache.Rotation
	// sum: the channels that are summed, in ascending order; nil = all. Other channels are linear.
	Summed     []int
	Continuous bool // slerp, sign="continuous": see kernel.K20. A back end may return Unsupported.
}

// Epilogue states what happens to values before the only rounding, in this order: x/255, normalize,
// clip, augment, cast (kernel.K10).
type Epilogue struct {
	Unit bool // x/255, for images
	Norm *Norm
	// number of neighboring columns that share one entry of Norm: column c uses entry (c / Plane) %
	// len; 0 = 1
	Plane   int
	Clip    *[2]float32
	Augment *Augment
}

// Series is one stream of a FuseOp.
//
// Values are dense [B,S,D], or [sum of S, D] with Offsets. Times are [S] (shared by the batch) or
// [B,S], or [sum of S] with Offsets: int64 ns, or float64 or float32 seconds.
type Series struct {
	Name     string // for errors
	Values   Tensor
	Times    Tensor
	Lengths  *Tensor // int64 [B]: number of valid rows of Values in each entry
	Offsets  *Tensor // int64 [B+1]: entry b has the rows Offsets[b] … Offsets[b+1]-1
	Rule     Rule
	Epilogue Epilogue
}

// Clock states how times are compared.
type Clock uint8

const (
	Nanoseconds Clock = iota // int64 ns; seconds are converted as rint(t·1e9)
	// compatible with the earlier RoboCache: float times are used unchanged, differences are
	// float64, the interval is t0 < t ≤ t1, and the denominator is (t1-t0)+Epsilon seconds
	AsGiven
)

// FuseOp resamples any number of streams into neighboring columns of Out [B,T,sum of D], in one
// launch. To resample one stream, use a FuseOp with one Series.
type FuseOp struct {
	Series  []Series
	Targets Tensor  // [T] or [B,T]; the same types as Times
	Out     Tensor  // [B,T,sum of D]; any strides that map each element to different memory
	Valid   *Tensor // uint8 [B,T,N]: 1 = inside the data and not in a gap
	Counts  *Tensor // int64 [2]; adds the number of overflows and of NaN that became 0 (kernel.K11)
	Clock   Clock
	Epsilon float64 // in seconds; AsGiven only
	// Validate requests a check of the order and range of times before the result is computed. The
	// host always checks them. A device needs an extra launch and must wait for it.
	Validate bool
}

// Tensors implements Op.
func (op *FuseOp) Tensors() []*Tensor { return presentTensors(op.namedTensors()) }

// namedTensors implements Op.
func (op *FuseOp) namedTensors() []namedTensor {
	out := make([]namedTensor, 0, 5*len(op.Series)+4)
	for i := range op.Series {
		s := &op.Series[i]
		out = append(
			out,
			inputTensor("values", &s.Values),
			inputTensor("times", &s.Times),
			inputTensor("lengths", s.Lengths),
			inputTensor("offsets", s.Offsets),
			inputTensor("samples", s.Epilogue.sampleTensor()),
		)
	}
	return append(
		out,
		inputTensor("targets", &op.Targets),
		resultTensor("out", &op.Out),
		resultTensor("valid", op.Valid),
		resultTensor("counts", op.Counts),
	)
}

// FuseGradOp is the backward pass of one linear stream. Grad[b,k] is the sum of w·g or (1-w)·g over
// the target rows that read sample k, in target order. The sum is float32 (float64 for float64
// data). Invalid rows that were filled with zeros contribute nothing.
type FuseGradOp struct {
	// only the shape, type, Lengths and Offsets are used; the memory of Values is not read
	Series  Series
	Targets Tensor
	Out     Tensor // gradient of the result, [B,T,D]
	Grad    Tensor // gradient of Values
	Clock   Clock
	Epsilon float64
}

// Tensors implements Op.
func (op *FuseGradOp) Tensors() []*Tensor { return presentTensors(op.namedTensors()) }

// namedTensors implements Op.
func (op *FuseGradOp) namedTensors() []namedTensor {
	s := &op.Series
	return []namedTensor{
		inputTensor("times", &s.Times),
		inputTensor("lengths", s.Lengths),
		inputTensor("offsets", s.Offsets),
		inputTensor("targets", &op.Targets),
		inputTensor("out", &op.Out),
		resultTensor("grad", &op.Grad),
	}
}

// ApplyOp computes rows of several tensors by existing plans, or copies, casts and normalizes them.
// It does the remaining work of a loader's batch in one launch.
type ApplyOp struct {
	Parts  []Part
	Counts *Tensor

	names []namedTensor // memory of namedTensors
}

// Part is one tensor of an ApplyOp. Without a plan, row i of Out is computed from row i of Src.
type Part struct {
	Name        string
	Src         Tensor  // [S, D]
	Out         Tensor  // [T, D]
	Rule        Rule    // Mode, and the fields that the mode needs to compute values
	Kind        *Tensor // uint8 [T]: Kind of each row; nil = Copy of row i
	Left, Right *Tensor // int32 [T]
	Weight      *Tensor // float64 [T]
	// uint8 [T], read and written: a row whose values are invalid (kernel.K6) becomes 0
	Valid    *Tensor
	Epilogue Epilogue
}

// Tensors implements Op.
func (op *ApplyOp) Tensors() []*Tensor { return presentTensors(op.namedTensors()) }

// namedTensors implements Op.
func (op *ApplyOp) namedTensors() []namedTensor {
	out := slices.Grow(op.names[:0], 8*len(op.Parts)+1)
	for i := range op.Parts {
		p := &op.Parts[i]
		out = append(
			out,
			inputTensor("data", &p.Src),
			resultTensor("out", &p.Out),
			inputTensor("kind", p.Kind),
			inputTensor("left", p.Left),
			inputTensor("right", p.Right),
			inputTensor("weight", p.Weight),
			resultTensor("valid", p.Valid),
			inputTensor("samples", p.Epilogue.sampleTensor()),
		)
	}
	op.names = append(out, resultTensor("counts", op.Counts))
	return op.names
}

// sampleTensor returns the tensor of sample numbers of the augmentation, or nil.
func (e *Epilogue) sampleTensor() *Tensor {
	if e.Augment == nil {
		return nil
	}
	return e.Augment.Samples
}
