package ros2

import (
	"bytes"
	"encoding/binary"
	"slices"
	"strconv"

	"github.com/goatnote-inc/robocache"
)

// cursor reads one CDR message. Its methods check the bytes that are left before anything else;
// after the first failure short is set and every read gives zero. A big-endian message is a copy,
// whose numbers are turned around as they are read: nothing else knows of byte order.
type cursor struct {
	b     []byte // the body: alignment counts from its first byte
	off   int
	big   bool
	wide  int // the largest alignment: 8, of XCDR2 4
	short bool
	err   *robocache.Error // of the encapsulation header: then it is short too
}

// open looks at the encapsulation header. What is wrong with it, end says.
func open(msg []byte) cursor {
	if len(msg) < 4 {
		return cursor{wide: 8, short: true, err: robocache.Malformed("cdr", nil, "").
			Expected("an encapsulation header of 4 bytes", strconv.Itoa(len(msg))+" bytes")}
	}
	c := cursor{b: msg[4:], wide: 8}
	switch id := binary.BigEndian.Uint16(msg); id {
	case 0x0001:
	case 0x0000:
		c.big = true
	case 0x0006, 0x0010:
		c.big, c.wide = true, 4
	case 0x0007, 0x0011:
		c.wide = 4
	default:
		return cursor{
			wide:  8,
			short: true,
			err: robocache.Unsupported(
				"cdr",
				nil,
				"representation 0x%s is not read: only plain CDR (0x0000, 0x0001) and plain XCDR2 (0x0006, 0x0007, 0x0010, 0x0011) are",
				strconv.FormatUint(uint64(id), 16),
			),
		}
	}
	if c.big {
		c.b = bytes.Clone(c.b)
	}
	return c
}

func (c *cursor) left() int { return len(c.b) - c.off }

// take skips the padding before n-aligned bytes and gives size bytes; nil where they are not there.
func (c *cursor) take(n, size int) []byte {
	if n > c.wide {
		n = c.wide
	}
	at := (c.off + n - 1) &^ (n - 1)
	if size < 0 || size > len(c.b)-at {
		c.short = true
		c.off = len(c.b)
		return nil
	}
	c.off = at + size
	return c.b[at:c.off:c.off]
}

func (c *cursor) u8() uint8 {
	if p := c.take(1, 1); p != nil {
		return p[0]
	}
	return 0
}

func (c *cursor) u32() uint32 {
	p := c.take(4, 4)
	if p == nil {
		return 0
	}
	if c.big {
		slices.Reverse(p)
	}
	return binary.LittleEndian.Uint32(p)
}

// count is the length of a sequence whose elements take at least size bytes each: it is checked
// against what is left.
func (c *cursor) count(size int) int {
	n := c.u32()
	if uint64(n)*uint64(max(size, 1)) > uint64(c.left()) {
		c.short = true
		c.off = len(c.b)
		return 0
	}
	return int(n)
}

// str is a string's bytes without the final NUL; some writers leave that out, and some write length
// 0.
func (c *cursor) str() []byte {
	n := c.count(1)
	if n == 0 {
		return nil
	}
	p := c.take(1, n)
	if len(p) > 0 && p[len(p)-1] == 0 {
		p = p[:len(p)-1]
	}
	return p
}

// timestamp is builtin_interfaces/Time in ns.
func (c *cursor) timestamp() int64 {
	sec, nsec := int32(c.u32()), c.u32()
	return int64(sec)*1e9 + int64(nsec)
}

// header is std_msgs/Header.
func (c *cursor) header() (timestamp int64, frame []byte) {
	timestamp = c.timestamp()
	return timestamp, c.str()
}

// elements is n values of size bytes, aligned; an empty run has no padding.
func (c *cursor) elements(n, size int) []byte {
	if n == 0 {
		return nil
	}
	p := c.take(size, n*size)
	if c.big {
		swap(p, p, size)
	}
	return p
}

// end says whether all went well.
func (c *cursor) end(path string) error {
	switch {
	case !c.short:
		return nil
	case c.err != nil:
		return c.err
	}
	return robocache.Malformed(
		"cdr",
		robocache.Where{"field": path, "bytes": len(c.b) + 4},
		"the message ends inside a value",
	)
}

// swap turns the bytes of every element around.
func swap(dst, src []byte, size int) {
	switch size {
	case 2:
		for i := 0; i+2 <= len(src); i += 2 {
			binary.LittleEndian.PutUint16(dst[i:], binary.BigEndian.Uint16(src[i:]))
		}
	case 4:
		for i := 0; i+4 <= len(src); i += 4 {
			binary.LittleEndian.PutUint32(dst[i:], binary.BigEndian.Uint32(src[i:]))
		}
	case 8:
		for i := 0; i+8 <= len(src); i += 8 {
			binary.LittleEndian.PutUint64(dst[i:], binary.BigEndian.Uint64(src[i:]))
		}
	}
}
