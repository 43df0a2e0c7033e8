package h5

import (
	"fmt"
	"slices"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/internal/elements"
)

// Class is the class of an HDF5 type.
type Class uint8

// The classes.
const (
	Integer Class = iota
	Float
	Time
	Text // text of fixed length
	Bits
	Opaque
	Compound
	Reference
	Enum
	Varying // sequence or text of variable length
	Array
	Complex
)

var classNames = [...]string{
	"integer",
	"float",
	"time",
	"string",
	"bitfield",
	"opaque",
	"compound",
	"reference",
	"enum",
	"variable-length",
	"array",
	"complex",
}

func (c Class) String() string {
	if int(c) < len(classNames) {
		return classNames[c]
	}
	return fmt.Sprintf("class %d", uint8(c))
}

// Type is the type of an element.
type Type struct {
	Class Class
	Size  int
	// set for integers, floats, bits and enums; InvalidDType if there is no equivalent
	DType  robocache.DType
	Big    bool     // big-endian
	Base   *Type    // of an enum, an array or a sequence
	Dims   []int    // of an array
	Fields []Member // of a compound
	Names  []string // value names of an enum
	Values []int64  // parallel to Names
	IsText bool     // text of variable length
	Pad    uint8    // of text: 0 ends with NUL, 1 padded with NUL, 2 padded with spaces
}

// Member is a field of a compound.
type Member struct {
	Name   string
	Offset int
	Type   *Type
}

// String returns a description of the type.
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

// typeOf parses a datatype message.
func (f *File) typeOf(addr uint64, b []byte) *Type {
	return f.parseType(addr, f.newCursor(addr, "the datatype", b), 0)
}

func (f *File) parseType(addr uint64, c *cursor, depth int) *Type {
	head := c.u8()
	version := head >> 4
	flags := int(c.uint(3))
	size := c.u32()
	if depth > maxDepth {
		f.failMalformed(addr, "types are nested too deep")
	}
	if version < 1 || version > 5 {
		f.failUnsupported(addr, fmt.Sprintf("datatype version %d", version), "")
	}
	if size == 0 || size > maxChunk {
		f.failMalformed(addr, "a type of %d bytes", size)
	}
	t := &Type{Class: Class(head & 15), Size: int(size)}
	switch t.Class {
	case Integer, Bits:
		t.Big = flags&1 != 0
		offset, precision := c.u16(), c.u16()
		if offset == 0 && int(precision) == 8*t.Size {
			t.DType = integerDType(t.Size, t.Class == Integer && flags&8 != 0)
		}
	case Float:
		t.Big = flags&1 != 0
		offset, precision := c.u16(), c.u16()
		c.skip(1)
		exponent := c.u8()
		c.skip(1)
		form := floatForm{t.Size, exponent, c.u8(), c.u32()}
		if flags&0x40 == 0 && offset == 0 && int(precision) == 8*t.Size {
			t.DType = robocache.DType(max(slices.Index(floatForms[:], form), 0))
		}
	case Text:
		t.Pad = uint8(flags & 15)
	case Time:
		c.skip(2)
	case Opaque:
		c.skip(flags & 0xff)
	case Reference:
	case Compound:
		f.parseCompound(addr, c, t, version, flags&0xffff, depth)
	case Enum:
		f.parseEnum(addr, c, t, version, flags&0xffff, depth)
	case Varying:
		t.IsText = flags&15 == 1
		t.Pad = uint8(flags >> 4 & 15)
		t.Base = f.parseType(addr, c, depth+1)
		if t.Size != 8+f.osz {
			f.failMalformed(addr, "variable-length elements of %d bytes", t.Size)
		}
	case Array:
		rank := int(c.u8())
		if version < 3 {
			c.skip(3)
		}
		if rank > maxRank {
			f.failMalformed(addr, "an array type of %d dimensions", rank)
		}
		for range rank {
			t.Dims = append(t.Dims, int(c.u32()))
		}
		if version < 3 {
			c.skip(4 * rank)
		}
		t.Base = f.parseType(addr, c, depth+1)
		if f.arraySize(addr, t.Base.Size, t.Dims) != t.Size {
			f.failMalformed(
				addr,
				"an array type of %v × %d bytes in %d",
				t.Dims,
				t.Base.Size,
				t.Size,
			)
		}
	case Complex:
		t.Base = f.parseType(addr, c, depth+1)
	default:
		f.failUnsupported(addr, fmt.Sprintf("datatype class %d", head&15), "")
	}
	return t
}

