package cpu

import (
	"math"
	"unsafe"

	"github.com/goatnote-inc/robocache/kernel"
)

// sumArgs is what the kernels of sums take. gen/voxel.go knows the layout.
type sumArgs struct {
	acc     *float64 // blocks+1 times 4 numbers a cell
	count   *uint32
	keys    *uint64
	n       int // accumulate: keys; settle: cells
	rows    *float32
	mask    uint64
	rowBits int
	first   int // the flat index of the first cell
	step    int // bytes from row to row
	blocks  int // of 4 channels, the last left out
	out     *float32
	outStep int
	limit   int      // of a count as a divisor: 1 for sums
	tail    [4]int32 // -1 where the last block has a channel
}

// sums adds the rows of a bucket's points where its cells' sums lie in the cache: in float64, in the order of the points, without sorting them.
// It is for buckets of few cells.
type sums struct {
	usable bool
	args   sumArgs
	f32    []float32 // the features' memory, and where row 0 begins
	base   int
	acc    []float64
	count  []uint32
	width  int // F
	padded int // a multiple of 4
}

const (
	sumBytes = 256 << 10 // the most that a bucket's sums may take
	sumWidth = 64        // the widest row
	// farBytes is the least result that the caches cannot hold anyway: it is written past them, which else would read each line first.
	farBytes = 4 << 20
)

func sumsOf(r *reducer) (s sums) {
	if !fast || r.f32 == nil || r.rows != 0 || r.width == 0 || r.width > sumWidth || r.mode != kernel.Sum && r.mode != kernel.Average {
		return s
	}
	s.usable, s.width, s.padded = true, r.width, (r.width+3)&^3
	s.f32, s.base = r.f32, r.base
	s.args = sumArgs{mask: r.mask, rowBits: r.rowBits, step: 4 * r.row, blocks: s.padded/4 - 1, outStep: 4 * s.width, limit: 1}
	for i := range s.args.tail {
		if s.padded-4+i < s.width {
			s.args.tail[i] = -1
		}
	}
	if r.mode == kernel.Average {
		s.args.limit = math.MaxInt32
	}
	return s
}

// fits says whether so many cells can be summed here.
func (s *sums) fits(cells int64) bool { return s.usable && cells*int64(s.padded)*8 <= sumBytes }

// cells makes the rows of the cells from first on. far: past the caches.
func (s *sums) cells(out []float32, keys []uint64, first int64, far bool) {
	cells := len(out) / s.width
	if len(keys) == 0 {
		clear(out)
		return
	}
	if len(s.count) < cells { // else they are left 0
		s.acc, s.count = make([]float64, cells*s.padded), make([]uint32, cells)
	}
	a := &s.args
	a.acc, a.count, a.keys, a.n, a.first, a.rows = &s.acc[0], &s.count[0], &keys[0], len(keys), int(first), &s.f32[s.base]
	accumulate(a)
	// A padded row is stored over the cells after it, which come later. The last ones, whose stores would end behind our memory, are left to Go,
	// with what is no multiple of 4.
	whole := cells &^ 3
	for whole > 0 && (whole-1)*s.width+s.padded > len(out) {
		whole -= 4
	}
	if whole > 0 {
		a.n, a.out = whole, &out[0]
		if far && s.padded == s.width && uintptr(unsafe.Pointer(a.out))%16 == 0 {
			settleFar(a)
		} else {
			settle(a)
		}
	}
	for c := whole; c < cells; c++ {
		by := float64(min(max(s.count[c], 1), uint32(a.limit)))
		for j := range s.width {
			out[c*s.width+j] = float32(s.acc[c*s.padded+j] / by)
		}
		clear(s.acc[c*s.padded : (c+1)*s.padded])
		s.count[c] = 0
	}
}

// runs makes rows of cells whose keys lie side by side: cell i has keys starts[i] … starts[i+1]-1.
func (s *sums) runs(out []float32, keys []uint64, starts []uint32) {
	a := &s.args
	a.count, a.keys, a.n, a.rows, a.out = &starts[0], &keys[0], len(starts)-1, &s.f32[s.base], &out[0]
	sumRuns(a)
}
