package sweep

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/kernel"
	"github.com/goatnote-inc/robocache/kernel/conform"
)

// sweeper makes random operations. The same seed gives the same operation, in new memory.
type sweeper struct{ *rand.Rand }

// newSweeper returns the sweeper for operation i of a seed.
func newSweeper(seed uint64, i int) sweeper {
	return sweeper{rand.New(rand.NewPCG(seed, uint64(i)))}
}

// pick returns one of the values at random.
func pick[T any](r sweeper, of ...T) T { return of[r.IntN(len(of))] }

// strides returns a random layout of a shape: axes in any order, with gaps, or with negative
// strides. Axes can be expanded (stride 0) if the tensor is only read. elements is the number of
// elements in memory.
func (r sweeper) strides(shape []int, read bool) (stride []int, base, elements int) {
	if r.IntN(2) == 0 { // most callers use C order
		n := 1
		for _, d := range shape {
			n *= d
		}
		base = pick(r, 0, 0, 1, 3)
		return nil, base, base + n
	}
	stride = make([]int, len(shape))
	step := pick(r, 1, 1, 1, 2, 3)
	order := r.Perm(len(shape))
	if r.IntN(3) > 0 {
		for i := range order {
			order[i] = len(shape) - 1 - i
		}
	}
	base, end := r.IntN(4), 0
	for _, a := range order {
		if read && r.IntN(12) == 0 {
			continue
		}
		reach := step * max(shape[a]-1, 0)
		stride[a] = step
		end += reach
		if r.IntN(5) == 0 {
			stride[a] = -step
			base += reach
			end -= reach
		}
		step = step*max(shape[a], 1) + pick(r, 0, 0, 0, 1, 5)
	}
	return stride, base, base + end + 1
}

// number writes a random element of type dt to b. Some elements are small or special values.
func (r sweeper) number(b []byte, dt robocache.DType, scale float64) {
	x := r.NormFloat64() * scale
	switch r.IntN(40) {
	case 0:
		x = pick(
			r,
			math.NaN(),
			math.Inf(1),
			math.Inf(-1),
			0,
			math.Copysign(0, -1),
			1e-42,
			-1e-42,
			3e38,
			-3e38,
		)
	case 1:
		x = math.Round(x)
	}
	switch dt {
	case robocache.Float64:
		binary.LittleEndian.PutUint64(b, math.Float64bits(x))
	case robocache.Float16:
		binary.LittleEndian.PutUint16(b, kernel.Float64to16(x))
	case robocache.BFloat16:
		binary.LittleEndian.PutUint16(b, kernel.Float64toB16(x))
	case robocache.Uint16:
		// -k clears up to three low bits for k > 0, and all bits for k = 0: some depths are 0.
		depth := uint16(r.IntN(1<<16)) & uint16(-r.IntN(8)) >> r.IntN(2)
		binary.LittleEndian.PutUint16(b, depth)
	default:
		binary.LittleEndian.PutUint32(b, math.Float32bits(float32(x)))
	}
}

// input returns a tensor of random numbers in a random layout.
func (r sweeper) input(dt robocache.DType, scale float64, shape ...int) kernel.Tensor {
	t := kernel.Tensor{DType: dt, Shape: shape}
	var n int
	t.Stride, t.Base, n = r.strides(shape, true)
	t.Data = make([]byte, n*dt.Size())
	for i := range n {
		r.number(t.Data[i*dt.Size():], dt, scale)
	}
	return t
}

// result returns a blank tensor in a random layout.
func (r sweeper) result(dt robocache.DType, shape ...int) *kernel.Tensor {
	t := &kernel.Tensor{DType: dt, Shape: shape}
	var n int
	t.Stride, t.Base, n = r.strides(shape, false)
	t.Data = make([]byte, n*dt.Size())
	for i := range t.Data {
		t.Data[i] = conform.Poison
	}
	return t
}

