package pq

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/guard"
)

// Types of Thrift's compact protocol.
const (
	tStop   = 0
	tTrue   = 1
	tFalse  = 2
	tByte   = 3
	tI16    = 4
	tI32    = 5
	tI64    = 6
	tDouble = 7
	tBinary = 8
	tList   = 9
	tSet    = 10
	tMap    = 11
	tStruct = 12
)

const maxThriftDepth = 64

// cursor reads values of the compact protocol and other varint data. A fault fails the read
// (guard.Fail). A cursor does not allocate: it iterates over lists without building them.
type cursor struct {
	b    []byte
	pos  int
	what string // description of the data, for errors
}

func (c *cursor) fail(msg string) { failParse("%s: %s", c.what, msg) }

func (c *cursor) byte() byte {
	if c.pos >= len(c.b) {
		c.fail("ends inside a value")
	}
	v := c.b[c.pos]
	c.pos++
	return v
}

func (c *cursor) uvarint() uint64 {
	v, n := binary.Uvarint(c.b[c.pos:])
	if n <= 0 {
		c.fail("bad varint")
	}
	c.pos += n
	return v
}

func (c *cursor) varint() int64 {
	u := c.uvarint()
	return int64(u>>1) ^ -int64(u&1)
}

func (c *cursor) i32() int32 {
	v := c.varint()
	if v < math.MinInt32 || v > math.MaxInt32 {
		c.fail("32-bit integer out of range")
	}
	return int32(v)
}

// nextBytes returns the next n bytes.
func (c *cursor) nextBytes(n uint64) []byte {
	if n > uint64(len(c.b)-c.pos) {
		c.fail("a value longer than what is left")
	}
	v := c.b[c.pos : c.pos+int(n)]
	c.pos += int(n)
	return v
}

func (c *cursor) readBinary() []byte { return c.nextBytes(c.uvarint()) }

// readListHeader reads the header of a list. Every element takes at least one byte, so the count
// cannot be larger than the rest of the data.
func (c *cursor) readListHeader() (n int, elem byte) {
	h := c.byte()
	elem = h & 15
	u := uint64(h >> 4)
	if u == 15 {
		u = c.uvarint()
	}
	if u > uint64(len(c.b)-c.pos) {
		c.fail("list longer than what is left")
	}
	return int(u), elem
}

// forEachField calls f for every field of a struct. f reads the value, or returns false to skip it.
func (c *cursor) forEachField(depth int, f func(id int16, typ byte) bool) {
	var last int16
	if depth > maxThriftDepth {
		c.fail("nested too deep")
	}
	for {
		h := c.byte()
		typ := h & 15
		if typ == tStop {
			return
		}
		if d := h >> 4; d != 0 {
			last += int16(d)
		} else {
			last = int16(c.varint())
		}
		start := c.pos
		if !f(last, typ) {
			c.pos = start
			c.skipValue(typ, depth)
		}
	}
}

// fieldSlot is the destination of a field of a struct. A *int32, *int64, *[]byte or *bool receives
// a value of its type. A func reads the value or returns false. A byte is the type that the field
// must have to count as present. Slots are sorted by field number.
type fieldSlot struct {
	id int16
	to any
}

// readStruct reads a struct into slots and skips other fields. Bit i of has means that field i, up
// to 31, was present with the expected type.
func (c *cursor) readStruct(depth int, slots ...fieldSlot) (has uint32) {
	next := 0
	c.forEachField(depth, func(id int16, typ byte) (read bool) {
		if next == len(slots) || id < slots[next].id {
			next = 0 // almost never happens: writers write fields in ascending order
		}
		for next < len(slots) && slots[next].id < id {
			next++
		}
		if next == len(slots) || slots[next].id != id {
			return false
		}
		there := false
		switch to := slots[next].to.(type) {
		case *int32:
			if read = typ == tI32; read {
				*to = c.i32()
			}
		case *int64:
			if read = typ == tI64; read {
				*to = c.varint()
			}
		case *[]byte:
			if read = typ == tBinary; read {
				*to = c.readBinary()
			}
		case *bool:
			if read = typ == tTrue || typ == tFalse; read {
				*to = typ == tTrue
			}
		case func(typ byte) bool:
			read = to(typ)
		case byte:
			there = typ == to
		}
		if read || there {
			has |= 1 << (id & 31)
		}
		return read
	})
	return has
}

