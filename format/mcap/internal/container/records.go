package container

import (
	"encoding/binary"
	"fmt"
	"maps"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/guard"
)

// Op is the opcode of a record.
type Op byte

// Records of version 0 of the format.
const (
	OpHeader          Op = 0x01
	OpFooter          Op = 0x02
	OpSchema          Op = 0x03
	OpChannel         Op = 0x04
	OpMessage         Op = 0x05
	OpChunk           Op = 0x06
	OpMessageIndex    Op = 0x07
	OpChunkIndex      Op = 0x08
	OpAttachment      Op = 0x09
	OpAttachmentIndex Op = 0x0A
	OpStatistics      Op = 0x0B
	OpMetadata        Op = 0x0C
	OpMetadataIndex   Op = 0x0D
	OpSummaryOffset   Op = 0x0E
	OpDataEnd         Op = 0x0F
)

const (
	magic      = "\x89MCAP0\r\n"
	headSize   = 9 // opcode and length
	footerSize = 8 + 8 + 4
	tailSize   = headSize + footerSize + len(magic)
	messageFix = 2 + 4 + 8 + 8 // size of a message before its data
	maxTime    = 1<<63 - 1
)

// Schema describes the messages of channels.
type Schema struct {
	ID             uint16
	Name, Encoding string
	Data           string
}

// Channel is a topic of one publisher.
type Channel struct {
	ID, Schema      uint16
	Topic, Encoding string
	Metadata        map[string]string
}

// Same reports whether two channels with one id have the same content.
func (c *Channel) Same(o *Channel) bool {
	return c.Schema == o.Schema && c.Topic == o.Topic && c.Encoding == o.Encoding &&
		maps.Equal(c.Metadata, o.Metadata)
}

// Message is one message. Data aliases the chunk's records.
type Message struct {
	Channel      uint16
	Sequence     uint32
	Log, Publish int64
	Data         []byte
}

// Statistics is the content of the file's statistics record.
type Statistics struct {
	Messages   uint64
	PerChannel map[uint16]uint64
}

// Place is the position of an attachment or a metadata record.
type Place struct {
	Offset, Length int64 // of the whole record
	Name           string
}

// fieldCursor parses the fields of a record. A missing field sets bad and returns a zero value.
// finish raises the error.
type fieldCursor struct {
	b    []byte
	bad  bool
	off  int64 // offset of the record in the file
	what string
	size int
}

func newCursor(b []byte, off int64, what string) *fieldCursor {
	return &fieldCursor{b: b, off: off, what: what, size: len(b)}
}

// finish raises an error if a field was missing.
func (c *fieldCursor) finish() {
	if c.bad {
		guard.Fail(
			malformed(
				c.off,
				"a "+c.what+" record ends before its fields do, or has a number above 2^63-1",
				"",
				fmt.Sprintf("%d bytes of content", c.size),
			),
		)
	}
}

func (c *fieldCursor) takeBytes(n int) []byte {
	if c.bad || n < 0 || n > len(c.b) {
		c.bad = true
		return nil
	}
	v := c.b[:n]
	c.b = c.b[n:]
	return v
}

// number parses a little-endian number of size bytes.
func (c *fieldCursor) number(size int) (v uint64) {
	for i, b := range c.takeBytes(size) {
		v |= uint64(b) << (8 * i)
	}
	return v
}

func (c *fieldCursor) u16() uint16 { return uint16(c.number(2)) }
func (c *fieldCursor) u32() uint32 { return uint32(c.number(4)) }
func (c *fieldCursor) u64() uint64 { return c.number(8) }

// i64 parses a number that must fit into int64.
func (c *fieldCursor) i64() int64 {
	v := c.u64()
	c.bad = c.bad || v > maxTime
	return int64(v)
}

// byteRun parses bytes with a length prefix. The length must be a multiple of multiple.
func (c *fieldCursor) byteRun(multiple uint32) []byte {
	n := c.u32()
	c.bad = c.bad || n%multiple != 0
	return c.takeBytes(int(n))
}

