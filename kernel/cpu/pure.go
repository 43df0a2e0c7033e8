package cpu

import (
	"math"
	"unsafe"
)

// moveRows copies rows. Here cols counts bytes.
func moveRows(a *rowArgs) {
	for i, k := range unsafe.Slice(a.left, a.rows) {
		copy(
			unsafe.Slice((*byte)(unsafe.Add(a.dst, i*a.dstStep)), a.cols),
			unsafe.Slice((*byte)(unsafe.Add(a.src, int(k)*a.srcStep)), a.cols),
		)
	}
}

// lerpWide blends rows of float64 and rounds once.
func lerpWide[T float32 | float64](a *rowArgs) {
	left := unsafe.Slice(a.left, a.rows)
	right := unsafe.Slice(a.right, a.rows)
	weight := unsafe.Slice(a.weight, a.rows)
	for i, w := range weight {
		dst := unsafe.Slice((*T)(unsafe.Add(a.dst, i*a.dstStep)), a.cols)
		x := unsafe.Slice((*float64)(unsafe.Add(a.src, int(left[i])*a.srcStep)), a.cols)
		if w == 0 {
			for j, v := range x {
				dst[j] = T(v)
			}
			continue
		}
		y := unsafe.Slice((*float64)(unsafe.Add(a.src, int(right[i])*a.srcStep)), a.cols)
		for j, v := range x {
			dst[j] = T(math.FMA(w, y[j]-v, v))
		}
	}
}

// sortedGo is isSorted in plain Go.
func sortedGo(s []int64) bool {
	for i := 1; i < len(s); i++ {
		if s[i] < s[i-1] {
			return false
		}
	}
	return true
}

// bracketGo is the assembly kernel bracket in plain Go, one row at a time, starting at row n. It
// returns the first row whose interval it cannot find. It adds up and down instead of branching,
// because the processor cannot predict the branches.
func bracketGo(a *searchArgs, n int) int {
	at := func(k int) *[2]int64 {
		return (*[2]int64)(unsafe.Add(
			unsafe.Pointer(a.timestamps),
			8*k,
		))
	}
	targets := unsafe.Slice(a.targets, a.rows)
	left := unsafe.Slice(a.left, a.rows)
	right := unsafe.Slice(a.right, a.rows)
	weight := unsafe.Slice(a.weight, a.rows)
	for ; n < len(targets); n++ {
		t := targets[n]
		// The guess g must be right to within one interval; otherwise the check below fails.
		g := math.FMA(float64(t-a.start), a.rate, a.first)
		k := 1
		if g > 1 {
			k = int(min(g, float64(a.last-2)))
		}
		s := at(k)
		up := 0
		down := 0
		if s[1] <= t {
			up = 1
		}
		if s[0] > t {
			down = 1
		}
		k += up - down
		s = at(k)
		num := t - s[0]
		den := s[1] - s[0]
		if uint64(num) >= uint64(den) || den > a.maxGap { // a negative num is large as uint64
			break
		}
		left[n] = int32(k)
		right[n] = int32(k + 1)
		weight[n] = float64(num) / float64(den)
	}
	return n
}
