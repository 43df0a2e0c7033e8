package h5

import "github.com/goatnote-inc/robocache"

// numericType is the datatype message of a dtype, little-endian; nil where there is none.
func numericType(d robocache.DType) []byte {
	var b buffer
	size := d.Size()
	switch {
	case d == robocache.Bool: // h5py's: an enum of int8
		b.u8(3<<4 | uint8(Enum))
		b.u8(2)
		b.u16(0)
		b.u32(1)
		b.bytes(numericType(robocache.Int8))
		b.text("FALSE\x00TRUE\x00")
		b.u8(0)
		b.u8(1)
	case d >= robocache.Int8 && d <= robocache.Uint64:
		b.u8(1<<4 | uint8(Integer))
		signed := uint8(0)
		if d <= robocache.Int64 {
			signed = 8
		}
		b.u8(signed)
		b.u16(0)
		b.u32(uint32(size))
		b.u16(0)
		b.u16(uint16(8 * size))
	case d.Float():
		exponent, mantissa, bias := uint8(8), uint8(23), uint32(127)
		switch d {
		case robocache.Float16:
			exponent, mantissa, bias = 5, 10, 15
		case robocache.BFloat16:
			mantissa = 7
		case robocache.Float64:
			exponent, mantissa, bias = 11, 52, 1023
		}
		b.u8(1<<4 | uint8(Float))
		b.u8(0x20) // the mantissa's first bit is implied
		b.u8(uint8(8*size - 1))
		b.u8(0)
		b.u32(uint32(size))
		b.u16(0)
		b.u16(uint16(8 * size))
		b.u8(mantissa) // where the exponent begins
		b.u8(exponent)
		b.u8(0)
		b.u8(mantissa)
		b.u32(bias)
	}
	return b
}

// textType is UTF-8 of varying length, as h5py's str.
func textType() []byte {
	var b buffer
	b.u8(1<<4 | uint8(Varying))
	b.u8(1) // text, ended by NUL in memory
	b.u8(1) // UTF-8
	b.u8(0)
	b.u32(referenceSize)
	b.bytes(numericType(robocache.Uint8))
	return b
}

// fixedTextType is text of n bytes, filled with NUL.
func fixedTextType(n int) []byte {
	var b buffer
	b.u8(1<<4 | uint8(Text))
	b.u8(1)
	b.u16(0)
	b.u32(uint32(n))
	return b
}