// swept are the types of points, features and depth images; float32 is the most frequent.
var swept = []robocache.DType{
	robocache.Float32,
	robocache.Float32,
	robocache.Float32,
	robocache.Float16,
	robocache.BFloat16,
	robocache.Float64,
}

// randomVoxels returns a random operation.
func (r sweeper) randomVoxels() *kernel.VoxelOp {
	op := &kernel.VoxelOp{
		Mode: kernel.VoxelMode(r.IntN(7)),
		Outside: pick(
			r,
			kernel.DropOutside,
			kernel.DropOutside,
			kernel.ClipOutside,
			kernel.FailOutside,
		),
	}
	n := pick(r, 0, 1, 2, 7, 33, 100, 257, r.IntN(5000))
	if r.IntN(30) == 0 {
		n = 20000 + r.IntN(30000)
	}
	for a := range op.Grid {
		op.Grid[a] = pick(r, 1, 2, 3, 5, 8, 1+r.IntN(20), 1+r.IntN(40))
		op.Size[a] = pick(r, 1, 0.1, 0.5, r.Float32()+0.01)
		op.Min[a] = pick(r, 0, -1, float32(op.Grid[a])*op.Size[a]*-0.5)
	}
	scale := float64(op.Size[0]) * float64(op.Grid[0]) * pick(r, 0.2, 0.4, 1)
	if op.Outside == kernel.FailOutside {
		scale /= 20 // so that some operations have no point outside
	}
	lead := []int{n}
	f := pick(r, 1, 2, 3, 4, 7, 8, 8, 9, 16, 0)
	switch r.IntN(4) {
	case 0:
		lead = []int{pick(r, 0, 1, 2, 5), n / 4}
		if r.IntN(2) == 0 {
			op.Lengths = r.lengths(lead)
		}
	case 1:
		op.Offsets = r.offsets(n, pick(r, 0, 1, 2, 3, 9))
	}
	op.Points = r.input(pick(r, swept...), scale, append(append([]int(nil), lead...), 3)...)
	if op.Mode.Featured() {
		t := r.input(pick(r, swept...), 3, append(append([]int(nil), lead...), f)...)
		op.Features = &t
	}
	op.Fill = pick(r, 0, 0, -1.5, float32(math.NaN()))
	if r.IntN(3) > 0 {
		op.Stats = r.result(robocache.Int64, 3)
	}
	r.voxelResults(op, n, f)
	return op
}

// voxelResults adds blank results to op, sparse or dense. n and f are the numbers of points and of
// features.
func (r sweeper) voxelResults(op *kernel.VoxelOp, n, f int) {
	if r.IntN(2) == 0 {
		if r.IntN(4) == 0 {
			op.Grid = [3]int{1 << 20, 1 << 20, 1 << 19}
		}
		capacity := pick(r, 0, 1, n/2, n, n+5)
		op.Coords, op.Found = r.result(robocache.Int32, capacity, 4), r.result(robocache.Int64, 1)
		if op.Mode == kernel.Count || r.IntN(2) == 0 {
			op.Counts = r.result(robocache.Int32, capacity)
		}
		if op.Mode.Featured() {
			op.Rows = r.result(robocache.Float32, capacity, f)
		}
		return
	}
	op.Bits = op.Mode == kernel.Occupancy && r.IntN(2) == 0
	l, err := op.Layout()
	if err != nil {
		panic(err) // the sweep itself is wrong
	}
	dt := l.DType
	if op.Mode == kernel.Occupancy && !op.Bits {
		dt = pick(r, robocache.Uint8, robocache.Bool, robocache.Int32, robocache.Float32)
	}
	op.Out = r.result(dt, l.Shape...)
}

// lengths returns random lengths for points of the shape lead: [B, N].
func (r sweeper) lengths(lead []int) *kernel.Tensor {
	t := &kernel.Tensor{DType: robocache.Int64, Shape: []int{lead[0]}}
	for range lead[0] {
		t.Data = binary.LittleEndian.AppendUint64(t.Data, uint64(r.IntN(lead[1]+1)))
	}
	return t
}

