package kernel

import (
	"fmt"
	"math"
	"math/bits"
	"strconv"

	"github.com/goatnote-inc/robocache"
)

// voxelize is the name of VoxelOp in errors.
const voxelize = "voxelize"

// floatTypes are the types of points, features and depth images.
var floatTypes = []robocache.DType{
	robocache.Float32,
	robocache.Float16,
	robocache.BFloat16,
	robocache.Float64,
}

// VoxelLayout describes the result of a VoxelOp, computed from its inputs and options alone.
type VoxelLayout struct {
	Batched  bool  // the result has the axis B
	Batch    int   // number of entries; 1 if not Batched
	Rows     int   // points per entry; ragged: points of all entries
	Features int   // F; 0 under Occupancy and Count
	Cells    int64 // number of cells in one entry's grid
	Total    int64 // number of cells in the batch; every flat index is below it
	Shape    []int // of a dense result; nil if sparse
	DType    robocache.DType
	Bytes    int64 // of a dense result; 0 if sparse
}

// Layout computes the layout of the result from inputs and options, without the result tensors. A
// caller uses it to get the shape and size before allocating. If a dense result exceeds Budget or
// an int64, Layout returns the error "memory budget exceeded".
func (op *VoxelOp) Layout() (_ *VoxelLayout, err error) {
	if op.Mode > FirstPoint {
		return nil, misuseError(
			voxelize,
			"Invalid mode",
			voxelNames.listAll(),
			strconv.Itoa(int(op.Mode)),
		)
	}
	if op.Outside > FailOutside {
		return nil, misuseError(
			voxelize,
			"Invalid outside",
			outsideNames.listAll(),
			strconv.Itoa(int(op.Outside)),
		)
	}
	l := &VoxelLayout{Batch: 1}
	if err := op.checkPoints(l); err != nil {
		return nil, err
	}
	if err := op.checkFeatures(l); err != nil {
		return nil, err
	}
	if err := checkGrid(voxelize, op.Min, op.Size, op.Grid[:]); err != nil {
		return nil, err
	}
	return l, op.measureResult(l)
}

// checkPoints rejects points, lengths and offsets that do not fit together. It sets the batch and
// the rows of l.
func (op *VoxelOp) checkPoints(l *VoxelLayout) error {
	p := &op.Points
	rank := len(p.Shape)
	isList := rank == 2
	isPadded := rank == 3 && op.Offsets == nil
	if !isList && !isPadded || p.Shape[rank-1] != 3 {
		want := "[N, 3] or [B, N, 3]"
		if op.Offsets != nil {
			want = "[sum of N, 3] beside offsets"
		}
		return misuseError(voxelize, "points must have shape "+want, want, fmt.Sprint(p.Shape))
	}
	if !p.DType.Float() {
		return robocache.Misuse(voxelize, robocache.Where{"tensor": "points"}, "unsupported dtype").
			Expected(joinTypes(floatTypes), p.DType.String())
	}
	if err := p.Check(voxelize, "points"); err != nil {
		return err
	}
	l.Rows = p.Shape[rank-2]
	switch {
	case op.Offsets != nil:
		o := op.Offsets
		if op.Lengths != nil {
			return misuseError(voxelize, "lengths beside offsets", "one of them", "both")
		}
		if len(o.Shape) != 1 || o.Shape[0] < 1 {
			return misuseError(voxelize, "offsets has wrong shape", "[B+1]", fmt.Sprint(o.Shape))
		}
		l.Batched = true
		l.Batch = o.Shape[0] - 1
		return checkIndex("offsets", o, l.Batch+1)
	case rank == 3:
		l.Batched = true
		l.Batch = p.Shape[0]
		if op.Lengths == nil {
			return nil
		}
		if len(op.Lengths.Shape) == 1 && op.Lengths.Shape[0] != l.Batch {
			return misuseError(
				voxelize,
				"Batch size mismatch (batch size mismatch of points and lengths)",
				strconv.Itoa(l.Batch),
				strconv.Itoa(op.Lengths.Shape[0]),
			)
		}
		return checkIndex("lengths", op.Lengths, l.Batch)
	case op.Lengths != nil:
		return misuseError(
			voxelize,
			"lengths without a batch",
			"points [B, N, 3]",
			fmt.Sprint(p.Shape),
		)
	}
	return nil
}

