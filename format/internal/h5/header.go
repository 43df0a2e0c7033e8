package h5

import (
	"context"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/guard"
)

// The header messages that the reader uses.
const (
	msgSpace        = 0x01
	msgLinkInfo     = 0x02
	msgType         = 0x03
	msgOldFill      = 0x04
	msgFill         = 0x05
	msgLink         = 0x06
	msgExternal     = 0x07
	msgLayout       = 0x08
	msgFilters      = 0x0b
	msgAttribute    = 0x0c
	msgContinuation = 0x10
	msgSymbols      = 0x11
	msgAttrInfo     = 0x15
)

// message is one message of an object header.
type message struct {
	kind  uint16
	flags uint8
	data  []byte
}

// Object is a group, a data set or a named type.
type Object struct {
	f    *File
	addr uint64
	msgs []message
}

// Address returns the address of the object header. Hard links to one object have the same address.
func (o *Object) Address() uint64 { return o.addr }

// extent is a range of the file. In a header it is a block of messages.
type extent struct{ addr, size uint64 }

// header is an object header while it is read.
type header struct {
	*Object
	messageHeaderBytes int // bytes of a message header: 8 in version 1, 4 or 6 in version 2
	messagesLeft       int // messages of version 1 that were not read yet
	blocksToRead       []extent
	seen               visited
	heldBytes          uint64 // bytes of the blocks that contain the messages
}

// readObject reads the object header at an address.
func (f *File) readObject(ctx context.Context, addr uint64) *Object {
	h := &header{Object: &Object{f: f, addr: addr}, seen: visited{addr: true}}
	switch b := f.readMetadata(ctx, addr, 4, "object header"); {
	case string(b) == "OHDR":
		c := f.newCursor(
			addr,
			"an object header",
			f.readMetadata(ctx, addr, min(34, f.size-min(f.size, addr+f.base)), "object header"),
		)
		c.skip(4)
		version, flags := c.u8(), c.u8()
		if version != 2 {
			f.failUnsupported(addr, "an object header of a version above 2", "")
		}
		c.skip(int(flags>>5&1)*16 + int(flags>>4&1)*4)
		h.messageHeaderBytes = 4 + int(flags>>2&1)*2
		h.heldBytes = c.uint(1 << (flags & 3))
		if h.heldBytes > maxMetadata {
			f.failMalformed(addr, "an object header of %d bytes", h.heldBytes)
		}
		first := c.off
		c = f.readStructure(ctx, addr, uint64(first)+h.heldBytes+4, "OHDR", true)
		c.off = first
		h.parseMessages(c)
		for len(h.blocksToRead) > 0 {
			s := h.blocksToRead[0]
			h.blocksToRead = h.blocksToRead[1:]
			h.parseMessages(f.readStructure(ctx, s.addr, s.size, "OCHK", true))
		}
	case b[0] == 1: // version 1: the message count covers all blocks
		c := f.newCursor(addr, "an object header", f.readMetadata(ctx, addr, 16, "object header"))
		c.skip(2)
		h.messageHeaderBytes, h.messagesLeft = 8, int(c.u16())
		c.skip(4)
		h.heldBytes = uint64(c.u32())
		h.blocksToRead = []extent{{addr + 16, h.heldBytes}}
		for len(h.blocksToRead) > 0 && h.messagesLeft > 0 {
			s := h.blocksToRead[0]
			h.blocksToRead = h.blocksToRead[1:]
			h.parseMessages(
				f.newCursor(
					s.addr,
					"a block of an object header",
					f.readMetadata(ctx, s.addr, s.size, "messages of an object header"),
				),
			)
		}
		if h.messagesLeft > 0 {
			f.failMalformed(
				addr,
				"the object header lacks %d of its messages",
				h.messagesLeft,
			)
		}
	default:
		if addr == f.root {
			e := f.newError(
				robocache.ErrMalformed,
				addr,
				"the file has no root group: its writer has not closed it, or the file is cut",
			)
			e.Hint = "Fetch the file again, or record it again: what the writer kept in memory " +
				"is lost"
			guard.Fail(e)
		}
		f.failMalformed(addr, "no object header")
	}
	return h.Object
}

// parseMessages reads the messages of a block. A remainder that is shorter than a message header is
// a gap.
func (h *header) parseMessages(c *cursor) {
	for c.bytesLeft() >= h.messageHeaderBytes && (h.messageHeaderBytes != 8 || h.messagesLeft > 0) {
		var m message
		var size int
		if h.messageHeaderBytes == 8 {
			m.kind, size, m.flags = c.u16(), int(c.u16()), c.u8()
			c.skip(3)
			h.messagesLeft--
		} else {
			m.kind, size, m.flags = uint16(c.u8()), int(c.u16()), c.u8()
			c.skip(h.messageHeaderBytes - 4)
		}
		m.data = c.takeBytes(size)
		switch m.kind {
		case 0:
		case msgContinuation:
			c := h.f.newCursor(h.addr, "a continuation message", m.data)
			s := extent{c.readAddr(), c.readLength()}
			h.seen.markVisited(h.f, s.addr)
			// Without this limit, overlapping blocks could turn one megabyte into gigabytes of
			// messages.
			h.heldBytes += min(s.size, maxMetadata)
			h.f.checkLimit(h.addr, "the blocks of an object header", h.heldBytes, maxMetadata)
			h.blocksToRead = append(h.blocksToRead, s)
		default:
			h.msgs = append(h.msgs, m)
		}
	}
}

// findMessage returns the first message of a kind, or nil.
func (o *Object) findMessage(kind uint16) *message {
	for i := range o.msgs {
		if o.msgs[i].kind == kind {
			return &o.msgs[i]
		}
	}
	return nil
}

// messageBody returns the data of a message. For a shared message it returns the data of the object
// that the message refers to. It returns nil if m is nil.
func (o *Object) messageBody(ctx context.Context, m *message) []byte {
	switch {
	case m == nil:
		return nil
	case m.flags&2 != 0:
		return o.f.sharedMessage(ctx, o.addr, m.data, m.kind, 0)
	}
	return m.data
}

// sharedMessage follows a reference to a message of another object, a named type.
func (f *File) sharedMessage(
	ctx context.Context,
	from uint64,
	ref []byte,
	kind uint16,
	depth int,
) []byte {
	c := f.newCursor(from, "a shared message", ref)
	version, how := c.u8(), c.u8()
	switch {
	case version == 1:
		c.skip(6)
	case version == 3 && how == 1:
		f.failUnsupported(
			from,
			"a message in the file's table of shared messages",
			"write the file again with h5repack",
		)
	case version != 2 && version != 3:
		f.failMalformed(from, "shared message version %d", version)
	}
	addr := c.readAddr()
	if depth > maxSoft {
		f.failMalformed(from, "a shared message leads nowhere")
	}
	m := f.readObject(ctx, addr).findMessage(kind)
	if m == nil {
		f.failMalformed(addr, "the object that a shared message names has no such message")
	}
	if m.flags&2 != 0 {
		return f.sharedMessage(ctx, addr, m.data, kind, depth+1)
	}
	return m.data
}
