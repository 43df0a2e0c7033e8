package h5

import (
	"context"
	"fmt"
	"slices"

	"github.com/goatnote-inc/robocache"
)

// Class is HDF5's class of a type.
type Class uint8

// The classes.
const (
	Integer Class = iota
	Float
	Time
	Text // of fixed length
	Bits
	Opaque
	Compound
	Reference
	Enum
	Varying // a sequence or text of varying length
	Array
	Complex
)

var classNames = [...]string{"integer", "float", "time", "string", "bitfield", "opaque", "compound", "reference", "enum", "variable-length", "array", "complex"}

func (c Class) String() string {
	if int(c) < len(classNames) {
		return classNames[c]
	}
	return fmt.Sprintf("class %d", uint8(c))
}

// Type is a type of elements.
type Type struct {
	Class  Class
	Size   int
	DType  robocache.DType // of integers, floats, bits and enums; InvalidDType where there is none for it
	Big    bool            // big-endian
	Base   *Type           // of an enum, an array, a sequence
	Dims   []int           // of an array
	Fields []Member        // of a compound
	Names  []string        // of an enum's values
	Values []int64         // parallel to Names
	IsText bool            // of varying length
	Pad    uint8           // of text: 0 ended by NUL, 1 filled with NUL, 2 with spaces
}

// Member is a field of a compound.
type Member struct {
	Name   string
	Offset int
	Type   *Type
}

// String describes the type.
func (t *Type) String() string {
	switch {
	case t.DType != robocache.InvalidDType:
		return t.DType.String()
	case t.Class == Varying && t.IsText:
		return "variable-length string"
	case t.Base != nil:
		return t.Class.String() + " of " + t.Base.String()
	}
	return fmt.Sprintf("%s of %d bytes", t.Class, t.Size)
}

func (f *File) typeOf(ctx context.Context, addr uint64, b []byte) (*Type, error) {
	c := f.cursor(b)
	t, err := f.parseType(addr, c, 0)
	if err != nil {
		return nil, err
	}
	if c.short {
		return nil, f.bad(addr, "the datatype is cut off")
	}
	return t, nil
}

func (f *File) parseType(addr uint64, c *cursor, depth int) (*Type, error) {
	head := c.u8()
	version := head >> 4
	flags := uint32(c.uint(3))
	size := c.u32()
	if c.short {
		return nil, f.bad(addr, "the datatype is cut off")
	}
	if depth > maxDepth {
		return nil, f.bad(addr, "types are nested too deep")
	}
	if version < 1 || version > 5 {
		return nil, f.unsupported(addr, fmt.Sprintf("datatype version %d", version), "")
	}
	if size == 0 || size > maxChunk {
		return nil, f.bad(addr, fmt.Sprintf("a type of %d bytes", size))
	}
	t := &Type{Class: Class(head & 15), Size: int(size)}
	var err error
	switch t.Class {
	case Integer, Bits:
		t.Big = flags&1 != 0
		offset, precision := c.u16(), c.u16()
		if offset == 0 && int(precision) == 8*t.Size {
			t.DType = integer(t.Size, t.Class == Integer && flags&8 != 0)
		}
	case Float:
		t.Big = flags&1 != 0
		offset, precision := c.u16(), c.u16()
		c.skip(1)
		exponent := c.u8()
		c.skip(1)
		mantissa := c.u8()
		bias := c.u32()
		if flags&0x40 == 0 && offset == 0 && int(precision) == 8*t.Size {
			t.DType = float(t.Size, exponent, mantissa, bias)
		}
	case Text:
		t.Pad = uint8(flags & 15)
	case Time:
		c.skip(2)
	case Opaque:
		c.skip(int(flags & 0xff))
	case Reference:
	case Compound:
		err = f.parseCompound(addr, c, t, version, int(flags&0xffff), depth)
	case Enum:
		err = f.parseEnum(addr, c, t, version, int(flags&0xffff), depth)
	case Varying:
		t.IsText = flags&15 == 1
		t.Pad = uint8(flags >> 4 & 15)
		t.Base, err = f.parseType(addr, c, depth+1)
		if err == nil && t.Size != 8+f.osz {
			err = f.bad(addr, fmt.Sprintf("variable-length elements of %d bytes", t.Size))
		}
	case Array:
		rank := int(c.u8())
		if version < 3 {
			c.skip(3)
		}
		if rank > maxRank {
			return nil, f.bad(addr, fmt.Sprintf("an array type of %d dimensions", rank))
		}
		total := int64(1)
		for range rank {
			n := int64(c.u32())
			if n == 0 || total > maxChunk/n {
				return nil, f.bad(addr, "the dimensions of an array type")
			}
			total *= n
			t.Dims = append(t.Dims, int(n))
		}
		if version < 3 {
			c.skip(4 * rank)
		}
		if t.Base, err = f.parseType(addr, c, depth+1); err == nil && total*int64(t.Base.Size) != int64(t.Size) {
			err = f.bad(addr, fmt.Sprintf("an array type of %d × %d bytes in %d", total, t.Base.Size, t.Size))
		}
	case Complex:
		t.Base, err = f.parseType(addr, c, depth+1)
	default:
		return nil, f.unsupported(addr, fmt.Sprintf("datatype class %d", head&15), "")
	}
	return t, err
}