// readStructList reads a list of least to most structs. It returns false if the field is not a
// list.
func (c *cursor) readStructList(typ byte, least, most int, what string, each func(i int)) bool {
	if typ != tList {
		return false
	}
	n, e := c.readListHeader()
	if e != tStruct || n < least || n > most {
		c.fail(fmt.Sprintf("bad %s: %d", what, n))
	}
	for i := range n {
		each(i)
	}
	return true
}

func (c *cursor) skipValue(typ byte, depth int) {
	if depth > maxThriftDepth {
		c.fail("nested too deep")
	}
	switch typ {
	case tTrue, tFalse:
	case tByte:
		c.byte()
	case tI16, tI32, tI64:
		c.uvarint()
	case tDouble:
		c.nextBytes(8)
	case tBinary:
		c.readBinary()
	case tList, tSet:
		n, e := c.readListHeader()
		for range n {
			c.skipElement(e, depth+1)
		}
	case tMap:
		n := c.uvarint()
		if n == 0 {
			return
		}
		kv := c.byte()
		for range n {
			c.skipElement(kv>>4, depth+1)
			c.skipElement(kv&15, depth+1)
		}
	case tStruct:
		c.skipStruct(depth + 1)
	default:
		c.fail("unknown type")
	}
}

// skipElement skips an element of a list or map. Booleans must take one byte here, unlike in a
// struct. Otherwise a map that declares 2^60 booleans would take 2^60 steps.
func (c *cursor) skipElement(typ byte, depth int) {
	if typ == tTrue || typ == tFalse {
		c.byte()
		return
	}
	c.skipValue(typ, depth)
}

// skipStruct is forEachField without a callback. It is separate because footers of episodes files
// contain a million structs.
func (c *cursor) skipStruct(depth int) {
	for {
		h := c.byte()
		typ := h & 15
		if typ == tStop {
			return
		}
		if h>>4 == 0 {
			c.uvarint()
		}
		c.skipValue(typ, depth)
	}
}

func malformed(msg string) error {
	return robocache.Malformed("parquet", nil, "%s", msg)
}

// failParse fails the read because the file is malformed.
func failParse(format string, args ...any) { guard.Fail(malformed(fmt.Sprintf(format, args...))) }

// pageHeader is the header of a page.
type pageHeader struct {
	kind, unpacked, packed int32
	crc                    uint32
	hasCRC                 bool
	values, encoding       int32
	defEnc, repEnc         int32
	defLen, repLen         int32
	plain                  bool // version 2: values are not compressed
	seen                   bool
}

func readPageHeader(b []byte) (h pageHeader, size int) {
	c := &cursor{b: b, what: "page header"}
	h.kind = -1
	compressed := true
	crc := int32(0)
	page := func(slots ...fieldSlot) func(byte) bool {
		return func(typ byte) bool {
			if typ == tStruct {
				h.seen = true
				c.readStruct(1, slots...)
			}
			return typ == tStruct
		}
	}
	values := fieldSlot{1, &h.values}
	has := c.readStruct(
		0,
		fieldSlot{1, &h.kind},
		fieldSlot{2, &h.unpacked},
		fieldSlot{3, &h.packed},
		fieldSlot{4, &crc},
		fieldSlot{
			5,
			page(
				values,
				fieldSlot{2, &h.encoding},
				fieldSlot{3, &h.defEnc},
				fieldSlot{4, &h.repEnc},
			),
		},
		fieldSlot{7, page(values, fieldSlot{2, &h.encoding})},
		fieldSlot{
			8,
			page(
				values,
				fieldSlot{4, &h.encoding},
				fieldSlot{5, &h.defLen},
				fieldSlot{6, &h.repLen},
				fieldSlot{7, &compressed},
			),
		},
	)
	h.crc, h.hasCRC, h.plain = uint32(crc), has&(1<<4) != 0, !compressed
	if min(h.kind, h.unpacked, h.packed, h.values, h.defLen, h.repLen) < 0 {
		c.fail("a negative size")
	}
	return h, c.pos
}
