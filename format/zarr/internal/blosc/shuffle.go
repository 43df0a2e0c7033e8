package blosc

import "encoding/binary"

// unshuffle puts the bytes of elements together again: src holds all first bytes, then all second ones. What is left over behind the last
// whole element is copied.
func unshuffle(dst, src []byte, size int) {
	n := len(src) / size
	copy(dst[n*size:], src[n*size:])
	src, dst = src[:n*size], dst[:n*size]
	if size == 1 {
		copy(dst, src)
		return
	}
	unshuffleFrom(dst, src, n, size, fastPlanes(dst, src, n, size))
}

// unshuffleFrom is unshuffle of the elements from the i-th on.
func unshuffleFrom(dst, src []byte, n, size, i int) {
	switch size {
	case 2:
		i = unshuffle2(dst, src, n, i)
	case 4:
		i = unshuffle4(dst, src, n, i)
	case 8:
		i = unshuffle8(dst, src, n, i)
	}
	if i == n {
		return
	}
	for b := range size {
		plane := src[b*n : (b+1)*n]
		for k, at := i, i*size+b; k < len(plane); k, at = k+1, at+size {
			dst[at] = plane[k]
		}
	}
}

// spread puts a zero byte behind each of four bytes.
func spread(x uint64) uint64 {
	x = (x | x<<16) & 0x0000ffff0000ffff
	return (x | x<<8) & 0x00ff00ff00ff00ff
}

func unshuffle2(dst, src []byte, n, i int) int {
	le := binary.LittleEndian
	a, b := src[:n], src[n:2*n]
	for ; i+8 <= n; i += 8 {
		x, y := le.Uint64(a[i:]), le.Uint64(b[i:])
		d := dst[2*i : 2*i+16 : 2*i+16]
		le.PutUint64(d, spread(x&0xffffffff)|spread(y&0xffffffff)<<8)
		le.PutUint64(d[8:], spread(x>>32)|spread(y>>32)<<8)
	}
	return i
}

// pairs puts two zero bytes behind each of two pairs of bytes.
func pairs(x uint64) uint64 { return (x | x<<16) & 0x0000ffff0000ffff }

func unshuffle4(dst, src []byte, n, i int) int {
	le := binary.LittleEndian
	p0, p1, p2, p3 := src[:n], src[n:2*n], src[2*n:3*n], src[3*n:4*n]
	for ; i+8 <= n; i += 8 {
		a, b, c, e := le.Uint64(p0[i:]), le.Uint64(p1[i:]), le.Uint64(p2[i:]), le.Uint64(p3[i:])
		d := dst[4*i : 4*i+32 : 4*i+32]
		lo, hi := spread(a&0xffffffff)|spread(b&0xffffffff)<<8, spread(c&0xffffffff)|spread(e&0xffffffff)<<8
		le.PutUint64(d, pairs(lo&0xffffffff)|pairs(hi&0xffffffff)<<16)
		le.PutUint64(d[8:], pairs(lo>>32)|pairs(hi>>32)<<16)
		lo, hi = spread(a>>32)|spread(b>>32)<<8, spread(c>>32)|spread(e>>32)<<8
		le.PutUint64(d[16:], pairs(lo&0xffffffff)|pairs(hi&0xffffffff)<<16)
		le.PutUint64(d[24:], pairs(lo>>32)|pairs(hi>>32)<<16)
	}
	return i
}

func unshuffle8(dst, src []byte, n, i int) int {
	le := binary.LittleEndian
	for ; i+8 <= n; i += 8 {
		r0, r1, r2, r3, r4, r5, r6, r7 := bytes8(le.Uint64(src[i:]), le.Uint64(src[n+i:]), le.Uint64(src[2*n+i:]), le.Uint64(src[3*n+i:]),
			le.Uint64(src[4*n+i:]), le.Uint64(src[5*n+i:]), le.Uint64(src[6*n+i:]), le.Uint64(src[7*n+i:]))
		d := dst[8*i : 8*i+64 : 8*i+64]
		le.PutUint64(d, r0)
		le.PutUint64(d[8:], r1)
		le.PutUint64(d[16:], r2)
		le.PutUint64(d[24:], r3)
		le.PutUint64(d[32:], r4)
		le.PutUint64(d[40:], r5)
		le.PutUint64(d[48:], r6)
		le.PutUint64(d[56:], r7)
	}
	return i
}

// swap exchanges the bits of a that mask names, shifted up, with those of b below.
func swap(a, b, mask uint64, shift uint) (uint64, uint64) {
	t := (a>>shift ^ b) & mask
	return a ^ t<<shift, b ^ t
}

