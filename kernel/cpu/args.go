package cpu

import "unsafe"

// rowArgs is what a kernel over rows takes. gen/lerp.go knows the layout.
//
// Row i of the result is made of rows left[i] and right[i] of the source, at weight[i]; where the
// weight is 0 in the type of computing, of the left row alone. Columns lie side by side; rows have
// any distance.
type rowArgs struct {
	dst, src         unsafe.Pointer
	dstStep, srcStep int // bytes from row to row
	left, right      *int32
	weight           *float64
	rows, cols       int
	a, b             *float32 // a normalisation's two numbers for each column
	scale, off       float32  // ((x-a)·scale)/b - off
	lo, hi           float32  // the ends that it is clipped to
	// out: the greatest magnitude that a 16-bit result had, in eight lanes
	limits [8]uint16
	// streaming: how many rows before their turn sources are asked for; 0 = left to the processor
	ahead int
	valid *uint8 // slerp: 0 is written for rows that are not valid
}

// peak is the greatest of the limits.
func (a *rowArgs) peak() uint16 {
	m := a.limits[0]
	for _, v := range a.limits[1:] {
		m = max(m, v)
	}
	return m
}

// searchArgs is what bracket takes. gen/plan.go knows the layout.
type searchArgs struct {
	timestamps  *int64
	last        int // index of the last timestamp; at least 3
	targets     *int64
	rows        int
	left, right *int32
	weight      *float64
	maxGap      int64   // at most maxSpan
	start       int64   // a timestamp that guesses begin at
	first       float64 // its index
	rate        float64 // samples a nanosecond
}

// form is a choice among the kernels of one pair of types.
type form int

const (
	plain form = iota
	norm
	unitNorm
	forms
)
