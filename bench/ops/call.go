package ops

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/kernel"
)

// opsBackend is what a back end of host memory must do to be measured.
type backend interface {
	Fuse(op *kernel.FuseOp) error
	Voxelize(op *kernel.VoxelOp) error
}

// opsCall is one op with its tensors.
type opCall struct {
	fuse  *kernel.FuseOp
	voxel *kernel.VoxelOp
}

// tensors are the op's, in its order.
func (c *opCall) tensors() []*kernel.Tensor {
	if c.voxel != nil {
		return c.voxel.Tensors()
	}
	return c.fuse.Tensors()
}

// results are the tensors that the op writes.
func (c *opCall) results() []*kernel.Tensor {
	if c.fuse != nil {
		return []*kernel.Tensor{&c.fuse.Out}
	}
	var out []*kernel.Tensor
	for _, t := range []*kernel.Tensor{c.voxel.Out, c.voxel.Coords, c.voxel.Rows, c.voxel.Counts, c.voxel.Found} {
		if t != nil {
			out = append(out, t)
		}
	}
	return out
}

func (c *opCall) run(b backend) error {
	if c.voxel != nil {
		return b.Voxelize(c.voxel)
	}
	return b.Fuse(c.fuse)
}

// mapped is the same call on other tensors.
func (c *opCall) mapped(change func(t *kernel.Tensor)) *opCall {
	other := func(t *kernel.Tensor) *kernel.Tensor {
		if t == nil {
			return nil
		}
		n := *t
		change(&n)
		return &n
	}
	if c.voxel != nil {
		v := *c.voxel
		v.Points = *other(&v.Points)
		for _, t := range []**kernel.Tensor{&v.Features, &v.Out, &v.Coords, &v.Rows, &v.Counts, &v.Found, &v.Scratch} {
			*t = other(*t)
		}
		return &opCall{voxel: &v}
	}
	f := *c.fuse
	f.Series = slices.Clone(f.Series)
	for i := range f.Series {
		s := &f.Series[i]
		s.Values, s.Times, s.Offsets = *other(&s.Values), *other(&s.Times), other(s.Offsets)
	}
	f.Targets, f.Out = *other(&f.Targets), *other(&f.Out)
	return &opCall{fuse: &f}
}

// again is the same call on memory of its own.
func (c *opCall) again() *opCall {
	return c.mapped(func(t *kernel.Tensor) {
		data := aligned(len(t.Data))
		copy(data, t.Data)
		t.Data = data
	})
}

func host(t robocache.DType, data []byte, shape ...int) kernel.Tensor {
	return kernel.Tensor{DType: t, Shape: shape, Data: data}
}

func blank(t robocache.DType, shape ...int) kernel.Tensor {
	k := kernel.Tensor{DType: t, Shape: shape}
	k.Data = aligned(k.Len() * t.Size())
	return k
}