// checkIndex rejects lengths or offsets that are not n int64 values.
func checkIndex(name string, t *Tensor, n int) error {
	if err := checkForm(voxelize, name, t, []int{n}, robocache.Int64); err != nil {
		return err
	}
	return t.Check(voxelize, name)
}

// checkFeatures rejects features that do not fit the points, and sets l.Features.
func (op *VoxelOp) checkFeatures(l *VoxelLayout) error {
	if !op.Mode.Featured() {
		return nil
	}
	f := op.Features
	p := &op.Points
	if f == nil {
		return misuseError(
			voxelize,
			"features required for mean/max modes",
			"features under mode "+op.Mode.String(),
			"none",
		)
	}
	lead := len(p.Shape) - 1
	if len(f.Shape) != lead+1 {
		return misuseError(
			voxelize,
			"features must have shape "+fmt.Sprint(p.Shape[:lead])+" and F",
			strconv.Itoa(lead+1)+" axes",
			fmt.Sprint(f.Shape),
		)
	}
	for i, d := range p.Shape[:lead] {
		if f.Shape[i] != d {
			if i == 0 && lead == 2 {
				return misuseError(
					voxelize,
					"Batch size mismatch (batch size mismatch of points and features)",
					strconv.Itoa(d),
					strconv.Itoa(f.Shape[i]),
				)
			}
			return misuseError(
				voxelize,
				"length mismatch of points and features",
				strconv.Itoa(d),
				strconv.Itoa(f.Shape[i]),
			)
		}
	}
	l.Features = f.Shape[lead]
	if !f.DType.Float() {
		return robocache.Misuse(voxelize, robocache.Where{"tensor": "features"},
			"unsupported dtype").
			Expected(joinTypes(floatTypes), f.DType.String())
	}
	return f.Check(voxelize, "features")
}

// checkGrid rejects an invalid voxel size, origin or grid.
func checkGrid(op string, lo, size [3]float32, grid []int) error {
	for a, s := range size {
		if !(s > 0) || math.IsInf(float64(s), 0) {
			return robocache.Misuse(op, robocache.Where{"axis": a},
				"voxel_size must be positive: a voxel size must be positive and finite").
				Expected("a finite number > 0", fmt.Sprint(s))
		}
	}
	for a, x := range lo {
		if x-x != 0 { // NaN or infinite
			return robocache.Misuse(op, robocache.Where{"axis": a}, "grid_min is not finite").
				Expected("a finite number", fmt.Sprint(x))
		}
	}
	for a, g := range grid {
		if g <= 0 || g > math.MaxInt32 {
			return robocache.Misuse(op, robocache.Where{"axis": a}, "Invalid grid dimensions").
				Expected("extents of 1 … 2147483647", fmt.Sprint(grid)).
				WithHint("grid_size is voxels an axis")
		}
	}
	return nil
}

// measureResult computes the number of cells, and the type, shape and size of a dense result.
func (op *VoxelOp) measureResult(l *VoxelLayout) error {
	l.DType = robocache.Float32
	switch {
	case op.Mode == Occupancy:
		l.DType = robocache.Uint8
		if op.Out != nil {
			l.DType = op.Out.DType
		}
	case op.Mode == Count:
		l.DType = robocache.Int32
	}
	budget := op.Budget
	if budget <= 0 {
		budget = math.MaxInt64
	}
	over := func() error {
		return robocache.ResourceLimit(voxelize, nil, "memory budget exceeded").
			Expected(fmt.Sprintf("at most %d bytes", budget), op.describeGrid(l)).
			WithHint("a smaller grid, larger voxels, or the sparse layout")
	}
	var ok bool
	l.Cells, ok = multiplyCounts(int64(op.Grid[0]), int64(op.Grid[1]), int64(op.Grid[2]))
	if !ok {
		return over()
	}
	if l.Total, ok = multiplyCounts(l.Cells, int64(l.Batch)); !ok {
		return over()
	}
	if op.Coords != nil {
		return nil
	}
	if op.Bits {
		bytes := l.Total/8 + min(l.Total%8, 1)
		l.Shape = []int{int(bytes)}
		l.Bytes = bytes
	} else {
		if l.Batched {
			l.Shape = append(l.Shape, l.Batch)
		}
		l.Shape = append(l.Shape, op.Grid[:]...)
		wide := int64(1)
		if op.Mode.Featured() {
			l.Shape = append(l.Shape, l.Features)
			wide = int64(l.Features)
		}
		if l.Bytes, ok = multiplyCounts(l.Total, wide, int64(l.DType.Size())); !ok {
			return over()
		}
	}
	if l.Bytes > budget {
		return over()
	}
	return nil
}

