package kernel

import (
	"cmp"
	"math"
	"slices"
)

// voxelPoint is a point inside the grid: its flat index, batch entry and row.
type voxelPoint struct {
	flat       int64
	entry, row int
}

// runReference sorts the points by cell with a stable sort, then reduces one cell after the other.
// The dense and the sparse layout differ only in where a cell's result is written.
func (op *VoxelOp) runReference() (err error) {
	points, stats, err := op.collectPoints()
	if err != nil {
		return err
	}
	slices.SortStableFunc(points, func(a, b voxelPoint) int { return cmp.Compare(a.flat, b.flat) })
	if op.Out != nil {
		empty := 0.0
		if op.Mode >= Maximum {
			empty = float64(op.Fill)
		}
		if err := op.Out.Elements(func(o int, _ []int) error {
			op.Out.putNumber(o, empty)
			return nil
		}); err != nil {
			return err
		}
	}
	found := 0
	for len(points) > 0 {
		n := 1
		for n < len(points) && points[n].flat == points[0].flat {
			n++
		}
		if op.Out != nil {
			op.writeDense(points[:n])
		} else if found < op.Coords.Shape[0] {
			op.writeSparse(found, points[:n])
		}
		points = points[n:]
		found++
	}
	if op.Found != nil {
		op.Found.putNumber(op.Found.byteOffset(0), float64(found))
	}
	if op.Stats != nil {
		for i, n := range stats {
			op.Stats.putNumber(op.Stats.byteOffset(i), float64(n))
		}
	}
	return nil
}

// collectPoints finds the cell of every point, in order. It counts the points inside, outside and
// not finite.
func (op *VoxelOp) collectPoints() (points []voxelPoint, stats [3]int, err error) {
	cells := int64(op.Grid[0]) * int64(op.Grid[1]) * int64(op.Grid[2])
	l, err := op.Layout()
	if err != nil {
		return points, stats, err
	}
	for b := range l.Batch { // check all entries before the first point is read
		_, _, err := op.Entry(b)
		if err != nil {
			return points, stats, err
		}
	}
	for b := range l.Batch {
		from, to, _ := op.Entry(b)
		for row := from; row < to; row++ {
			p := op.readPoint(b, row)
			cell, place := op.Place(p)
			stats[place]++
			switch {
			case place == NotFinite, place == Beyond && op.Outside == DropOutside:
				continue
			case place == Beyond && op.Outside == FailOutside:
				return points, stats, op.OutsideError(b, row, p)
			}
			flat := (int64(cell[0])*int64(op.Grid[1])+int64(cell[1]))*int64(op.Grid[2]) +
				int64(cell[2])
			points = append(points, voxelPoint{int64(b)*cells + flat, b, row})
		}
	}
	return points, stats, nil
}

// readPoint returns a row of Points as float32.
func (op *VoxelOp) readPoint(b, row int) (p [3]float32) {
	for a := range p {
		if len(op.Points.Shape) == 3 {
			p[a] = float32(op.Points.float64At(op.Points.byteOffset(b, row, a)))
		} else {
			p[a] = float32(op.Points.float64At(op.Points.byteOffset(row, a)))
		}
	}
	return p
}

// Place states where a point lies. Its value is the index in Stats.
type Place uint8

const (
	Inside    Place = iota // in a cell of the grid
	Beyond                 // outside the grid
	NotFinite              // a coordinate is NaN or infinite
)

// Place returns the cell of a point. For a point outside the grid it returns the nearest cell.
func (op *VoxelOp) Place(p [3]float32) (cell [3]int, place Place) {
	for a, x := range p {
		if x-x != 0 { // NaN or infinite
			return cell, NotFinite
		}
		g := float32(op.Grid[a])
		d := x - op.Min[a]
		f := float32(math.Floor(float64(d / op.Size[a])))
		switch {
		case f >= g:
			place = Beyond
			cell[a] = op.Grid[a] - 1
		case f >= 0:
			cell[a] = int(f)
		default:
			place = Beyond
		}
	}
	return cell, place
}

// writeDense writes one cell of the dense layout. points are the points of the cell.
func (op *VoxelOp) writeDense(points []voxelPoint) {
	out := op.Out
	flat := points[0].flat
	if op.Bits {
		out.Data[out.byteOffset(int(flat/8))] |= 1 << (flat % 8)
		return
	}
	b, x, y, z := op.unflatten(flat)
	index := []int{b, x, y, z}
	if len(op.Points.Shape) == 2 && op.Offsets == nil {
		index = index[1:]
	}
	switch op.Mode {
	case Occupancy:
		out.putNumber(out.byteOffset(index...), 1)
	case Count:
		out.putNumber(out.byteOffset(index...), float64(len(points)))
	default:
		index = append(index, 0)
		for c := range out.Shape[len(out.Shape)-1] {
			index[len(index)-1] = c
			out.putNumber(out.byteOffset(index...), op.reduceChannel(points, c))
		}
	}
}

// writeSparse writes row i of the sparse layout: one cell, with the given points.
func (op *VoxelOp) writeSparse(i int, points []voxelPoint) {
	b, x, y, z := op.unflatten(points[0].flat)
	for j, v := range [4]int{b, x, y, z} {
		op.Coords.putNumber(op.Coords.byteOffset(i, j), float64(v))
	}
	if op.Counts != nil {
		op.Counts.putNumber(op.Counts.byteOffset(i), float64(len(points)))
	}
	if op.Rows == nil {
		return
	}
	for c := range op.Rows.Shape[1] {
		op.Rows.putNumber(op.Rows.byteOffset(i, c), op.reduceChannel(points, c))
	}
}

// unflatten returns the batch entry and the cell of a flat index.
func (op *VoxelOp) unflatten(flat int64) (b, x, y, z int) {
	f := int(flat)
	z = f % op.Grid[2]
	f = f / op.Grid[2]
	y = f % op.Grid[1]
	f = f / op.Grid[1]
	x = f % op.Grid[0]
	b = f / op.Grid[0]
	return b, x, y, z
}

// reduceChannel computes channel c of a cell from its points, which are in order. The result is
// rounded when it is stored.
func (op *VoxelOp) reduceChannel(points []voxelPoint, c int) float64 {
	at := func(p voxelPoint) float64 {
		if len(op.Features.Shape) == 3 {
			return op.Features.float64At(op.Features.byteOffset(p.entry, p.row, c))
		}
		return op.Features.float64At(op.Features.byteOffset(p.row, c))
	}
	switch op.Mode {
	case FirstPoint:
		return at(points[0])
	case Maximum, Minimum:
		key := Order(float32(math.Inf(-1)))
		if op.Mode == Minimum {
			key = Order(float32(math.Inf(1)))
		}
		for _, p := range points {
			x := float32(at(p))
			if x != x {
				continue
			}
			if op.Mode == Maximum {
				key = max(key, Order(x))
			} else {
				key = min(key, Order(x))
			}
		}
		return float64(Unorder(key))
	}
	sum := 0.0
	for _, p := range points {
		sum += at(p)
	}
	if op.Mode == Average {
		sum /= float64(len(points))
	}
	return sum
}

// Order returns an integer that sorts as the float x does, with -0 < +0. It flips all bits of a
// negative number, and the sign bit of a positive one. x must not be NaN.
func Order(x float32) uint32 {
	b := math.Float32bits(x)
	return b ^ (uint32(int32(b)>>31) | 1<<31)
}

// Unorder is the inverse of Order.
func Unorder(key uint32) float32 {
	return math.Float32frombits(key ^ (uint32(int32(^key)>>31) | 1<<31))
}
