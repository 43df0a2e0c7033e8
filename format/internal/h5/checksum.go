package h5

import (
	"encoding/binary"
	"math/bits"
)

// lookup3 is Bob Jenkins' hash "hashlittle" with seed 0: the checksum of HDF5's metadata.
func lookup3(k []byte) uint32 {
	a := uint32(0xdeadbeef) + uint32(len(k))
	b, c := a, a
	add := func(p []byte) {
		a += binary.LittleEndian.Uint32(p)
		b += binary.LittleEndian.Uint32(p[4:])
		c += binary.LittleEndian.Uint32(p[8:])
	}
	for ; len(k) > 12; k = k[12:] {
		add(k)
		for _, r := range [...]int{4, 6, 8, 16, 19, 4} {
			a -= c
			a ^= bits.RotateLeft32(c, r)
			c += b
			a, b, c = b, c, a
		}
	}
	if len(k) == 0 {
		return c
	}
	var last [12]byte
	copy(last[:], k)
	add(last[:])
	for _, r := range [...]int{14, 11, 25, 16, 4, 14, 24} {
		c ^= b
		c -= bits.RotateLeft32(b, r)
		a, b, c = b, c, a
	}
	return b
}

// fletcher32 is the checksum of the filter of that name: big-endian words, whatever the machine.
func fletcher32(p []byte) uint32 {
	var s1, s2 uint32
	fold := func() { s1, s2 = s1&0xffff+s1>>16, s2&0xffff+s2>>16 }
	for len(p) > 1 {
		part := p[:min(len(p)&^1, 720)] // as many as the sums hold
		p = p[len(part):]
		for ; len(part) > 1; part = part[2:] {
			s1 += uint32(part[0])<<8 | uint32(part[1])
			s2 += s1
		}
		fold()
	}
	if len(p) == 1 {
		s1 += uint32(p[0]) << 8
		s2 += s1
		fold()
	}
	fold()
	return s2<<16 | s1
}
