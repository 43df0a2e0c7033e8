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

// cursor walks a value of the compact protocol, and other values of varints. A fault ends the work
// (guard.Fail). It never allocates: lists are walked, not built.
type cursor struct {
	b    []byte
	pos  int
	what string // is read, for errors
}

func (c *cursor) fail(msg string) { bad("%s: %s", c.what, msg) }

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

// take gives the next n bytes.
func (c *cursor) take(n uint64) []byte {
	if n > uint64(len(c.b)-c.pos) {
		c.fail("a value longer than what is left")
	}
	v := c.b[c.pos : c.pos+int(n)]
	c.pos += int(n)
	return v
}

func (c *cursor) binary() []byte { return c.take(c.uvarint()) }

// list reads a list's header. Every element takes at least a byte, so the count cannot exceed what
// is left.
func (c *cursor) list() (n int, elem byte) {
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

// fields calls f for every field of a struct; f must consume the value, or return false to have it
// skipped.
func (c *cursor) fields(depth int, f func(id int16, typ byte) bool) {
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
			c.skip(typ, depth)
		}
	}
}

// slot says where a field of a struct goes: to a *int32, *int64, *[]byte or *bool of its type; to a
// func, which consumes it or returns false; a byte is a type that it must have to count as there.
// Slots are in the order of their numbers.
type slot struct {
	id int16
	to any
}

// into reads a struct into slots and says, bit by bit, which fields up to 31 were there with their
// types. Others are skipped.
func (c *cursor) into(depth int, slots ...slot) (has uint32) {
	next := 0
	c.fields(depth, func(id int16, typ byte) (read bool) {
		if next == len(slots) || id < slots[next].id {
			next = 0 // as good as never: writers number upwards
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
				*to = c.binary()
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

// structs reads a list of structs, of least to most; false where the field is none.
func (c *cursor) structs(typ byte, least, most int, what string, each func(i int)) bool {
	if typ != tList {
		return false
	}
	n, e := c.list()
	if e != tStruct || n < least || n > most {
		c.fail(fmt.Sprintf("bad %s: %d", what, n))
	}
	for i := range n {
		each(i)
	}
	return true
}

func (c *cursor) skip(typ byte, depth int) {
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
		c.take(8)
	case tBinary:
		c.binary()
	case tList, tSet:
		n, e := c.list()
		for range n {
			c.element(e, depth+1)
		}
	case tMap:
		n := c.uvarint()
		if n == 0 {
			return
		}
		kv := c.byte()
		for range n {
			c.element(kv>>4, depth+1)
			c.element(kv&15, depth+1)
		}
	case tStruct:
		c.skipStruct(depth + 1)
	default:
		c.fail("unknown type")
	}
}

// element skips a member of a list or map. Its booleans take a byte, unlike those of a struct: were
// they to take none, a map that claims 2^60 of them would be walked to its end.
func (c *cursor) element(typ byte, depth int) {
	if typ == tTrue || typ == tFalse {
		c.byte()
		return
	}
	c.skip(typ, depth)
}

// skipStruct is fields without a callback: footers of episodes files hold a million of them.
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
		c.skip(typ, depth)
	}
}

func malformed(msg string) error {
	return robocache.Malformed("parquet", nil, "%s", msg)
}

// bad ends the work: the file is malformed.
func bad(format string, args ...any) { guard.Fail(malformed(fmt.Sprintf(format, args...))) }

// pageHeader is what stands before a page.
type pageHeader struct {
	kind, unpacked, packed int32
	crc                    uint32
	hasCRC                 bool
	values, encoding       int32
	defEnc, repEnc         int32
	defLen, repLen         int32
	plain                  bool // v2: values are not compressed
	seen                   bool
}

func readPageHeader(b []byte) (h pageHeader, size int) {
	c := &cursor{b: b, what: "page header"}
	h.kind = -1
	compressed := true
	crc := int32(0)
	page := func(slots ...slot) func(byte) bool {
		return func(typ byte) bool {
			if typ == tStruct {
				h.seen = true
				c.into(1, slots...)
			}
			return typ == tStruct
		}
	}
	values := slot{1, &h.values}
	has := c.into(
		0,
		slot{1, &h.kind},
		slot{2, &h.unpacked},
		slot{3, &h.packed},
		slot{4, &crc},
		slot{5, page(values, slot{2, &h.encoding}, slot{3, &h.defEnc}, slot{4, &h.repEnc})},
		slot{7, page(values, slot{2, &h.encoding})},
		slot{
			8,
			page(
				values,
				slot{4, &h.encoding},
				slot{5, &h.defLen},
				slot{6, &h.repLen},
				slot{7, &compressed},
			),
		},
	)
	h.crc, h.hasCRC, h.plain = uint32(crc), has&(1<<4) != 0, !compressed
	if min(h.kind, h.unpacked, h.packed, h.values, h.defLen, h.repLen) < 0 {
		c.fail("a negative size")
	}
	return h, c.pos
}
