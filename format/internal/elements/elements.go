// Package elements moves the bytes of arrays' elements: byte orders, shuffled planes, orders of dimensions.
package elements

import (
	"encoding/binary"
	"slices"
)

// Swap turns the byte order of words of n bytes. dst may be src.
func Swap(dst, src []byte, n int) {
	be, le := binary.BigEndian, binary.LittleEndian
	switch n {
	case 2:
		for i := 0; i+2 <= len(src); i += 2 {
			le.PutUint16(dst[i:], be.Uint16(src[i:]))
		}
	case 4:
		for i := 0; i+4 <= len(src); i += 4 {
			le.PutUint32(dst[i:], be.Uint32(src[i:]))
		}
	case 8:
		for i := 0; i+8 <= len(src); i += 8 {
			le.PutUint64(dst[i:], be.Uint64(src[i:]))
		}
	default:
		copy(dst, src)
	}
}

// Shuffle puts the bytes of elements apart: all first bytes, then all second ones. What is left over behind the last whole element is copied.
func Shuffle(dst, src []byte, size int) {
	n := len(src) / size
	for b := range size {
		plane := dst[b*n:][:n]
		for i := range plane {
			plane[i] = src[i*size+b]
		}
	}
	copy(dst[n*size:], src[n*size:])
}

// Unshuffle puts them together again. It is HDF5's and numcodecs' filter, and blosc's of a block.
func Unshuffle(dst, src []byte, size int) {
	n := len(src) / size
	copy(dst[n*size:], src[n*size:])
	if n == 0 {
		return
	}
	plane := func(b int) []byte { return src[b*n:][:n:n] }
	dst = dst[:n*size]
	le := binary.LittleEndian
	switch size {
	case 1:
		copy(dst, src)
	case 2:
		p0, p1 := plane(0), plane(1)
		for i := range n {
			le.PutUint16(dst[2*i:], uint16(p0[i])|uint16(p1[i])<<8)
		}
	case 4:
		p0, p1, p2, p3 := plane(0), plane(1), plane(2), plane(3)
		for i := range n {
			le.PutUint32(dst[4*i:], uint32(p0[i])|uint32(p1[i])<<8|uint32(p2[i])<<16|uint32(p3[i])<<24)
		}
	case 8:
		at := 0
		for ; at+8 <= n; at += 8 { // eight by eight bytes, with rows as columns: halves change places, then quarters, then bytes
			word := func(b int) uint64 { return le.Uint64(src[b*n+at:]) }
			const halves, quarters, bytes = 0x00000000ffffffff, 0x0000ffff0000ffff, 0x00ff00ff00ff00ff
			a0, a4 := crossed(word(0), word(4), 32, halves)
			a1, a5 := crossed(word(1), word(5), 32, halves)
			a2, a6 := crossed(word(2), word(6), 32, halves)
			a3, a7 := crossed(word(3), word(7), 32, halves)
			a0, a2 = crossed(a0, a2, 16, quarters)
			a1, a3 = crossed(a1, a3, 16, quarters)
			a4, a6 = crossed(a4, a6, 16, quarters)
			a5, a7 = crossed(a5, a7, 16, quarters)
			to := (*[64]byte)(dst[8*at:])
			put := func(i int, a, b uint64) {
				a, b = crossed(a, b, 8, bytes)
				le.PutUint64(to[8*i:], a)
				le.PutUint64(to[8*i+8:], b)
			}
			put(0, a0, a1)
			put(2, a2, a3)
			put(4, a4, a5)
			put(6, a6, a7)
		}
		for i := at; i < n; i++ {
			for b := range 8 {
				dst[8*i+b] = src[b*n+i]
			}
		}
	default:
		for b := range size {
			at := b
			for _, v := range plane(b) {
				dst[at] = v
				at += size
			}
		}
	}
}

// crossed changes places: what lies at mask in b, and what lies shift bits above it in a.
func crossed(a, b uint64, shift int, mask uint64) (uint64, uint64) {
	t := (a>>shift ^ b) & mask
	return a ^ t<<shift, b ^ t
}

// Transposed gives C order of an array of shape whose dimension i lies in src at the position of i in the permutation perm.
func Transposed(src []byte, shape, perm []int, size int) []byte {
	n := len(shape)
	stride := make([]int, n) // in src, of each dimension of shape
	step := size
	for i := n - 1; i >= 0; i-- {
		stride[perm[i]] = step
		step *= shape[perm[i]]
	}
	dst := make([]byte, len(src))
	index := make([]int, n)
	inner, by := shape[n-1], stride[n-1]
	for at, from := 0, 0; at < len(dst); {
		for k, f := 0, from; k < inner; k, f = k+1, f+by {
			copy(dst[at:at+size], src[f:f+size])
			at += size
		}
		for d := n - 2; d >= 0; d-- {
			if index[d]++; index[d] < shape[d] {
				from += stride[d]
				break
			}
			from -= stride[d] * (shape[d] - 1)
			index[d] = 0
		}
	}
	return dst
}

// Reversed is the permutation that Fortran order is: the first dimension fastest.
func Reversed(n int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = i
	}
	slices.Reverse(out)
	return out
}