func integer(size int, signed bool) robocache.DType {
	d := map[int]robocache.DType{1: robocache.Uint8, 2: robocache.Uint16, 4: robocache.Uint32, 8: robocache.Uint64}[size]
	if signed && d != robocache.InvalidDType {
		d -= robocache.Uint8 - robocache.Int8
	}
	return d
}

func float(size int, exponent, mantissa uint8, bias uint32) robocache.DType {
	switch {
	case size == 2 && exponent == 5 && mantissa == 10 && bias == 15:
		return robocache.Float16
	case size == 2 && exponent == 8 && mantissa == 7 && bias == 127:
		return robocache.BFloat16
	case size == 4 && exponent == 8 && mantissa == 23 && bias == 127:
		return robocache.Float32
	case size == 8 && exponent == 11 && mantissa == 52 && bias == 1023:
		return robocache.Float64
	}
	return robocache.InvalidDType
}

func (f *File) parseCompound(addr uint64, c *cursor, t *Type, version uint8, n, depth int) error {
	width := 1
	for v := t.Size; v > 255; v >>= 8 {
		width++
	}
	for range n {
		at := c.off
		m := Member{Name: c.name()}
		var dims []int
		switch {
		case version >= 3:
			m.Offset = int(c.uint(width))
		default:
			c.align(at, 8)
			m.Offset = int(c.u32())
			if version == 1 {
				rank := int(c.u8())
				c.skip(3 + 4 + 4)
				for i := range 4 {
					if d := c.u32(); i < rank {
						dims = append(dims, int(d))
					}
				}
			}
		}
		var err error
		if m.Type, err = f.parseType(addr, c, depth+1); err != nil {
			return err
		}
		if dims != nil {
			size := int64(m.Type.Size)
			for _, d := range dims {
				if d <= 0 || size > maxChunk/int64(d) {
					return f.bad(addr, "the dimensions of a field")
				}
				size *= int64(d)
			}
			m.Type = &Type{Class: Array, Size: int(size), Base: m.Type, Dims: dims}
		}
		if c.short || m.Offset < 0 || m.Offset > t.Size-m.Type.Size {
			return f.bad(addr, fmt.Sprintf("field %q of a compound lies outside of it", m.Name))
		}
		t.Fields = append(t.Fields, m)
	}
	return nil
}

func (f *File) parseEnum(addr uint64, c *cursor, t *Type, version uint8, n, depth int) error {
	base, err := f.parseType(addr, c, depth+1)
	if err != nil {
		return err
	}
	if base.Class != Integer || base.Size != t.Size {
		return f.bad(addr, "an enum that is not made of integers")
	}
	t.Base, t.Big, t.DType = base, base.Big, base.DType
	for range n {
		at := c.off
		t.Names = append(t.Names, c.name())
		if version < 3 {
			c.align(at, 8)
		}
		if c.short {
			return f.bad(addr, "the names of an enum are cut off")
		}
	}
	for range n {
		raw := slices.Clone(c.take(base.Size))
		if c.short {
			return f.bad(addr, "the values of an enum are cut off")
		}
		t.Values = append(t.Values, base.int(raw))
	}
	// h5py's bool.
	if t.Size == 1 && n == 2 && slices.Equal(t.Names, []string{"FALSE", "TRUE"}) && t.Values[0] == 0 && t.Values[1] == 1 {
		t.DType = robocache.Bool
	}
	return nil
}

// int reads one element of an integer type.
func (t *Type) int(raw []byte) int64 {
	if len(raw) > 8 {
		return 0
	}
	if t.Big {
		slices.Reverse(raw)
	}
	v := leUint(raw)
	if t.DType >= robocache.Int8 && t.DType <= robocache.Int32 {
		shift := 64 - 8*len(raw)
		return int64(v<<shift) >> shift
	}
	return int64(v)
}

// Numeric gives the element type and the dimensions that an array type adds; false where elements are no numbers.
func (t *Type) Numeric() (robocache.DType, []int, bool) {
	var dims []int
	for depth := 0; t.Class == Array && depth <= maxDepth; depth++ {
		dims = append(dims, t.Dims...)
		t = t.Base
	}
	return t.DType, dims, t.DType != robocache.InvalidDType
}

// Native turns elements that are stored big-endian round, in place. Elements of a compound come as they are stored.
func (t *Type) Native(b []byte) {
	if t = t.scalar(); t.Big {
		swap(b, t.DType.Size())
	}
}

// scalar is the innermost type of arrays.
func (t *Type) scalar() *Type {
	for t.Class == Array {
		t = t.Base
	}
	return t
}
