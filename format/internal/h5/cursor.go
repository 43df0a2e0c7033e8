package h5

import "encoding/binary"

// undefined is the address that stands for "nowhere".
const undefined = ^uint64(0)

// cursor walks over bytes that were read. What lies past their end reads as zero and sets short: one check at the end replaces one a field.
type cursor struct {
	b        []byte
	off      int
	osz, lsz int // bytes of an address and of a length
	short    bool
}

func (c *cursor) left() int {
	if c.short {
		return 0
	}
	return len(c.b) - c.off
}

// take gives the next n bytes, nil past the end.
func (c *cursor) take(n int) []byte {
	if n < 0 || c.short || n > len(c.b)-c.off {
		c.short = true
		return nil
	}
	p := c.b[c.off : c.off+n : c.off+n]
	c.off += n
	return p
}

func (c *cursor) skip(n int) { c.take(n) }

// align moves to the next multiple of n, counted from start.
func (c *cursor) align(start, n int) {
	if r := (c.off - start) % n; r != 0 {
		c.take(n - r)
	}
}

func (c *cursor) u8() uint8 {
	if p := c.take(1); p != nil {
		return p[0]
	}
	return 0
}

func (c *cursor) u16() uint16 { return uint16(c.uint(2)) }
func (c *cursor) u32() uint32 { return uint32(c.uint(4)) }
func (c *cursor) u64() uint64 { return c.uint(8) }

// uint reads n bytes, 0 to 8, little-endian.
func (c *cursor) uint(n int) uint64 {
	if n > 8 {
		c.short = true
		return 0
	}
	p := c.take(n)
	if p == nil {
		return 0
	}
	return leUint(p)
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
	v := c.uint(c.osz)
	if c.osz < 8 && v == 1<<(8*c.osz)-1 {
		return undefined
	}
	return v
}

func (c *cursor) length() uint64 { return c.uint(c.lsz) }

// name reads up to the next NUL.
func (c *cursor) name() string {
	if !c.short {
		for i := c.off; i < len(c.b); i++ {
			if c.b[i] == 0 {
				s := string(c.b[c.off:i])
				c.off = i + 1
				return s
			}
		}
	}
	c.short = true
	return ""
}