// offsets returns random offsets of batch entries into n points.
func (r sweeper) offsets(n, batch int) *kernel.Tensor {
	t := &kernel.Tensor{DType: robocache.Int64, Shape: []int{batch + 1}}
	at := r.IntN(n + 1)
	for range batch + 1 {
		t.Data = binary.LittleEndian.AppendUint64(t.Data, uint64(at))
		at += r.IntN(n - at + 1)
	}
	return t
}

// Voxels runs n random VoxelOps on two back ends. It compares all memory of the results, including
// the bytes between the elements. The error names the operation that differs.
func Voxels(a, b kernel.Backend, seed uint64, n int) error {
	for i := range n {
		x, y := newSweeper(seed, i).randomVoxels(), newSweeper(seed, i).randomVoxels()
		hasResults, err := compareErrors(a.Run(x), b.Run(y))
		if err == nil && hasResults {
			err = compareTensors(x.Tensors(), y.Tensors())
		}
		if err != nil {
			return fmt.Errorf(
				"voxels, seed %d, op %d: %s of points %s %v: grid %v, outside %v, sparse %v, "+
					"bits %v: %w",
				seed,
				i,
				x.Mode,
				x.Points.DType,
				x.Points.Shape,
				x.Grid,
				x.Outside,
				x.Coords != nil,
				x.Bits,
				err,
			)
		}
	}
	return nil
}

// compareErrors compares the errors of two back ends. It returns an error unless both are nil or
// have the same text. hasResults reports that both are nil, so the results must be compared too.
func compareErrors(a, b error) (hasResults bool, _ error) {
	switch {
	case a == nil && b == nil:
		return true, nil
	case a == nil || b == nil || a.Error() != b.Error():
		return false, fmt.Errorf("errors differ: %v; %v", a, b)
	}
	return false, nil
}

// compareTensors compares the memory of each pair of tensors.
func compareTensors(a, b []*kernel.Tensor) error {
	var errs []error
	for i, x := range a {
		errs = append(errs, compareMemory(i, x, b[i]))
	}
	return errors.Join(errs...)
}

// compareMemory returns an error if an element in the memory of tensor i differs between x and y.
// All NaN are equal.
func compareMemory(i int, x, y *kernel.Tensor) error {
	size := x.DType.Size()
	for o := 0; o+size <= len(x.Data); o += size {
		var p, q uint64
		for j := size - 1; j >= 0; j-- {
			p, q = p<<8|uint64(x.Data[o+j]), q<<8|uint64(y.Data[o+j])
		}
		if p != q && !(conform.IsNaN(p, x.DType) && conform.IsNaN(q, x.DType)) {
			return fmt.Errorf(
				"tensor %d, %s %v strides %v base %d: element %d of its memory: %0*x and %0*x",
				i,
				x.DType,
				x.Shape,
				x.Stride,
				x.Base,
				o/size,
				2*size,
				p,
				2*size,
				q,
			)
		}
	}
	return nil
}

// pose returns twelve numbers, which are sometimes a rotation.
func (r sweeper) pose() (m [12]float32) {
	a := r.Float64() * 2 * math.Pi
	m = [12]float32{
		float32(math.Cos(a)),
		float32(-math.Sin(a)),
		0,
		0,
		float32(math.Sin(a)),
		float32(math.Cos(a)),
		0,
		0,
		0,
		0,
		1,
		0,
	}
	if r.IntN(2) == 0 {
		for i := range m {
			m[i] += float32(r.NormFloat64() * 0.2)
		}
	}
	return m
}

