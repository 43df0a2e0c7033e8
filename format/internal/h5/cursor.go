package h5

import (
	"bytes"
	"encoding/binary"
)

// undefined is the address that stands for "nowhere".
const undefined = ^uint64(0)

// cursor walks over a piece of metadata that was read. What would lie past its end is ErrMalformed
// (guard.Fail): no field needs a check.
type cursor struct {
	f    *File
	from uint64 // of the piece, and what it is: for errors
	what string
	b    []byte
	off  int
}

func (f *File) cursor(addr uint64, what string, b []byte) *cursor {
	return &cursor{f: f, from: addr, what: what, b: b}
}

func (c *cursor) cut() { c.f.bad(c.from, "%s is cut off", c.what) }

func (c *cursor) left() int { return len(c.b) - c.off }

// take gives the next n bytes.
func (c *cursor) take(n int) []byte {
	if n < 0 || n > c.left() {
		c.cut()
	}
	c.off += n
	return c.b[c.off-n : c.off : c.off]
}

func (c *cursor) skip(n int) { c.take(n) }

// align moves to the next multiple of n, counted from start.
func (c *cursor) align(start, n int) {
	if r := (c.off - start) % n; r != 0 {
		c.skip(n - r)
	}
}

func (c *cursor) u8() uint8   { return c.take(1)[0] }
func (c *cursor) u16() uint16 { return uint16(c.uint(2)) }
func (c *cursor) u32() uint32 { return uint32(c.uint(4)) }
func (c *cursor) u64() uint64 { return c.uint(8) }

// uint reads n bytes, 0 to 8, little-endian.
func (c *cursor) uint(n int) uint64 {
	if n > 8 {
		c.cut()
	}
	return leUint(c.take(n))
}

func leUint(p []byte) uint64 {
	if len(p) == 8 {
		return binary.LittleEndian.Uint64(p)
	}
	var v uint64
	for i := len(p) - 1; i >= 0; i-- {
		v = v<<8 | uint64(p[i])
	}
	return v
}

// addr reads an address; all ones, of whatever width, is undefined.
func (c *cursor) addr() uint64 {
	v := c.uint(c.f.osz)
	if c.f.osz < 8 && v == 1<<(8*c.f.osz)-1 {
		return undefined
	}
	return v
}

func (c *cursor) length() uint64 { return c.uint(c.f.lsz) }

// name reads up to the next NUL.
func (c *cursor) name() string {
	n := bytes.IndexByte(c.b[c.off:], 0)
	if n < 0 {
		c.cut()
	}
	return string(c.take(n + 1)[:n])
}