// bytes8 transposes eight words of eight bytes.
func bytes8(r0, r1, r2, r3, r4, r5, r6, r7 uint64) (uint64, uint64, uint64, uint64, uint64, uint64, uint64, uint64) {
	const m32, m16, m8 = 0x00000000ffffffff, 0x0000ffff0000ffff, 0x00ff00ff00ff00ff
	r0, r4 = swap(r0, r4, m32, 32)
	r1, r5 = swap(r1, r5, m32, 32)
	r2, r6 = swap(r2, r6, m32, 32)
	r3, r7 = swap(r3, r7, m32, 32)
	r0, r2 = swap(r0, r2, m16, 16)
	r1, r3 = swap(r1, r3, m16, 16)
	r4, r6 = swap(r4, r6, m16, 16)
	r5, r7 = swap(r5, r7, m16, 16)
	r0, r1 = swap(r0, r1, m8, 8)
	r2, r3 = swap(r2, r3, m8, 8)
	r4, r5 = swap(r4, r5, m8, 8)
	r6, r7 = swap(r6, r7, m8, 8)
	return r0, r1, r2, r3, r4, r5, r6, r7
}

// bits8 transposes bits: of words that hold bit 0, 1 … 7 of 64 bytes it makes words whose bytes are those bytes, each eighth one.
func bits8(r0, r1, r2, r3, r4, r5, r6, r7 uint64) (uint64, uint64, uint64, uint64, uint64, uint64, uint64, uint64) {
	const m4, m2, m1 = 0x0f0f0f0f0f0f0f0f, 0x3333333333333333, 0x5555555555555555
	r0, r4 = swap(r0, r4, m4, 4)
	r1, r5 = swap(r1, r5, m4, 4)
	r2, r6 = swap(r2, r6, m4, 4)
	r3, r7 = swap(r3, r7, m4, 4)
	r0, r2 = swap(r0, r2, m2, 2)
	r1, r3 = swap(r1, r3, m2, 2)
	r4, r6 = swap(r4, r6, m2, 2)
	r5, r7 = swap(r5, r7, m2, 2)
	r0, r1 = swap(r0, r1, m1, 1)
	r2, r3 = swap(r2, r3, m1, 1)
	r4, r5 = swap(r4, r5, m1, 1)
	r6, r7 = swap(r6, r7, m1, 1)
	return r0, r1, r2, r3, r4, r5, r6, r7
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
		rows, plane := src[b*n:(b+1)*n], to[b*n:(b+1)*n]
		bitPlane(plane, rows, n/8, fastBits(plane, rows, n/8))
	}
	if size > 1 {
		unshuffle(dst[:n*size], planes[:n*size], size)
	}
	copy(dst[n*size:], src[n*size:])
}

// bitPlane makes the bytes of one plane of its rows of bits, of row bytes each, from the g-th byte of the rows on.
func bitPlane(plane, rows []byte, row, g int) {
	le := binary.LittleEndian
	for ; g+8 <= row; g += 8 {
		r0, r1, r2, r3, r4, r5, r6, r7 := bytes8(bits8(le.Uint64(rows[g:]), le.Uint64(rows[row+g:]), le.Uint64(rows[2*row+g:]), le.Uint64(rows[3*row+g:]),
			le.Uint64(rows[4*row+g:]), le.Uint64(rows[5*row+g:]), le.Uint64(rows[6*row+g:]), le.Uint64(rows[7*row+g:])))
		d := plane[8*g : 8*g+64 : 8*g+64]
		le.PutUint64(d, r0)
		le.PutUint64(d[8:], r1)
		le.PutUint64(d[16:], r2)
		le.PutUint64(d[24:], r3)
		le.PutUint64(d[32:], r4)
		le.PutUint64(d[40:], r5)
		le.PutUint64(d[48:], r6)
		le.PutUint64(d[56:], r7)
	}
	for ; g < row; g++ {
		var x uint64
		for bit := range 8 {
			x |= uint64(rows[bit*row+g]) << (8 * bit)
		}
		le.PutUint64(plane[8*g:], bits1(x))
	}
}

// bits1 transposes a matrix of eight by eight bits.
func bits1(x uint64) uint64 {
	t := (x ^ x>>7) & 0x00aa00aa00aa00aa
	x ^= t ^ t<<7
	t = (x ^ x>>14) & 0x0000cccc0000cccc
	x ^= t ^ t<<14
	t = (x ^ x>>28) & 0x00000000f0f0f0f0
	return x ^ t ^ t<<28
}

// Unshuffle undoes numcodecs' shuffle, which is blosc's over the whole buffer.
func Unshuffle(dst, src []byte, size int) { unshuffle(dst, src, size) }