// describeGrid returns the size of the dense result in words, for errors.
func (op *VoxelOp) describeGrid(l *VoxelLayout) string {
	s := fmt.Sprintf("a grid of %d × %d × %d", op.Grid[0], op.Grid[1], op.Grid[2])
	if l.Batched {
		s = strconv.Itoa(l.Batch) + " times " + s
	}
	if op.Mode.Featured() {
		s += fmt.Sprintf(" with %d features", l.Features)
	}
	return s
}

// multiplyCounts multiplies numbers ≥ 0. ok is false if the result overflows an int64.
func multiplyCounts(xs ...int64) (p int64, ok bool) {
	p = 1
	for _, x := range xs {
		h, lo := bits.Mul64(uint64(p), uint64(x))
		if h != 0 || lo > math.MaxInt64 {
			return math.MaxInt64, false
		}
		p = int64(lo)
	}
	return p, true
}

// Check rejects everything that can be detected without reading values or memory. All three back
// ends call it first.
func (op *VoxelOp) Check() (err error) {
	l, err := op.Layout()
	if err != nil {
		return err
	}
	sparse := op.Coords != nil
	if op.Bits && (op.Mode != Occupancy || sparse) {
		return misuseError(
			voxelize,
			"bits hold dense occupancy only",
			"mode occupancy with a dense result",
			op.Mode.String(),
		)
	}
	switch {
	case sparse && op.Out != nil, !sparse && op.Out == nil:
		return misuseError(voxelize, "one result", "out, or coords", "both or neither")
	case !sparse && (op.Rows != nil || op.Counts != nil || op.Found != nil):
		return misuseError(
			voxelize,
			"rows, counts and found belong to the sparse layout",
			"coords in addition",
			"none",
		)
	case sparse:
		if err := op.checkSparse(l); err != nil {
			return err
		}
	default:
		if err := op.checkDense(l); err != nil {
			return err
		}
	}
	if op.Stats != nil {
		if err := checkForm(voxelize, "stats", op.Stats, []int{3}, robocache.Int64); err != nil {
			return err
		}
	}
	if op.Scratch != nil {
		if err := op.Scratch.Check(voxelize, "scratch"); err != nil {
			return err
		}
	}
	if s := op.Scratch; s != nil && !isByteList(s) {
		return misuseError(
			voxelize,
			"scratch has wrong shape",
			"uint8, one axis without gaps",
			op.Scratch.DType.String(),
		)
	}
	return checkTensors(op)
}

// isByteList reports whether a tensor has bytes on one axis without gaps.
func isByteList(t *Tensor) bool {
	if t.DType != robocache.Uint8 || len(t.Shape) != 1 {
		return false
	}
	return t.Step(0) == 1 || t.Shape[0] <= 1
}

// checkDense rejects a dense result of a wrong type or shape.
func (op *VoxelOp) checkDense(l *VoxelLayout) error {
	types := []robocache.DType{l.DType}
	switch {
	case op.Bits:
		types = []robocache.DType{robocache.Uint8}
	case op.Mode == Occupancy:
		types = []robocache.DType{
			robocache.Uint8,
			robocache.Bool,
			robocache.Int32,
			robocache.Float32,
		}
	}
	return checkForm(voxelize, "out", op.Out, l.Shape, types...)
}

