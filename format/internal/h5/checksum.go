package h5

import (
	"encoding/binary"
	"math/bits"
)

// lookup3Hash returns Bob Jenkins' hash "hashlittle" with seed 0, the checksum of HDF5 metadata.
func lookup3Hash(k []byte) uint32 {
	le := binary.LittleEndian
	a := uint32(0xdeadbeef) + uint32(len(k))
	b, c := a, a
	for ; len(k) > 12; k = k[12:] {
		a, b, c = a+le.Uint32(k), b+le.Uint32(k[4:]), c+le.Uint32(k[8:])
		a, c = (a-c)^bits.RotateLeft32(c, 4), c+b
		b, a = (b-a)^bits.RotateLeft32(a, 6), a+c
		c, b = (c-b)^bits.RotateLeft32(b, 8), b+a
		a, c = (a-c)^bits.RotateLeft32(c, 16), c+b
		b, a = (b-a)^bits.RotateLeft32(a, 19), a+c
		c, b = (c-b)^bits.RotateLeft32(b, 4), b+a
	}
	if len(k) == 0 {
		return c
	}
	var last [12]byte
	copy(last[:], k)
	a, b, c = a+le.Uint32(last[:]), b+le.Uint32(last[4:]), c+le.Uint32(last[8:])
	for _, r := range [...]int{14, 11, 25, 16, 4, 14, 24} {
		a, b, c = b, (c^b)-bits.RotateLeft32(b, r), a
	}
	return b
}

// fletcher32Sum returns the checksum that the fletcher32 filter stores. Words are big-endian on
// every machine.
func fletcher32Sum(p []byte) uint32 {
	var s1, s2 uint32
	for len(p) > 0 {
		part := p[:min(len(p), 720)] // the sums do not overflow within 720 bytes
		p = p[len(part):]
		for ; len(part) > 1; part = part[2:] {
			s1 += uint32(part[0])<<8 | uint32(part[1])
			s2 += s1
		}
		if len(part) == 1 {
			s1 += uint32(part[0]) << 8
			s2 += s1
		}
		s1, s2 = s1&0xffff+s1>>16, s2&0xffff+s2>>16
	}
	return (s2&0xffff+s2>>16)<<16 | (s1&0xffff + s1>>16)
}
