// Package elements reorders the bytes of array elements: byte order, shuffled planes, and order of
// dimensions.
package elements

import (
	"encoding/binary"
	"slices"
)

// Swap reverses the bytes of words of n bytes. dst may be src.
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

// Shuffle groups the bytes of elements: first all first bytes, then all second bytes, and so on.
// The remainder behind the last whole element is copied.
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

// Unshuffle reverses Shuffle. HDF5, numcodecs and blosc (per block) use this
// filter.
func Unshuffle(dst, src []byte, size int) {
	if size == 1 {
		copy(dst, src)
		return
	}
	n := len(src) / size
	dst = dst[:len(src)]
	copy(dst[n*size:], src[n*size:])
	made := unshuffleBlocks(dst, src, n, size)
	for b := range size {
		at := made*size + b
		for _, v := range src[b*n+made : (b+1)*n] {
			dst[at] = v
			at += size
		}
	}
}

// Transposed returns an array of the given shape in C order. Dimension i of the shape is at
// position perm[i] in src.
func Transposed(src []byte, shape, perm []int, size int) []byte {
	n := len(shape)
	stride := make([]int, n) // stride in src of each dimension of shape
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

// Reversed returns the permutation of Fortran order, in which the first dimension changes fastest.
func Reversed(n int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = i
	}
	slices.Reverse(out)
	return out
}
