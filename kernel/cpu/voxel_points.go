package cpu

import (
	"encoding/binary"
	"math"
	"unsafe"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/kernel"
)

// pointSource reads points as float32.
type pointSource struct {
	tensorView
	// f32 is the memory of the points as float32 values. It is nil unless the three coordinates of
	// a point are adjacent float32 values.
	f32 []float32
}

// openPoints prepares the source for the points of t.
func (s *pointSource) openPoints(t *kernel.Tensor) {
	if s.tensorView = viewOf(t); s.dtype == robocache.Float32 && s.step == 1 {
		s.f32 = castSlice[float32](t.Data)
	}
}

// castSlice returns memory as numbers of type T, or nil if it is not aligned.
func castSlice[T float32 | float64 | uint32 | int32 | uint64 | uint16](b []byte) []T {
	var zero T
	p := unsafe.Pointer(unsafe.SliceData(b))
	if uintptr(p)%unsafe.Alignof(zero) != 0 {
		return nil
	}
	return unsafe.Slice((*T)(p), len(b)/int(unsafe.Sizeof(zero)))
}

// loadPoints returns n points, starting at a row, as x, y, z, x, y, z …. The result aliases the
// tensor if its memory has this layout. Otherwise it aliases buf.
func (s *pointSource) loadPoints(buf *[3 * blockPoints]float32, entry, row, n int) []float32 {
	at := s.base + entry*s.batch + row*s.row
	if s.f32 != nil {
		if s.row == 3 {
			return s.f32[at : at+3*n]
		}
		for i := range n {
			p := s.f32[at : at+3]
			buf[3*i], buf[3*i+1], buf[3*i+2] = p[0], p[1], p[2]
			at += s.row
		}
		return buf[:3*n]
	}
	for i := range n {
		for c := range 3 {
			buf[3*i+c] = float32(readNumber(s.data, s.dtype, at+c*s.step))
		}
		at += s.row
	}
	return buf[:3*n]
}

// readNumber returns element i of memory.
func readNumber(d []byte, dt robocache.DType, i int) float64 {
	switch dt {
	case robocache.Float64:
		return math.Float64frombits(binary.LittleEndian.Uint64(d[8*i:]))
	case robocache.Float16:
		return float64(kernel.Float16to32(binary.LittleEndian.Uint16(d[2*i:])))
	case robocache.BFloat16:
		return float64(kernel.BFloat16to32(binary.LittleEndian.Uint16(d[2*i:])))
	}
	return float64(math.Float32frombits(binary.LittleEndian.Uint32(d[4*i:])))
}

// lattice is the grid in the layout that the vector kernel needs.
type lattice struct {
	min, size, grid [3]float32 // for each axis
	gy, gz          int32
}

// flattenGo computes the flat index of each point within its entry, or -1 if the point is outside.
// It returns the number of points inside. The grid must have less than 2^31 cells.
func flattenGo(out []int64, p []float32, g *lattice) int {
	inside := 0
	for i := range out {
		x := p[3*i]
		y := p[3*i+1]
		z := p[3*i+2]
		qx, qy, qz := (x-g.min[0])/g.size[0], (y-g.min[1])/g.size[1], (z-g.min[2])/g.size[2]
		f := int32(-1)
		// If a quotient lies in [0, G), its floor lies in 0 … G-1 and equals its truncation.
		if qx >= 0 && qx < g.grid[0] && qy >= 0 && qy < g.grid[1] && qz >= 0 && qz < g.grid[2] {
			f = (int32(qx)*g.gy+int32(qy))*g.gz + int32(qz)
			inside++
		}
		out[i] = int64(f)
	}
	return inside
}

// visitBlocks calls f for each block of the given chunks, with the flat indices of its points. An
// index is counted within the entry; it is -1 for a dropped point. visitBlocks adds to stats and
// stops at the first point that is an error.
func (v *voxelRun) visitBlocks(
	chunks []rowChunk,
	stats *[3]int64,
	f func(c rowChunk, row int, flat []int64),
) error {
	var buf [3 * blockPoints]float32
	var flat [blockPoints]int64
	op := v.op
	g := lattice{min: op.Min, size: op.Size, gy: int32(op.Grid[1]), gz: int32(op.Grid[2])}
	for a, n := range op.Grid {
		g.grid[a] = float32(n)
	}
	small := v.cells < math.MaxInt32
	for _, c := range chunks {
		for row := c.from; row < c.to; row += blockPoints {
			n := min(blockPoints, c.to-row)
			p := v.source.loadPoints(&buf, c.entry, row, n)
			inside := 0
			if small {
				inside = flattenPoints(flat[:n], p, &g)
				stats[kernel.Inside] += int64(inside)
			}
			// If some points are outside, or the grid is large, op.Place decides.
			for i := 0; i < n && inside < n; i++ {
				if small && flat[i] >= 0 {
					continue
				}
				point := [3]float32(p[3*i:])
				cell, place := op.Place(point)
				stats[place]++
				flat[i] = -1
				switch {
				case place == kernel.NotFinite,
					place == kernel.Beyond && op.Outside == kernel.DropOutside:
					continue
				case place == kernel.Beyond && op.Outside == kernel.FailOutside:
					return op.OutsideError(c.entry, row+i, point)
				}
				line := int64(cell[0])*int64(op.Grid[1]) + int64(cell[1])
				flat[i] = line*int64(op.Grid[2]) + int64(cell[2])
			}
			f(c, row, flat[:n])
		}
	}
	return nil
}
