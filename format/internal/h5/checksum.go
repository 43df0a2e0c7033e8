package h5

import (
	"encoding/binary"
	"math/bits"
)

// lookup3 is Bob Jenkins' hash "hashlittle" with seed 0: the checksum of HDF5's metadata.
func lookup3(k []byte) uint32 {
	a := uint32(0xdeadbeef) + uint32(len(k))
	b, c := a, a
	le := binary.LittleEndian
	for len(k) > 12 {
		a += le.Uint32(k)
		b += le.Uint32(k[4:])
		c += le.Uint32(k[8:])
		a -= c
		a ^= bits.RotateLeft32(c, 4)
		c += b
		b -= a
		b ^= bits.RotateLeft32(a, 6)
		a += c
		c -= b
		c ^= bits.RotateLeft32(b, 8)
		b += a
		a -= c
		a ^= bits.RotateLeft32(c, 16)
		c += b
		b -= a
		b ^= bits.RotateLeft32(a, 19)
		a += c
		c -= b
		c ^= bits.RotateLeft32(b, 4)
		b += a
		k = k[12:]
	}
	if len(k) == 0 {
		return c
	}
	var last [12]byte
	copy(last[:], k)
	a += le.Uint32(last[:])
	b += le.Uint32(last[4:])
	c += le.Uint32(last[8:])
	c ^= b
	c -= bits.RotateLeft32(b, 14)
	a ^= c
	a -= bits.RotateLeft32(c, 11)
	b ^= a
	b -= bits.RotateLeft32(a, 25)
	c ^= b
	c -= bits.RotateLeft32(b, 16)
	a ^= c
	a -= bits.RotateLeft32(c, 4)
	b ^= a
	b -= bits.RotateLeft32(a, 14)
	c ^= b
	c -= bits.RotateLeft32(b, 24)
	return c
}

// fletcher32 is the checksum of the filter of that name: big-endian words, whatever the machine.
func fletcher32(p []byte) uint32 {
	var s1, s2 uint32
	words := len(p) / 2
	for i := 0; words > 0; {
		n := min(words, 360)
		words -= n
		for ; n > 0; n-- {
			s1 += uint32(p[i])<<8 | uint32(p[i+1])
			s2 += s1
			i += 2
		}
		s1 = s1&0xffff + s1>>16
		s2 = s2&0xffff + s2>>16
	}
	if len(p)%2 == 1 {
		s1 += uint32(p[len(p)-1]) << 8
		s2 += s1
		s1 = s1&0xffff + s1>>16
		s2 = s2&0xffff + s2>>16
	}
	s1 = s1&0xffff + s1>>16
	s2 = s2&0xffff + s2>>16
	return s2<<16 | s1
}
