package kernel

import "github.com/goatnote-inc/robocache"

// Rule says how a stream's values are found among its timestamps.
type Rule struct {
	Mode   Mode
	Edge   Edge
	MaxGap int64 // ns; 0 = any gap is bridged
	// mean: the window [t-Before, t+After), ns; sum: a row covers [t, t+After)
	Before, After int64
	Period        float64  // angle; 0 = 2π
	Lo            *float64 // angle: results lie in [Lo, Lo+Period); nil = -Period/2
	// slerp: the channels of each quaternion; nil = every four columns. Other channels are linear
	Quats [][4]int
	// Rotations are the channels of rotations in any form, under slerp (K21). Quats nil are none
	// beside them. A back end may say Unsupported.
	Rotations []robocache.Rotation
	// sum: the channels that are summed, in ascending order; nil = all. Other channels are linear
	Summed     []int
	Continuous bool // slerp, sign="continuous": see K20. A back end may say Unsupported
}

// Epilogue is what happens to values before the only rounding, in this order: x/255, normalise,
// clip, augment, cast (K10).
type Epilogue struct {
	Unit bool // x/255: images
	Norm *Norm
	// neighbouring columns that share one entry of Norm: column c has entry (c / Plane) % len; 0 =
	// 1
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
	Lengths  *Tensor // int64 [B]: rows of Values that count, from the first
	Offsets  *Tensor // int64 [B+1]: entry b is rows Offsets[b] … Offsets[b+1]-1
	Rule     Rule
	Epilogue Epilogue
}

// Clock says how times are compared.
type Clock uint8

const (
	Nanoseconds Clock = iota // int64 ns; seconds become rint(t·1e9)
	// the earlier RoboCache: float times as they are, differences in float64, interval t0 < t ≤ t1,
	// denominator (t1-t0)+Epsilon s
	AsGiven
)

// FuseOp resamples any number of streams into neighbouring columns of Out [B,T,sum of D], in one
// launch. Resample is a FuseOp of one stream.
type FuseOp struct {
	Series  []Series
	Targets Tensor  // [T] or [B,T]; types as Times
	Out     Tensor  // [B,T,sum of D]; any strides that give each element its own place
	Valid   *Tensor // uint8 [B,T,N]: 1 = inside the data and no gap
	Counts  *Tensor // int64 [2]: added to: overflows, NaN that became 0 (K11)
	Clock   Clock
	Epsilon float64 // s; AsGiven only
	// Validate asks for the order and range of times to be proved first. The host always proves
	// them; a device needs a launch and a wait for it.
	Validate bool
}

// Tensors are the op's: see Op.
func (op *FuseOp) Tensors() []*Tensor { return tensors(op.named()) }

func (op *FuseOp) named() []named {
	out := make([]named, 0, 5*len(op.Series)+4)
	for i := range op.Series {
		s := &op.Series[i]
		out = append(
			out,
			input("values", &s.Values),
			input("times", &s.Times),
			input("lengths", s.Lengths),
			input("offsets", s.Offsets),
			input("samples", s.Epilogue.samples()),
		)
	}
	return append(
		out,
		input("targets", &op.Targets),
		result("out", &op.Out),
		result("valid", op.Valid),
		result("counts", op.Counts),
	)
}

// FuseGradOp is the backward of one linear stream: Grad[b,k] is the sum over the target rows that
// read sample k of w·g or (1-w)·g, in float32 (float64 for float64 data), in target order. Rows
// that are not valid and filled with zeros pass none.
type FuseGradOp struct {
	Series  Series // Values is not read: its shape, type, Lengths and Offsets count
	Targets Tensor
	Out     Tensor // gradient of the result, [B,T,D]
	Grad    Tensor // gradient of Values
	Clock   Clock
	Epsilon float64
}

// Tensors are the op's: see Op.
func (op *FuseGradOp) Tensors() []*Tensor { return tensors(op.named()) }

func (op *FuseGradOp) named() []named {
	s := &op.Series
	return []named{
		input("times", &s.Times),
		input("lengths", s.Lengths),
		input("offsets", s.Offsets),
		input("targets", &op.Targets),
		input("out", &op.Out),
		result("grad", &op.Grad),
	}
}

// ApplyOp makes rows of several tensors by plans that exist already, or copies, casts and
// normalises them: what is left to do of a loader's batch, in one launch.
type ApplyOp struct {
	Parts  []Part
	Counts *Tensor
}

// Part is one tensor of an ApplyOp. Without a plan, row i of Out is made of row i of Src.
type Part struct {
	Name        string
	Src         Tensor  // [S, D]
	Out         Tensor  // [T, D]
	Rule        Rule    // Mode, and what it needs for values
	Kind        *Tensor // uint8 [T]: Kind; nil = all Copy of row i
	Left, Right *Tensor // int32 [T]
	Weight      *Tensor // float64 [T]
	Valid       *Tensor // uint8 [T], read and written: rows whose values are not (K6) become 0
	Epilogue    Epilogue
}

// Tensors are the op's: see Op.
func (op *ApplyOp) Tensors() []*Tensor { return tensors(op.named()) }

func (op *ApplyOp) named() []named {
	out := make([]named, 0, 8*len(op.Parts)+1)
	for i := range op.Parts {
		p := &op.Parts[i]
		out = append(
			out,
			input("data", &p.Src),
			result("out", &p.Out),
			input("kind", p.Kind),
			input("left", p.Left),
			input("right", p.Right),
			input("weight", p.Weight),
			result("valid", p.Valid),
			input("samples", p.Epilogue.samples()),
		)
	}
	return append(out, result("counts", op.Counts))
}

func (e *Epilogue) samples() *Tensor {
	if e.Augment == nil {
		return nil
	}
	return e.Augment.Samples
}
