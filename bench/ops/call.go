package ops

import (
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/guard"
	"github.com/goatnote-inc/robocache/kernel"
)

// copied is the call on memory of its own, its inputs' too.
func (in *inputs) copied(w *Work) kernel.Op {
	op := guard.Must(in.call(w))
	for _, t := range op.Tensors() {
		t.Data = append(aligned(len(t.Data))[:0], t.Data...)
	}
	return op
}

// onDevice is the call with tensors that have no host memory.
func (in *inputs) onDevice(w *Work) kernel.Op {
	op := guard.Must(in.call(w))
	for _, t := range op.Tensors() {
		t.Data = nil
	}
	return op
}

func host(t robocache.DType, data []byte, shape ...int) *kernel.Tensor {
	return &kernel.Tensor{DType: t, Shape: shape, Data: data}
}

func blank(t robocache.DType, shape ...int) *kernel.Tensor {
	k := host(t, nil, shape...)
	k.Data = aligned(k.Len() * t.Size())
	return k
}

// call makes the op on the inputs, with results of its own.
func (in *inputs) call(w *Work) (_ kernel.Op, err error) {
	defer guard.Into(&err)
	if w.Kind == "voxelize" {
		return in.voxelCall(w), nil
	}
	op := &kernel.FuseOp{Targets: *host(robocache.Int64, bytesOf(in.targets), w.B, w.T), Out: *blank(dtype(w.Out), w.B, w.T, w.width())}
	mode, col := guard.Must(kernel.ParseMode(w.Mode)), 0
	for i, s := range w.Streams {
		one := kernel.Series{Name: fmt.Sprintf("stream %d", i), Values: in.values[i], Rule: kernel.Rule{Mode: mode}, Times: *host(robocache.Int64, bytesOf(in.times[i]), w.B, s.S)}
		if w.Ragged {
			one.Times.Shape, one.Offsets = []int{len(in.times[i])}, host(robocache.Int64, bytesOf(in.offsets[i]), w.B+1)
		}
		if w.Norm {
			n := &kernel.Norm{Kind: kernel.MeanStd}
			for c := col; c < col+s.D; c++ {
				n.A, n.B = append(n.A, in.mean[c]), append(n.B, in.std[c]+1e-8)
			}
			one.Epilogue.Norm = n
		}
		col += s.D
		op.Series = append(op.Series, one)
	}
	return op, nil
}

func (in *inputs) voxelCall(w *Work) kernel.Op {
	var mode kernel.VoxelMode
	guard.Check(mode.UnmarshalText([]byte(w.Mode)))
	op := &kernel.VoxelOp{Points: *host(robocache.Float32, bytesOf(in.points), w.N, 3), Min: w.Min, Size: w.Size, Grid: w.Grid, Mode: mode}
	if w.F > 0 {
		op.Features = host(robocache.Float32, bytesOf(in.feature), w.N, w.F)
	}
	t, each := w.cellType()
	switch room := min(w.N, w.cells()); {
	case w.Layout == "sparse":
		op.Coords, op.Counts, op.Found = blank(robocache.Int32, room, 4), blank(robocache.Int32, room), blank(robocache.Int64, 1)
		if w.F > 0 {
			op.Rows = blank(robocache.Float32, room, w.F)
		}
	case w.F > 0:
		op.Out = blank(t, append(w.Grid[:], each)...)
	default:
		op.Out = blank(t, w.Grid[:]...)
	}
	return op
}

// truth is the reference's result of a row: the bytes of each tensor that the op writes, as far as they mean something.
type truth struct {
	w    *Work
	want [][]byte
}

func newTruth(w *Work, in *inputs, ref kernel.Backend) (t *truth, err error) {
	defer guard.Into(&err)
	op := guard.Must(in.call(w))
	guard.Check(ref.Run(op))
	t = &truth{w: w}
	for _, r := range kernel.Results(op) {
		b := r.Data
		if v, ok := op.(*kernel.VoxelOp); ok && v.Found != nil && r != v.Found { // a sparse result has room for more cells than were found
			b = b[:len(b)/r.Shape[0]*min(r.Shape[0], int(number(robocache.Int64, v.Found.Data)))]
		}
		t.want = append(t.want, b)
	}
	return t, nil
}

// compare holds the results of a call against the truth, bit for bit (any NaN is a NaN; slerp: one float32 ulp).
func (t *truth) compare(op kernel.Op) error {
	results := kernel.Results(op)
	for i, want := range t.want {
		r, size := results[i], results[i].DType.Size()
		if string(r.Data[:len(want)]) == string(want) {
			continue
		}
		for at := 0; at < len(want); at += size {
			if string(r.Data[at:at+size]) == string(want[at:at+size]) {
				continue
			}
			g, w := number(r.DType, r.Data[at:]), number(r.DType, want[at:])
			if math.IsNaN(g) && math.IsNaN(w) || t.w.Mode == "slerp" && math.Abs(g-w) <= 1.2e-7*math.Max(math.Abs(w), 0x1p-20) {
				continue
			}
			return fmt.Errorf("differs from the reference at element %d: %v, want %v", at/size, g, w)
		}
	}
	return nil
}

// words says what was compared.
func (t *truth) words() string {
	n, how := 0, "%d bytes equal the reference's"
	for _, b := range t.want {
		n += len(b)
	}
	if t.w.Mode == "slerp" {
		how = "%d bytes within a float32 ulp of the reference's"
	}
	return fmt.Sprintf(how, n)
}

// number is the first element.
func number(t robocache.DType, b []byte) float64 { return robocache.Float64s(nil, t, b[:t.Size()])[0] }

// probes are flat indices into the (dense) result with the values that a peer must have there, within its own rounding.
func (t *truth) probes(count int) (index []int, want []float64) {
	w, rng := t.w, rand.New(rand.NewPCG(17, 19))
	kind, each := w.cellType()
	values, place := t.want[0], func(e int) int { return e }
	switch {
	case w.Kind != "voxelize":
		kind = dtype(w.Out)
	case w.Layout == "sparse":
		coords := t.want[0]
		if values = t.want[1]; w.F == 0 { // of each cell that was found
			kind = robocache.Int32
		}
		place = func(e int) int {
			flat := 0
			for a := range 3 {
				flat = flat*w.Grid[a] + int(number(robocache.Int32, coords[16*(e/each)+4*(a+1):]))
			}
			return flat*each + e%each
		}
	}
	size := kind.Size()
	for n := len(values) / size; n > 0 && len(index) < count; {
		e := rng.IntN(n)
		// Most cells of a grid are empty: prefer ones that are not.
		for range 20 {
			if w.Kind != "voxelize" || number(kind, values[e*size:]) != 0 {
				break
			}
			e = rng.IntN(n)
		}
		index, want = append(index, place(e)), append(want, number(kind, values[e*size:]))
	}
	return index, want
}

// tolerance is what a peer may differ by: it computes in the data's own type, and takes times as float32 seconds.
func (w *Work) tolerance() float64 {
	switch {
	case w.DType == "bfloat16":
		return 0.06
	case w.DType == "float16":
		return 0.01
	case w.Kind == "voxelize":
		return 1e-3
	}
	return 2e-3
}
