package cpu

import "unsafe"

// rowArgs holds the arguments of a kernel that computes rows. gen/lerp.go has the offsets of the
// fields.
//
// Row i of the result is computed from rows left[i] and right[i] of the source, at weight[i]. If
// the weight is 0 in the computing type, only the left row is used. Columns must be adjacent; rows
// may have any distance.
type rowArgs struct {
	dst, src         unsafe.Pointer
	dstStep, srcStep int // bytes between rows
	left, right      *int32
	weight           *float64
	rows, cols       int
	a, b             *float32 // the two numbers of a normalization for each column
	scale, off       float32  // ((x-a)·scale)/b - off
	lo, hi           float32  // bounds of the clip
	// output: the largest magnitude of the 16-bit results, in eight lanes
	limits [8]uint16
	// streaming: number of rows between a prefetch and its use; 0 = only the processor prefetches
	ahead int
	valid *uint8 // slerp: 0 is written for rows that are invalid
}

// maxLimit returns the largest of the limits.
func (a *rowArgs) maxLimit() uint16 {
	m := a.limits[0]
	for _, v := range a.limits[1:] {
		m = max(m, v)
	}
	return m
}

// searchArgs holds the arguments of findIntervals and of the assembly kernel bracket. gen/plan.go
// has the offsets of the fields.
type searchArgs struct {
	timestamps  *int64
	last        int // index of the last timestamp; at least 3
	targets     *int64
	rows        int
	left, right *int32
	weight      *float64
	maxGap      int64   // at most maxSpan
	start       int64   // the timestamp from which guesses are computed
	first       float64 // index of start
	rate        float64 // samples per nanosecond
}

// kernelForm selects among the kernels for one pair of types.
type kernelForm int

const (
	plain kernelForm = iota
	norm
	unitNorm
	forms
)
