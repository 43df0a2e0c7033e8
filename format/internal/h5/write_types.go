package h5

import "github.com/goatnote-inc/robocache"

// typeMessage returns a datatype message: class and version, three bytes of flags, size, and the
// fields of the class.
func typeMessage(class Class, version, flags uint8, more uint16, size int, parts ...any) []byte {
	return packMetadata(version<<4|uint8(class), flags, more, u32(size), packMetadata(parts...))
}

// numericType returns the little-endian datatype message of a dtype, or nil if HDF5 has no
// equivalent.
func numericType(d robocache.DType) []byte {
	size := d.Size()
	switch {
	case d == robocache.Bool: // h5py stores bool as an enum of int8
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
		// The first bit of the mantissa is implied. The exponent follows the mantissa, and the sign
		// is the last bit.
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

// textType returns the type of UTF-8 text of variable length, like str in h5py: text that ends with
// NUL in memory.
func textType() []byte {
	return typeMessage(Varying, 1, 1, 1, referenceSize, numericType(robocache.Uint8))
}

// fixedTextType returns the type of text of n bytes, padded with NUL.
func fixedTextType(n int) []byte { return typeMessage(Text, 1, 1, 0, n) }
