package h5

import (
	"fmt"
	"math"
)

// space is the extent of a data set or attribute.
type space struct {
	null  bool
	shape []int64
	max   []int64 // -1: unlimited; the same as shape where nothing is said
}

// elements is the number of elements, false where it does not fit.
func (s *space) elements() (int64, bool) {
	if s.null {
		return 0, true
	}
	return product(s.shape)
}

func product(dims []int64) (int64, bool) {
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

func (f *File) space(addr uint64, b []byte) *space {
	c := f.cursor(addr, "the dataspace", b)
	version, rank, flags := c.u8(), int(c.u8()), c.u8()
	s := &space{}
	switch version {
	case 1:
		c.skip(5)
	case 2:
		s.null = c.u8() == 2
	default:
		f.unsupported(addr, fmt.Sprintf("dataspace version %d", version), "")
	}
	if rank > maxRank {
		f.bad(addr, "%d dimensions", rank)
	}
	read := func() []int64 {
		out := make([]int64, rank)
		for i := range out {
			v := c.length()
			switch {
			case f.lsz < 8 && v == 1<<(8*f.lsz)-1 || v == math.MaxUint64:
				out[i] = -1
			case v > math.MaxInt64:
				f.bad(addr, "a dimension of %d", v)
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
			f.bad(addr, "dimension %d is %d, at most %d allowed", i, n, s.max[i])
		}
	}
	return s
}
