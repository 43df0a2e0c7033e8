package cuda

import (
	"math"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/kernel"
)

// voxelParams mirrors Voxel of src/voxel.cuh, which documents the fields.
type voxelParams struct {
	points, features, index                                                          uintptr
	out, coords, rows, counts, found, stats, scratch                                 uintptr
	words, table, places, state, arena                                               int64
	pointEntry, pointRow, pointAxis                                                  int64
	featureEntry, featureRow, featureColumn                                          int64
	indexStep                                                                        int64
	outEntry, outX, outY, outZ, outColumn                                            int64
	coordsRow, coordsColumn, rowsRow, rowsColumn, countsStep, statsStep              int64
	capacity, rowsIn, cells, batch                                                   int64
	lo, size                                                                         [3]float32
	fill                                                                             float32
	inverse                                                                          [3]float32
	sure                                                                             float32
	grid                                                                             [3]uint32
	columns, tiles, entryTiles, tile, buckets, shift, pitch                          uint32
	rowBytes, axisBytes                                                              int32
	featureBytes, room                                                               uint32
	pointType, featureType, outType, mode, outside, entries, bit, flat, sparse, wide uint8
	list, huge, log, quick                                                           uint8
	_                                                                                [2]uint8
}

// Entries of src/voxel.cuh.
const (
	equalEntries = iota
	lengthEntries
	offsetEntries
)

// Bytes per point in shared memory or in the arena, for the kinds of src/voxel_rows.cu.
const (
	voxelOrdered = 4
	voxelListed  = 24
)

// voxelHead is the size of Head of src/voxel.cuh in bytes, rounded up.
const voxelHead = 64

// flag returns 1 for true, as a uint8 field of a kernel's parameters.
func flag(b bool) uint8 {
	if b {
		return 1
	}
	return 0
}

// setLayout sets all fields that depend on the operation's tensors.
func (p *voxelParams) setLayout(op *kernel.VoxelOp, l *kernel.VoxelLayout) {
	*p = voxelParams{
		lo:        op.Min,
		size:      op.Size,
		cells:     l.Cells,
		batch:     int64(l.Batch),
		rowsIn:    int64(l.Rows),
		columns:   uint32(l.Features),
		pointType: uint8(op.Points.DType),
		mode:      uint8(op.Mode),
		outside:   uint8(op.Outside),
		bit:       flag(op.Bits),
		sparse:    flag(op.Coords != nil),
	}
	for a, g := range op.Grid {
		p.grid[a] = uint32(g)
	}
	if op.Mode >= kernel.Maximum {
		p.fill = op.Fill
	}
	step := func(t *kernel.Tensor, axis int) int64 { return int64(t.Step(axis)) }
	at := len(op.Points.Shape) - 2
	p.pointRow = step(&op.Points, at)
	p.pointAxis = step(&op.Points, at+1)
	if at == 1 {
		p.pointEntry = step(&op.Points, 0)
	}
	if op.Mode.Featured() {
		f := op.Features
		p.featureType = uint8(f.DType)
		p.featureRow = step(f, at)
		p.featureColumn = step(f, at+1)
		if at == 1 {
			p.featureEntry = step(f, 0)
		}
	}
	switch {
	case op.Lengths != nil:
		p.entries = lengthEntries
		p.indexStep = step(op.Lengths, 0)
	case op.Offsets != nil:
		p.entries = offsetEntries
		p.indexStep = step(op.Offsets, 0)
	}
	if op.Stats != nil {
		p.statsStep = step(op.Stats, 0)
	}
	if op.Coords != nil {
		p.setSparse(op)
	} else {
		p.setDense(op, l)
	}
	p.setQuick(op, l)
	p.setColumns(op)
}

