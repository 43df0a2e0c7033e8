package blosc

import (
	"encoding/binary"

	"github.com/goatnote-inc/robocache/format/internal/elements"
)

// unshuffleBits undoes bitshuffle over a whole block. As c-blosc does, a block whose elements are no multiple of eight is plain. planes is
// room of the size of src, for elements of more than a byte.
func unshuffleBits(dst, src, planes []byte, size int) {
	n := len(src) / size
	if n%8 != 0 || n == 0 {
		copy(dst, src)
		return
	}
	to := dst
	if size > 1 {
		to = planes
	}
	for b := range size {
		bitPlane(to[b*n:][:n], src[b*n:][:n])
	}
	if size > 1 {
		elements.Unshuffle(dst[:n*size], planes[:n*size], size)
	}
	copy(dst[n*size:], src[n*size:])
}

// bitPlane makes the bytes of one plane of its eight rows of bits.
func bitPlane(plane, rows []byte) {
	n := len(rows) / 8
	row := func(bit int) []byte { return rows[bit*n:][:n:n] }
	r0, r1, r2, r3, r4, r5, r6, r7 := row(0), row(1), row(2), row(3), row(4), row(5), row(6), row(7)
	for g := range n {
		low := uint64(r0[g]) | uint64(r1[g])<<8 | uint64(r2[g])<<16 | uint64(r3[g])<<24
		binary.LittleEndian.PutUint64(plane[8*g:], transposed(low|uint64(r4[g])<<32|uint64(r5[g])<<40|uint64(r6[g])<<48|uint64(r7[g])<<56))
	}
}

// transposed is a matrix of eight by eight bits with its rows as columns.
func transposed(x uint64) uint64 {
	t := (x ^ x>>7) & 0x00aa00aa00aa00aa
	x ^= t ^ t<<7
	t = (x ^ x>>14) & 0x0000cccc0000cccc
	x ^= t ^ t<<14
	t = (x ^ x>>28) & 0x00000000f0f0f0f0
	return x ^ t ^ t<<28
}