// camera returns random camera parameters for an image of h × w pixels.
func (r sweeper) camera(h, w int) [4]float32 {
	return [4]float32{
		float32(w) * (0.5 + r.Float32()),
		float32(w) * (0.5 + r.Float32()),
		float32(w) / 2,
		float32(h)/2 + r.Float32(),
	}
}

// randomDepth returns a random DepthOp with blank results.
func (r sweeper) randomDepth() *kernel.DepthOp {
	shape := []int{pick(r, 0, 1, 3, 17, 48), pick(r, 1, 2, 7, 33, 64)}
	h, w := shape[0], shape[1]
	if r.IntN(2) == 0 {
		shape = append([]int{pick(r, 0, 1, 3)}, shape...)
	}
	op := &kernel.DepthOp{
		Depth:  r.input(pick(r, append(swept, robocache.Uint16, robocache.Uint16)...), 3, shape...),
		Camera: r.camera(h, w),
		Scale:  pick[float32](r, 0, 0, 0.001, 0.7),
	}
	if r.IntN(2) == 0 {
		p := r.pose()
		op.Pose = &p
	}
	op.Out = *r.result(robocache.Float32, append(append([]int(nil), shape...), 3)...)
	if r.IntN(3) > 0 {
		op.Valid = r.result(robocache.Uint8, shape...)
	}
	return op
}

// Depth is Voxels for DepthOps.
func Depth(a, b kernel.Backend, seed uint64, n int) error {
	for i := range n {
		x, y := newSweeper(seed, i).randomDepth(), newSweeper(seed, i).randomDepth()
		hasResults, err := compareErrors(a.Run(x), b.Run(y))
		if err == nil && hasResults {
			err = compareTensors(x.Tensors(), y.Tensors())
		}
		if err != nil {
			return fmt.Errorf(
				"depth, seed %d, op %d: %s %v: %w",
				seed,
				i,
				x.Depth.DType,
				x.Depth.Shape,
				err,
			)
		}
	}
	return nil
}

// randomTSDF returns a random TSDFOp.
func (r sweeper) randomTSDF() *kernel.TSDFOp {
	h, w := pick(r, 0, 1, 24, 48), pick(r, 1, 8, 33, 64)
	op := &kernel.TSDFOp{
		Depth:     r.input(pick(r, append(swept, robocache.Uint16)...), 2, h, w),
		Camera:    r.camera(h, w),
		View:      r.pose(),
		Truncate:  0.1 + r.Float32(),
		MaxWeight: pick[float32](r, 1, 4, 100, 0.25),
	}
	shape := make([]int, 3)
	for a := range shape {
		shape[a] = pick(r, 1, 2, 5, 8, 1+r.IntN(20))
		op.Size[a] = 0.05 + r.Float32()*0.2
		op.Min[a] = -1 + r.Float32()
	}
	op.Value = r.input(robocache.Float32, 1, shape...)
	op.Weight = r.input(robocache.Float32, 2, shape...)
	// they are written, so no axis may be expanded
	for _, t := range []*kernel.Tensor{&op.Value, &op.Weight} {
		var n int
		t.Stride, t.Base, n = r.strides(shape, false)
		t.Data = make([]byte, 4*n)
		for i := range n {
			r.number(t.Data[4*i:], t.DType, 2)
		}
	}
	return op
}

// TSDF is Voxels for TSDFOps.
func TSDF(a, b kernel.Backend, seed uint64, n int) error {
	for i := range n {
		x, y := newSweeper(seed, i).randomTSDF(), newSweeper(seed, i).randomTSDF()
		hasResults, err := compareErrors(a.Run(x), b.Run(y))
		if err == nil && hasResults {
			err = compareTensors(x.Tensors(), y.Tensors())
		}
		if err != nil {
			return fmt.Errorf(
				"TSDF, seed %d, op %d: depth %s %v, voxels %v: %w",
				seed,
				i,
				x.Depth.DType,
				x.Depth.Shape,
				x.Value.Shape,
				err,
			)
		}
	}
	return nil
}
