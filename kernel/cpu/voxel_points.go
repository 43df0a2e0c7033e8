package cpu

import (
	"encoding/binary"
	"math"
	"unsafe"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/kernel"
)

// source reads points, in float32.
type source struct {
	view
	f32 []float32 // the same memory, where a point is three neighbours of this type
}

func (s *source) open(t *kernel.Tensor) {
	if s.view = viewOf(t); s.dtype == robocache.Float32 && s.step == 1 {
		s.f32 = elements[float32](t.Data)
	}
}

// elements is memory as numbers of a type; nil where it is not aligned to them.
func elements[T float32 | float64 | uint32 | int32 | uint64 | uint16](b []byte) []T {
	var zero T
	p := unsafe.Pointer(unsafe.SliceData(b))
	if uintptr(p)%unsafe.Alignof(zero) != 0 {
		return nil
	}
	return unsafe.Slice((*T)(p), len(b)/int(unsafe.Sizeof(zero)))
}

// load gives n points from a row on as x, y, z, x, y, z …: of the memory itself where it lies so,
// else in buf.
func (s *source) load(buf *[3 * block]float32, entry, row, n int) []float32 {
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
			buf[3*i+c] = float32(number(s.data, s.dtype, at+c*s.step))
		}
		at += s.row
	}
	return buf[:3*n]
}

// number reads element i of memory.
func number(d []byte, dt robocache.DType, i int) float64 {
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

// lattice is the grid as the vector kernel takes it.
type lattice struct {
	min, size, grid [3]float32 // per axis
	gy, gz          int32
}

// flattenGo finds the flat index of each point inside, within its entry; -1 for all others. It
// returns how many are inside. The grid has less than 2^31 cells.
func flattenGo(out []int64, p []float32, g *lattice) int {
	inside := 0
	for i := range out {
		x, y, z := p[3*i], p[3*i+1], p[3*i+2]
		qx, qy, qz := (x-g.min[0])/g.size[0], (y-g.min[1])/g.size[1], (z-g.min[2])/g.size[2]
		f := int32(-1)
		// A quotient's floor lies in 0 … G-1 where the quotient itself lies in [0, G), and
		// truncation is the floor there.
		if qx >= 0 && qx < g.grid[0] && qy >= 0 && qy < g.grid[1] && qz >= 0 && qz < g.grid[2] {
			f = (int32(qx)*g.gy+int32(qy))*g.gz + int32(qz)
			inside++
		}
		out[i] = int64(f)
	}
	return inside
}

// visit calls f with the flat indices of one block after the other of the thread's points: within
// their entry, -1 for points that are dropped. It counts, and stops at the first point that is an
// error.
func (v *voxels) visit(
	chunks []chunk,
	stats *[3]int64,
	f func(c chunk, row int, flat []int64),
) error {
	var buf [3 * block]float32
	var flat [block]int64
	op := v.op
	g := lattice{min: op.Min, size: op.Size, gy: int32(op.Grid[1]), gz: int32(op.Grid[2])}
	for a, n := range op.Grid {
		g.grid[a] = float32(n)
	}
	small := v.cells < math.MaxInt32
	for _, c := range chunks {
		for row := c.from; row < c.to; row += block {
			n := min(block, c.to-row)
			p := v.source.load(&buf, c.entry, row, n)
			inside := 0
			if small {
				inside = flatten(flat[:n], p, &g)
				stats[kernel.Inside] += int64(inside)
			}
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
				flat[i] = (int64(cell[0])*int64(op.Grid[1])+int64(cell[1]))*int64(
					op.Grid[2],
				) + int64(
					cell[2],
				)
			}
			f(c, row, flat[:n])
		}
	}
	return nil
}
