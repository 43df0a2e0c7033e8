package h5

import "github.com/goatnote-inc/robocache"

// typeMessage is a datatype: its class and version, three bytes of flags, its size, and what the
// class has.
func typeMessage(class Class, version, flags uint8, more uint16, size int, parts ...any) []byte {
	return pack(version<<4|uint8(class), flags, more, u32(size), pack(parts...))
}

// numericType is the datatype message of a dtype, little-endian; nil where there is none.
func numericType(d robocache.DType) []byte {
	size := d.Size()
	switch {
	case d == robocache.Bool: // h5py's: an enum of int8
		return typeMessage(
			Enum,
			3,
			2,
			0,
			1,
			numericType(robocache.Int8),
			"FALSE\x00TRUE\x00",
			u8(0),
			u8(1),
		)
	case d.Integer():
		signed := u8(0)
		if d <= robocache.Int64 {
			signed = 8
		}
		return typeMessage(Integer, 1, signed, 0, size, u16(0), u16(8*size))
	case d.Float():
		// the mantissa's first bit is implied; the exponent begins behind it, the sign is the last
		// bit
		f := floatForms[d]
		return typeMessage(
			Float,
			1,
			0x20,
			u16(8*size-1),
			size,
			u16(0),
			u16(8*size),
			f.mantissa,
			f.exponent,
			u8(0),
			f.mantissa,
			f.bias,
		)
	}
	return nil
}

// textType is UTF-8 of varying length, as h5py's str: text that is ended by NUL in memory.
func textType() []byte {
	return typeMessage(Varying, 1, 1, 1, referenceSize, numericType(robocache.Uint8))
}

// fixedTextType is text of n bytes, filled with NUL.
func fixedTextType(n int) []byte { return typeMessage(Text, 1, 1, 0, n) }