// checkSparse rejects sparse results that are missing, not used by the mode, or of a wrong form.
func (op *VoxelOp) checkSparse(l *VoxelLayout) error {
	c := op.Coords
	if len(c.Shape) != 2 || c.Shape[1] != 4 {
		return misuseError(voxelize, "coords has wrong shape", "[capacity, 4]", fmt.Sprint(c.Shape))
	}
	capacity := c.Shape[0]
	if l.Batch > math.MaxInt32 {
		return misuseError(
			voxelize,
			"coords are int32: batch too large",
			"at most 2147483647 entries",
			strconv.Itoa(l.Batch),
		)
	}
	switch {
	case op.Found == nil:
		return misuseError(voxelize, "the sparse layout needs found", "int64 [1]", "none")
	case op.Mode.Featured() && op.Rows == nil:
		return misuseError(
			voxelize,
			"the sparse layout needs rows under mode "+op.Mode.String(),
			"float32 [capacity, F]",
			"none",
		)
	case !op.Mode.Featured() && op.Rows != nil:
		return misuseError(voxelize, "rows under mode "+op.Mode.String(), "none", "some")
	case op.Mode == Count && op.Counts == nil:
		return misuseError(
			voxelize,
			"the sparse layout needs counts under mode count",
			"int32 [capacity]",
			"none",
		)
	}
	for _, r := range []struct {
		name   string
		tensor *Tensor
		shape  []int
		dtype  robocache.DType
	}{
		{"coords", c, []int{capacity, 4}, robocache.Int32},
		{"rows", op.Rows, []int{capacity, l.Features}, robocache.Float32},
		{"counts", op.Counts, []int{capacity}, robocache.Int32},
		{"found", op.Found, []int{1}, robocache.Int64},
	} {
		if r.tensor == nil {
			continue
		}
		if err := checkForm(voxelize, r.name, r.tensor, r.shape, r.dtype); err != nil {
			return err
		}
	}
	return nil
}

// opName implements Op.
func (op *VoxelOp) opName() string { return voxelize }

// namedTensors implements Op.
func (op *VoxelOp) namedTensors() []namedTensor {
	all := []namedTensor{
		inputTensor("points", &op.Points),
		inputTensor("lengths", op.Lengths),
		inputTensor("offsets", op.Offsets),
		resultTensor("out", op.Out),
		resultTensor("coords", op.Coords),
		resultTensor("rows", op.Rows),
		resultTensor("counts", op.Counts),
		resultTensor("found", op.Found),
		resultTensor("stats", op.Stats),
		inputTensor("scratch", op.Scratch),
	}
	if op.Mode.Featured() {
		all = append(all, inputTensor("features", op.Features))
	}
	return all
}

// Entry returns the range of rows of Points and Features that belong to batch entry b, on the host.
// If Points is [B,N,3], the rows are counted within the entry.
func (op *VoxelOp) Entry(b int) (from, to int, err error) {
	rows := op.Points.Shape[len(op.Points.Shape)-2]
	switch {
	case op.Offsets != nil:
		from := op.Offsets.int64At(b)
		to := op.Offsets.int64At(b + 1)
		if from < 0 || to < from || to > int64(rows) {
			return 0, 0, robocache.Misuse(voxelize,
				robocache.Where{"tensor": "offsets", "index": b}, "length mismatch").
				Expected(
					fmt.Sprintf("offsets that do not decrease, in 0 … %d", rows),
					fmt.Sprintf("%d, %d", from, to),
				)
		}
		return int(from), int(to), nil
	case op.Lengths != nil:
		n := op.Lengths.int64At(b)
		if n < 0 || n > int64(rows) {
			return 0, 0, robocache.Misuse(voxelize,
				robocache.Where{"tensor": "lengths", "index": b}, "length mismatch").
				Expected(fmt.Sprintf("0 … %d points", rows), strconv.FormatInt(n, 10))
		}
		return 0, int(n), nil
	}
	return 0, rows, nil
}

// OutsideError returns the error of FailOutside: row i of entry b lies outside the grid, at p.
func (op *VoxelOp) OutsideError(b, i int, p [3]float32) error {
	where := robocache.Where{"tensor": "points", "row": i}
	if len(op.Points.Shape) == 3 || op.Offsets != nil {
		where["entry"] = b
	}
	return robocache.Misuse(voxelize, where, "point outside the grid").
		Expected(fmt.Sprintf("%v + [0, %v) voxels of %v", op.Min, op.Grid, op.Size), fmt.Sprint(p)).
		WithHint(
			"%s leaves such points out, \"clip\" moves them into the nearest cell",
			robocache.Option("outside", "drop"),
		)
}