func (c *fieldCursor) str() string { return string(c.byteRun(1)) }

// stringMap parses a map of strings: its size in bytes, then the pairs.
func (c *fieldCursor) stringMap() map[string]string {
	in := fieldCursor{b: c.byteRun(1)}
	var out map[string]string
	for len(in.b) > 0 && !in.bad {
		k, v := in.str(), in.str()
		if in.bad {
			break
		}
		if out == nil {
			out = map[string]string{}
		}
		out[k] = v
	}
	c.bad = c.bad || in.bad
	return out
}

// malformed returns an error at an offset of the file.
func malformed(off int64, msg, want, got string) error {
	e := robocache.Malformed("mcap", nil, "%s", msg).Expected(want, got)
	if off >= 0 {
		e.Where = robocache.Where{"offset": off}
	}
	return e
}

func parseSchema(b []byte, off int64) *Schema {
	c := newCursor(b, off, "schema")
	s := &Schema{ID: c.u16(), Name: c.str(), Encoding: c.str(), Data: c.str()}
	if c.finish(); s.ID == 0 {
		guard.Fail(malformed(off, "schema id", "1 or more", "0"))
	}
	return s
}

func parseChannel(b []byte, off int64) *Channel {
	c := newCursor(b, off, "channel")
	h := &Channel{
		ID:       c.u16(),
		Schema:   c.u16(),
		Topic:    c.str(),
		Encoding: c.str(),
		Metadata: c.stringMap(),
	}
	c.finish()
	return h
}

// parseMessage parses a message without copying. Times above the maximum of int64 are an error.
func parseMessage(m *Message, b []byte, off int64) error {
	if len(b) < messageFix {
		c := fieldCursor{bad: true, off: off, what: "message", size: len(b)}
		return guard.Try(c.finish)
	}
	log, publish := le64(b[6:]), le64(b[14:])
	if log > maxTime {
		return malformed(off, "log time", "at most 2^63-1 ns", fmt.Sprint(log))
	}
	if publish > maxTime {
		return malformed(off, "publish time", "at most 2^63-1 ns", fmt.Sprint(publish))
	}
	*m = Message{
		Channel:  binary.LittleEndian.Uint16(b),
		Sequence: le32(b[2:]),
		Log:      int64(log),
		Publish:  int64(publish),
		Data:     b[messageFix:],
	}
	return nil
}

func parseStatistics(b []byte, off int64) *Statistics {
	c := newCursor(b, off, "statistics")
	s := &Statistics{Messages: c.u64()}
	// counts of schemas, channels, attachments, metadata records and chunks, and the first and last
	// time
	c.takeBytes(2 + 4*4 + 2*8)
	in := fieldCursor{b: c.byteRun(10)}
	c.finish()
	s.PerChannel = make(map[uint16]uint64, len(in.b)/10)
	for len(in.b) > 0 {
		id := in.u16()
		s.PerChannel[id] = in.u64()
	}
	return s
}

// parseChunkIndex parses a chunk index of the summary. The caller must check the sizes.
func parseChunkIndex(b []byte, off int64) *Chunk {
	c := newCursor(b, off, "chunk index")
	k := &Chunk{Start: c.i64(), End: c.i64(), Offset: c.i64(), Length: c.i64()}
	c.byteRun(10) // offsets of the message indexes of each channel, which are contiguous
	k.IndexLength = c.i64()
	comp := c.str()
	k.Compressed, k.Size = c.i64(), c.i64()
	c.finish()
	k.Compression = parseCompression(comp, off)
	return k
}

// parsePlace parses an attachment index (two times, a size, name, type) or a metadata index (name).
func parsePlace(op Op, b []byte, off int64) Place {
	c := newCursor(b, off, "index")
	p := Place{Offset: c.i64(), Length: c.i64()}
	if op == OpAttachmentIndex {
		c.takeBytes(24)
	}
	p.Name = c.str()
	c.finish()
	return p
}