// setColumns sets how the columns of features are read. Before the call, p.wide states whether the
// layout of the result allows four columns at once. Afterwards, it states whether that of the
// features allows it too: their columns are adjacent, and every row starts at a multiple of four.
func (p *voxelParams) setColumns(op *kernel.VoxelOp) {
	bytes := p.featureRow * int64(op.Points.DType.Size())
	if op.Mode.Featured() {
		bytes = p.featureRow * int64(op.Features.DType.Size())
	}
	isAdjacent := p.featureColumn == 1 && p.columns > 0
	isFour := (p.featureEntry|p.featureRow|int64(p.columns))%4 == 0
	isFloat64 := p.featureType == uint8(robocache.Float64)
	fits := bytes >= 0 && bytes <= math.MaxUint32
	p.featureBytes = uint32(bytes)
	p.wide = flag(p.wide != 0 && isAdjacent && isFour && !isFloat64 && fits)
}

// setQuick sets the fields of quick_cell of src/voxel.cuh. They depend on its error bound.
func (p *voxelParams) setQuick(op *kernel.VoxelOp, l *kernel.VoxelLayout) {
	row, axis := p.pointRow*4, p.pointAxis*4
	ok := op.Points.DType == robocache.Float32 && int64(int32(row)) == row &&
		int64(int32(axis)) == axis && l.Cells < math.MaxUint32
	most := 0
	for a, s := range op.Size {
		most = max(most, op.Grid[a])
		p.inverse[a] = float32(1 / float64(s))
		ok = ok && s > 0x1p-60 && s < 0x1p60
	}
	p.quick = flag(ok && most <= 1<<20)
	p.sure = float32(0.5 - float64(most+1)*0x1p-22)
	p.rowBytes, p.axisBytes = int32(row), int32(axis)
}

// setSparse sets the strides of the sparse results.
func (p *voxelParams) setSparse(op *kernel.VoxelOp) {
	p.capacity = int64(op.Coords.Shape[0])
	p.coordsRow, p.coordsColumn = int64(op.Coords.Step(0)), int64(op.Coords.Step(1))
	p.outType = uint8(robocache.Float32)
	if op.Rows != nil {
		p.rowsRow, p.rowsColumn = int64(op.Rows.Step(0)), int64(op.Rows.Step(1))
		p.wide = flag(p.rowsColumn == 1 && p.rowsRow%4 == 0)
	}
	if op.Counts != nil {
		p.countsStep = int64(op.Counts.Step(0))
	}
}

// setDense sets the strides of the dense result, and whether kernels may address it by a flat index
// (flat) or write four numbers at once (wide).
func (p *voxelParams) setDense(op *kernel.VoxelOp, l *kernel.VoxelLayout) {
	o := op.Out
	p.outType = uint8(o.DType)
	if op.Bits {
		p.outZ = int64(o.Step(0))
		p.flat = flag(o.Step(0) == 1)
		return
	}
	first := 0 // axis of x
	if l.Batched {
		p.outEntry = int64(o.Step(0))
		first = 1
	}
	p.outX = int64(o.Step(first))
	p.outY = int64(o.Step(first + 1))
	p.outZ = int64(o.Step(first + 2))
	p.outColumn = 1
	pitch := int64(1)
	if op.Mode.Featured() {
		p.outColumn = int64(o.Step(first + 3))
		pitch = int64(p.columns)
	}
	// If neighboring cells are a fixed distance apart, in C order, an index is enough. The stride
	// of an axis with one element is ignored.
	hasStride := func(axis int, step, want int64) bool { return op.Grid[axis] == 1 || step == want }
	run := p.outZ // distance of neighboring cells
	if op.Grid[2] == 1 {
		run = p.outY
		if op.Grid[1] == 1 {
			run = p.outX
		}
	}
	z, y := int64(op.Grid[2]), int64(op.Grid[1])
	regular := hasStride(1, p.outY, run*z) && hasStride(0, p.outX, run*z*y)
	p.wide = flag(regular && p.outColumn == 1 && (run|p.outEntry)%4 == 0)
	p.flat = flag(regular && run == pitch && (pitch == 1 || p.outColumn == 1))
	if regular {
		p.outZ = run // if an axis has one element, its stride is undefined
	}
}
