package h5

import (
	"fmt"
	"math"
)

// space is the extent of a data set or attribute.
type space struct {
	null  bool
	shape []int64
	max   []int64 // -1 means unlimited; the same as shape if the file has no maximum
}

// elementCount returns the number of elements. It returns false if the number does not fit into an
// int64.
func (s *space) elementCount() (int64, bool) {
	if s.null {
		return 0, true
	}
	return dimProduct(s.shape)
}

func dimProduct(dims []int64) (int64, bool) {
	n := int64(1)
	for _, d := range dims {
		if d == 0 {
			return 0, true
		}
	}
	for _, d := range dims {
		if d < 0 || n > math.MaxInt64/d {
			return 0, false
		}
		n *= d
	}
	return n, true
}

const maxRank = 32

func (f *File) parseSpace(addr uint64, b []byte) *space {
	c := f.newCursor(addr, "the dataspace", b)
	version, rank, flags := c.u8(), int(c.u8()), c.u8()
	s := &space{}
	switch version {
	case 1:
		c.skip(5)
	case 2:
		s.null = c.u8() == 2
	default:
		f.failUnsupported(addr, fmt.Sprintf("dataspace version %d", version), "")
	}
	if rank > maxRank {
		f.failMalformed(addr, "%d dimensions", rank)
	}
	read := func() []int64 {
		out := make([]int64, rank)
		for i := range out {
			v := c.readLength()
			switch {
			case f.lsz < 8 && v == 1<<(8*f.lsz)-1 || v == math.MaxUint64:
				out[i] = -1
			case v > math.MaxInt64:
				f.failMalformed(addr, "a dimension of %d", v)
			default:
				out[i] = int64(v)
			}
		}
		return out
	}
	s.shape = read()
	if s.max = s.shape; flags&1 != 0 {
		s.max = read()
	}
	for i, n := range s.shape {
		if n < 0 || s.max[i] >= 0 && s.max[i] < n {
			f.failMalformed(addr, "dimension %d is %d, at most %d allowed", i, n, s.max[i])
		}
	}
	return s
}
