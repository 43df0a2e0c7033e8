package ros2

import (
	"bytes"
	"encoding/binary"
	"slices"
	"strconv"

	"github.com/goatnote-inc/robocache"
)

// cursor reads one CDR message. Its methods check the remaining bytes first. After the first
// failure, short is set and every read returns zero. The bytes of a big-endian message are copied
// and swapped while they are read, so other code sees only little-endian numbers.
type cursor struct {
	b     []byte // the body; alignment counts from its first byte
	off   int
	big   bool
	wide  int // largest alignment: 8, or 4 for XCDR2
	short bool
	err   *robocache.Error // error of the encapsulation header; short is then set too
}

// newCursor parses the encapsulation header. An error of the header is returned by finish.
func newCursor(msg []byte) cursor {
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
				"representation 0x%s is not read: only plain CDR (0x0000, 0x0001) and plain "+
					"XCDR2 (0x0006, 0x0007, 0x0010, 0x0011) are",
				strconv.FormatUint(uint64(id), 16),
			),
		}
	}
	if c.big {
		c.b = bytes.Clone(c.b)
	}
	return c
}

func (c *cursor) remaining() int { return len(c.b) - c.off }

// take skips padding to an alignment of n and returns size bytes, or nil if they are missing.
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

// count reads the length of a sequence whose elements take at least size bytes each. It checks the
// length against the remaining bytes.
func (c *cursor) count(size int) int {
	n := c.u32()
	if uint64(n)*uint64(max(size, 1)) > uint64(c.remaining()) {
		c.short = true
		c.off = len(c.b)
		return 0
	}
	return int(n)
}

// str reads a string without its final NUL. Some writers omit the NUL, and some write length 0.
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

// timestamp reads builtin_interfaces/Time in nanoseconds.
func (c *cursor) timestamp() int64 {
	sec, nsec := int32(c.u32()), c.u32()
	return int64(sec)*1e9 + int64(nsec)
}

// header reads std_msgs/Header.
func (c *cursor) header() (timestamp int64, frame []byte) {
	timestamp = c.timestamp()
	return timestamp, c.str()
}

// elements reads n aligned values of size bytes. An empty sequence has no padding.
func (c *cursor) elements(n, size int) []byte {
	if n == 0 {
		return nil
	}
	p := c.take(size, n*size)
	if c.big {
		swapBytes(p, p, size)
	}
	return p
}

// finish returns an error if a read failed.
func (c *cursor) finish(path string) error {
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

// swapBytes reverses the bytes of each element.
func swapBytes(dst, src []byte, size int) {
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
