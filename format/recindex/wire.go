package recindex

import (
	"encoding/binary"
	"errors"
)

// errShort reports that a payload ends too early or contains an impossible number.
var errShort = errors.New("the bytes end too early")

// AppendText appends a text with its length.
func AppendText(b []byte, text string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(text))), text...)
}

// AppendNumber appends a number that is not negative.
func AppendNumber(b []byte, n int64) []byte { return binary.AppendUvarint(b, uint64(max(0, n))) }

// Cursor reads what AppendText and AppendNumber wrote. After the first fault, all results are zero
// and Err returns the fault.
type Cursor struct {
	rest   []byte
	failed bool
}

// NewCursor returns a cursor at the beginning of b.
func NewCursor(b []byte) *Cursor { return &Cursor{rest: b} }

// Err returns an error if a read failed.
func (c *Cursor) Err() error {
	if c.failed {
		return errShort
	}
	return nil
}

// Rest returns the bytes that were not read.
func (c *Cursor) Rest() []byte { return c.rest }

// Number reads a number that is not negative.
func (c *Cursor) Number() int64 {
	v, n := binary.Uvarint(c.rest)
	if n <= 0 || v > 1<<62 {
		c.failed, c.rest = true, nil
		return 0
	}
	c.rest = c.rest[n:]
	return int64(v)
}

// Count reads the number of elements that follow. Each element takes at least one byte, so a larger
// number is a fault.
func (c *Cursor) Count() int {
	n := c.Number()
	if n > int64(len(c.rest)) {
		c.failed, c.rest = true, nil
		return 0
	}
	return int(n)
}

// Bytes reads a byte string. The result aliases the bytes of the cursor.
func (c *Cursor) Bytes() []byte {
	n := c.Count()
	out := c.rest[:n:n]
	c.rest = c.rest[n:]
	return out
}

// Text reads a text.
func (c *Cursor) Text() string { return string(c.Bytes()) }
