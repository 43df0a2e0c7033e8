package h5

import (
	"bytes"
	"encoding/binary"
)

// undefined is the address that means "not allocated".
const undefined = ^uint64(0)

// cursor reads fields of a piece of metadata. A field beyond the end of the piece fails with
// ErrMalformed (guard.Fail), so callers do not check each field.
type cursor struct {
	f         *File
	pieceAddr uint64 // address and description of the piece, for errors
	what      string
	b         []byte
	off       int
}

func (f *File) newCursor(addr uint64, what string, b []byte) *cursor {
	return &cursor{f: f, pieceAddr: addr, what: what, b: b}
}

func (c *cursor) failCutOff() { c.f.failMalformed(c.pieceAddr, "%s is cut off", c.what) }

func (c *cursor) bytesLeft() int { return len(c.b) - c.off }

// takeBytes returns the next n bytes.
func (c *cursor) takeBytes(n int) []byte {
	if n < 0 || n > c.bytesLeft() {
		c.failCutOff()
	}
	c.off += n
	return c.b[c.off-n : c.off : c.off]
}

func (c *cursor) skip(n int) { c.takeBytes(n) }

// alignTo moves to the next multiple of n, counted from start.
func (c *cursor) alignTo(start, n int) {
	if r := (c.off - start) % n; r != 0 {
		c.skip(n - r)
	}
}

func (c *cursor) u8() uint8   { return c.takeBytes(1)[0] }
func (c *cursor) u16() uint16 { return uint16(c.uint(2)) }
func (c *cursor) u32() uint32 { return uint32(c.uint(4)) }
func (c *cursor) u64() uint64 { return c.uint(8) }

// uint reads a little-endian number of n bytes, 0 to 8.
func (c *cursor) uint(n int) uint64 {
	if n > 8 {
		c.failCutOff()
	}
	return leUint(c.takeBytes(n))
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

// readAddr reads an address. An address whose bits are all set is undefined, in every width.
func (c *cursor) readAddr() uint64 {
	v := c.uint(c.f.osz)
	if c.f.osz < 8 && v == 1<<(8*c.f.osz)-1 {
		return undefined
	}
	return v
}

func (c *cursor) readLength() uint64 { return c.uint(c.f.lsz) }

// readName reads up to the next NUL.
func (c *cursor) readName() string {
	n := bytes.IndexByte(c.b[c.off:], 0)
	if n < 0 {
		c.failCutOff()
	}
	return string(c.takeBytes(n + 1)[:n])
}
