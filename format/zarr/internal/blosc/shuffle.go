package blosc

import "encoding/binary"

// Unshuffle puts the bytes of elements together again: src holds all first bytes, then all second ones. What is left over behind the last
// whole element is copied. numcodecs' shuffle is this over the whole buffer.
func Unshuffle(dst, src []byte, size int) {
	n := len(src) / size
	copy(dst[n*size:], src[n*size:])
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
		p0, p1, p2, p3, p4, p5, p6, p7 := plane(0), plane(1), plane(2), plane(3), plane(4), plane(5), plane(6), plane(7)
		for i := range n {
			low := uint64(p0[i]) | uint64(p1[i])<<8 | uint64(p2[i])<<16 | uint64(p3[i])<<24
			le.PutUint64(dst[8*i:], low|uint64(p4[i])<<32|uint64(p5[i])<<40|uint64(p6[i])<<48|uint64(p7[i])<<56)
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
		Unshuffle(dst[:n*size], planes[:n*size], size)
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