// arraySize returns the size of an array with the given dimensions and element size.
func (f *File) arraySize(addr uint64, size int, dims []int) int {
	for _, d := range dims {
		if d <= 0 || size > maxChunk/d {
			f.failMalformed(addr, "the dimensions %v of an array type", dims)
		}
		size *= d
	}
	return size
}

func integerDType(size int, signed bool) robocache.DType {
	d := map[int]robocache.DType{
		1: robocache.Uint8,
		2: robocache.Uint16,
		4: robocache.Uint32,
		8: robocache.Uint64,
	}[size]
	if signed && d != robocache.InvalidDType {
		d -= robocache.Uint8 - robocache.Int8
	}
	return d
}

// floatForm describes how a float is stored: size in bytes, bits of exponent and mantissa, and
// bias.
type floatForm struct {
	size               int
	exponent, mantissa uint8
	bias               uint32
}

var floatForms = [...]floatForm{
	robocache.Float16:  {2, 5, 10, 15},
	robocache.BFloat16: {2, 8, 7, 127},
	robocache.Float32:  {4, 8, 23, 127},
	robocache.Float64:  {8, 11, 52, 1023},
}

func (f *File) parseCompound(addr uint64, c *cursor, t *Type, version uint8, n, depth int) {
	width := 1
	for v := t.Size; v > 255; v >>= 8 {
		width++
	}
	for range n {
		at := c.off
		m := Member{Name: c.readName()}
		var dims []int
		if version >= 3 {
			m.Offset = int(c.uint(width))
		} else {
			c.alignTo(at, 8)
			m.Offset = int(c.u32())
		}
		if version == 1 {
			rank := int(c.u8())
			c.skip(3 + 4 + 4)
			for i := range 4 {
				if d := c.u32(); i < rank {
					dims = append(dims, int(d))
				}
			}
		}
		if m.Type = f.parseType(addr, c, depth+1); dims != nil {
			m.Type = &Type{
				Class: Array,
				Size:  f.arraySize(addr, m.Type.Size, dims),
				Base:  m.Type,
				Dims:  dims,
			}
		}
		if m.Offset < 0 || m.Offset > t.Size-m.Type.Size {
			f.failMalformed(addr, "field %q of a compound lies outside of it", m.Name)
		}
		t.Fields = append(t.Fields, m)
	}
}

func (f *File) parseEnum(addr uint64, c *cursor, t *Type, version uint8, n, depth int) {
	base := f.parseType(addr, c, depth+1)
	if base.Class != Integer || base.Size != t.Size {
		f.failMalformed(addr, "an enum that is not made of integers")
	}
	t.Base, t.Big, t.DType = base, base.Big, base.DType
	for range n {
		at := c.off
		t.Names = append(t.Names, c.readName())
		if version < 3 {
			c.alignTo(at, 8)
		}
	}
	for range n {
		t.Values = append(t.Values, base.intValue(slices.Clone(c.takeBytes(base.Size))))
	}
	// h5py stores bool as this enum.
	if t.Size == 1 && slices.Equal(t.Names, []string{"FALSE", "TRUE"}) && t.Values[0] == 0 &&
		t.Values[1] == 1 {
		t.DType = robocache.Bool
	}
}

// isTextual reports whether elements are texts, of fixed or variable length.
func (t *Type) isTextual() bool { return t.Class == Text || t.Class == Varying && t.IsText }

// intValue returns the value of one element of an integer type.
func (t *Type) intValue(raw []byte) int64 {
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

// Numeric returns the element type and the dimensions that an array type adds. It returns false if
// the elements are not numbers.
func (t *Type) Numeric() (robocache.DType, []int, bool) {
	var dims []int
	for depth := 0; t.Class == Array && depth <= maxDepth; depth++ {
		dims = append(dims, t.Dims...)
		t = t.Base
	}
	return t.DType, dims, t.DType != robocache.InvalidDType
}

// Native swaps big-endian elements to little-endian in place. Elements of a compound stay as
// stored.
func (t *Type) Native(b []byte) {
	if t = t.scalarType(); t.Big {
		elements.Swap(b, b, t.DType.Size())
	}
}

// scalarType returns the innermost element type of nested arrays.
func (t *Type) scalarType() *Type {
	for t.Class == Array {
		t = t.Base
	}
	return t
}
