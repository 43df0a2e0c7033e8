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

// reference sorts the points by cell, stably, and reduces one cell after the other: the dense and
// the sparse layout differ only in where the result of a cell goes.
func (op *VoxelOp) reference() (err error) {
	points, stats, err := op.collect()
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
			op.Out.put(o, empty)
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
			op.dense(points[:n])
		} else if found < op.Coords.Shape[0] {
			op.sparse(found, points[:n])
		}
		points = points[n:]
		found++
	}
	if op.Found != nil {
		op.Found.put(op.Found.at(0), float64(found))
	}
	if op.Stats != nil {
		for i, n := range stats {
			op.Stats.put(op.Stats.at(i), float64(n))
		}
	}
	return nil
}

// collect finds the cell of every point, in order, and counts those inside, outside and not finite.
func (op *VoxelOp) collect() (points []voxelPoint, stats [3]int, err error) {
	cells := int64(op.Grid[0]) * int64(op.Grid[1]) * int64(op.Grid[2])
	l, err := op.Layout()
	if err != nil {
		return points, stats, err
	}
	for b := range l.Batch { // all are proved before the first is read
		_, _, err := op.Entry(b)
		if err != nil {
			return points, stats, err
		}
	}
	for b := range l.Batch {
		from, to, _ := op.Entry(b)
		for row := from; row < to; row++ {
			p := op.point(b, row)
			cell, place := op.Place(p)
			stats[place]++
			switch {
			case place == NotFinite, place == Beyond && op.Outside == DropOutside:
				continue
			case place == Beyond && op.Outside == FailOutside:
				return points, stats, op.OutsideError(b, row, p)
			}
			points = append(
				points,
				voxelPoint{
					int64(
						b,
					)*cells + (int64(cell[0])*int64(op.Grid[1])+int64(cell[1]))*int64(
						op.Grid[2],
					) + int64(
						cell[2],
					),
					b,
					row,
				},
			)
		}
	}
	return points, stats, nil
}

// point reads a row of Points as float32.
func (op *VoxelOp) point(b, row int) (p [3]float32) {
	for a := range p {
		if len(op.Points.Shape) == 3 {
			p[a] = float32(op.Points.float64At(op.Points.at(b, row, a)))
		} else {
			p[a] = float32(op.Points.float64At(op.Points.at(row, a)))
		}
	}
	return p
}

// Place says where a point lies; it is the point's index in Stats.
type Place uint8

const (
	Inside Place = iota
	Beyond
	NotFinite
)

// Place finds the cell of a point. Of a point beyond the grid it is the nearest one.
func (op *VoxelOp) Place(p [3]float32) (cell [3]int, place Place) {
	for a, x := range p {
		if x-x != 0 {
			return cell, NotFinite
		}
		g := float32(op.Grid[a])
		d := x - op.Min[a]
		f := float32(math.Floor(float64(d / op.Size[a])))
		switch {
		case f >= g:
			place, cell[a] = Beyond, op.Grid[a]-1
		case f >= 0:
			cell[a] = int(f)
		default:
			place = Beyond
		}
	}
	return cell, place
}

// dense writes one cell of the dense layout.
func (op *VoxelOp) dense(points []voxelPoint) {
	out, flat := op.Out, points[0].flat
	if op.Bits {
		out.Data[out.at(int(flat/8))] |= 1 << (flat % 8)
		return
	}
	b, x, y, z := op.unflatten(flat)
	index := []int{b, x, y, z}
	if len(op.Points.Shape) == 2 && op.Offsets == nil {
		index = index[1:]
	}
	switch op.Mode {
	case Occupancy:
		out.put(out.at(index...), 1)
	case Count:
		out.put(out.at(index...), float64(len(points)))
	default:
		index = append(index, 0)
		for c := range out.Shape[len(out.Shape)-1] {
			index[len(index)-1] = c
			out.put(out.at(index...), op.reduce(points, c))
		}
	}
}

// sparse writes one row of the sparse layout.
func (op *VoxelOp) sparse(i int, points []voxelPoint) {
	b, x, y, z := op.unflatten(points[0].flat)
	for j, v := range [4]int{b, x, y, z} {
		op.Coords.put(op.Coords.at(i, j), float64(v))
	}
	if op.Counts != nil {
		op.Counts.put(op.Counts.at(i), float64(len(points)))
	}
	if op.Rows == nil {
		return
	}
	for c := range op.Rows.Shape[1] {
		op.Rows.put(op.Rows.at(i, c), op.reduce(points, c))
	}
}

func (op *VoxelOp) unflatten(flat int64) (b, x, y, z int) {
	f := int(flat)
	z, f = f%op.Grid[2], f/op.Grid[2]
	y, f = f%op.Grid[1], f/op.Grid[1]
	x, b = f%op.Grid[0], f/op.Grid[0]
	return b, x, y, z
}

// reduce makes channel c of a cell from its points, which are in order; the result is rounded where
// it is stored.
func (op *VoxelOp) reduce(points []voxelPoint, c int) float64 {
	at := func(p voxelPoint) float64 {
		if len(op.Features.Shape) == 3 {
			return op.Features.float64At(op.Features.at(p.entry, p.row, c))
		}
		return op.Features.float64At(op.Features.at(p.row, c))
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

// Order turns the bits of a float that is no NaN into an integer that sorts as the float does, with
// -0 < +0.
func Order(x float32) uint32 {
	b := math.Float32bits(x)
	return b ^ (uint32(int32(b)>>31) | 1<<31)
}

// Unorder is the inverse of Order.
func Unorder(key uint32) float32 {
	return math.Float32frombits(key ^ (uint32(int32(^key)>>31) | 1<<31))
}