// call makes the op on the inputs, with results of its own.
func (in *inputs) call(w *Work) (*opCall, error) {
	if w.Kind == "voxelize" {
		return in.voxelCall(w)
	}
	out, ok := robocache.ParseDType(w.Out)
	if !ok {
		return nil, &robocache.Error{Class: robocache.ErrMisuse, Op: "bench ops", Msg: "unsupported dtype", Got: w.Out}
	}
	mode, err := kernel.ParseMode(w.Mode)
	if err != nil {
		return nil, err
	}
	op := &kernel.FuseOp{Targets: host(robocache.Int64, bytesOf(in.targets), w.B, w.T), Out: blank(out, w.B, w.T, w.width())}
	col := 0
	for i, s := range w.Streams {
		one := kernel.Series{Name: fmt.Sprintf("stream %d", i), Values: in.values[i], Rule: kernel.Rule{Mode: mode}}
		if w.Ragged {
			one.Times = host(robocache.Int64, bytesOf(in.times[i]), len(in.times[i]))
			o := host(robocache.Int64, bytesOf(in.offsets[i]), w.B+1)
			one.Offsets = &o
		} else {
			one.Times = host(robocache.Int64, bytesOf(in.times[i]), w.B, s.S)
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
	return &opCall{fuse: op}, nil
}

func (in *inputs) voxelCall(w *Work) (*opCall, error) {
	mode, ok := voxelMode(w.Mode)
	if !ok {
		return nil, &robocache.Error{Class: robocache.ErrMisuse, Op: "bench ops", Msg: "no such mode of voxels", Got: w.Mode}
	}
	op := &kernel.VoxelOp{Points: host(robocache.Float32, bytesOf(in.points), w.N, 3), Min: w.Min, Size: w.Size, Grid: w.Grid, Mode: mode}
	if w.F > 0 {
		f := host(robocache.Float32, bytesOf(in.feature), w.N, w.F)
		op.Features = &f
	}
	if w.Layout == "sparse" {
		room := min(w.N, w.cells())
		coords, counts, found := blank(robocache.Int32, room, 4), blank(robocache.Int32, room), blank(robocache.Int64, 1)
		op.Coords, op.Counts, op.Found = &coords, &counts, &found
		if w.F > 0 {
			rows := blank(robocache.Float32, room, w.F)
			op.Rows = &rows
		}
		return &opCall{voxel: op}, nil
	}
	shape, t := []int{w.Grid[0], w.Grid[1], w.Grid[2]}, robocache.Int32
	if w.Mode == "occupancy" {
		t = robocache.Uint8
	}
	if w.F > 0 {
		shape, t = append(shape, w.F), robocache.Float32
	}
	out := blank(t, shape...)
	op.Out = &out
	return &opCall{voxel: op}, nil
}

// part is the work on batch entries lo … hi-1 alone: what a check of a large row looks at.
func (in *inputs) part(w *Work, lo, hi int) (*Work, *inputs) {
	pw := *w
	pw.B = hi - lo
	p := &inputs{targets: in.targets[lo*w.T : hi*w.T], mean: in.mean, std: in.std}
	for i, s := range w.Streams {
		first, _ := in.entry(w, i, lo)
		_, last := in.entry(w, i, hi-1)
		v := in.values[i]
		row := s.D * v.DType.Size()
		v.Data = v.Data[first*row : last*row]
		v.Shape = []int{pw.B, s.S, s.D}
		var offsets []int64
		if w.Ragged {
			v.Shape = []int{last - first, s.D}
			for _, o := range in.offsets[i][lo : hi+1] {
				offsets = append(offsets, o-int64(first))
			}
		}
		p.values, p.times, p.offsets = append(p.values, v), append(p.times, in.times[i][first:last]), append(p.offsets, offsets)
	}
	return &pw, p
}

// opsTruth is the reference's result of a row, or of the parts of it that are looked at.
type truth struct {
	parts []truthPart
	pw    *Work
}

type truthPart struct {
	at    int // first byte in the whole result
	bytes []byte
}

// checkedElements is about how many elements of a result the reference makes: a second or two of it.
const checkedElements = 8 << 20

// newOpsTruth runs the reference: on the whole row, or on its first, middle and last batch entries where it is large.
func newTruth(w *Work, in *inputs, ref backend) (*truth, error) {
	t := &truth{pw: w}
	per := w.T * w.width()
	if w.Kind == "voxelize" || w.B*per <= checkedElements {
		c, err := in.call(w)
		if err != nil {
			return nil, err
		}
		if err := c.run(ref); err != nil {
			return nil, err
		}
		for _, r := range c.results() {
			t.parts = append(t.parts, truthPart{0, r.Data})
		}
		if w.Kind == "voxelize" && w.Layout == "sparse" {
			t.trim(c)
		}
		return t, nil
	}
	some := max(1, checkedElements/3/per)
	for _, lo := range []int{0, w.B/2 - some/2, w.B - some} {
		pw, p := in.part(w, lo, lo+some)
		c, err := p.call(pw)
		if err != nil {
			return nil, err
		}
		if err := c.run(ref); err != nil {
			return nil, err
		}
		t.parts = append(t.parts, truthPart{lo * per * elementSize(w.Out), c.fuse.Out.Data})
	}
	return t, nil
}

// trim keeps of a sparse result what was found.
func (t *truth) trim(c *opCall) {
	n := foundCells(c.voxel)
	for i, r := range c.results() {
		if r != c.voxel.Found && len(r.Shape) > 0 && r.Shape[0] > 0 {
			t.parts[i].bytes = r.Data[:len(r.Data)/r.Shape[0]*min(n, r.Shape[0])]
		}
	}
}

func foundCells(op *kernel.VoxelOp) int {
	n := 0
	for i := range 8 {
		n |= int(op.Found.Data[i]) << (8 * i)
	}
	return n
}

// compare holds a result against the truth, bit for bit (any NaN is a NaN). results are the whole ones, in the op's order.
func (t *truth) compare(results []*kernel.Tensor) error {
	for i, p := range t.parts {
		r := results[0]
		if t.pw.Kind == "voxelize" {
			r = results[i]
		}
		got := r.Data[p.at : p.at+len(p.bytes)]
		if string(got) == string(p.bytes) {
			continue
		}
		size := r.DType.Size()
		for e := 0; e < len(got); e += size {
			if string(got[e:e+size]) == string(p.bytes[e:e+size]) {
				continue
			}
			g, w := number(r.DType, got[e:]), number(r.DType, p.bytes[e:])
			if math.IsNaN(g) && math.IsNaN(w) || t.pw.Mode == "slerp" && math.Abs(g-w) <= 1.2e-7*math.Max(math.Abs(w), 0x1p-20) {
				continue // slerp: one float32 ulp
			}
			return fmt.Errorf("differs from the reference at element %d: %v, want %v", (p.at+e)/size, g, w)
		}
	}
	return nil
}

// number is one element.
func number(t robocache.DType, b []byte) float64 {
	var u uint64
	for i := range t.Size() {
		u |= uint64(b[i]) << (8 * i)
	}
	switch t {
	case robocache.Float64:
		return math.Float64frombits(u)
	case robocache.Float32:
		return float64(math.Float32frombits(uint32(u)))
	case robocache.Float16:
		return float64(kernel.Float16to32(uint16(u)))
	case robocache.BFloat16:
		return float64(kernel.BFloat16to32(uint16(u)))
	}
	return float64(u)
}

// probes are flat indices into the (dense) result with the values that a peer must have there, within its own rounding.
func (t *truth) probes(w *Work, count int) (index []int, want []float64) {
	rng := rand.New(rand.NewPCG(17, 19))
	if w.Kind == "voxelize" && w.Layout == "sparse" {
		coords := t.parts[0].bytes
		values := t.parts[1].bytes
		f := max(w.F, 1)
		n := len(coords) / 16
		for range min(count, n) {
			i, c := rng.IntN(n), rng.IntN(f)
			flat := 0
			for a := range 3 {
				flat = flat*w.Grid[a] + int(number(robocache.Int32, coords[16*i+4*(a+1):]))
			}
			kind := robocache.Float32
			if w.F == 0 {
				kind = robocache.Int32
			}
			index, want = append(index, flat*f+c), append(want, number(kind, values[4*(i*f+c):]))
		}
		return index, want
	}
	kind, _ := robocache.ParseDType(w.Out)
	if w.Kind == "voxelize" {
		kind = robocache.Int32
		if w.Mode == "occupancy" {
			kind = robocache.Uint8
		}
		if w.F > 0 {
			kind = robocache.Float32
		}
	}
	size := kind.Size()
	for range count {
		p := t.parts[rng.IntN(len(t.parts))]
		n := len(p.bytes) / size
		if n == 0 {
			continue
		}
		e := rng.IntN(n)
		// Most cells of a grid are empty: prefer ones that are not.
		for range 20 {
			if w.Kind != "voxelize" || number(kind, p.bytes[e*size:]) != 0 {
				break
			}
			e = rng.IntN(n)
		}
		index, want = append(index, p.at/size+e), append(want, number(kind, p.bytes[e*size:]))
	}
	return index, want
}

// tolerance is what a peer may differ by: it computes in the data's own type, and takes times as float32 seconds.
func (w *Work) tolerance() float64 {
	switch w.DType {
	case "bfloat16":
		return 0.06
	case "float16":
		return 0.01
	}
	if w.Kind == "voxelize" {
		return 1e-3
	}
	return 2e-3
}
