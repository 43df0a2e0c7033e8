package h5

import (
	"context"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/guard"
)

// The types of header messages that are read.
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

// message is one of an object header.
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

// Address tells objects of a file apart: hard links to one object share it.
func (o *Object) Address() uint64 { return o.addr }

// stretch is a piece of a file; of a header: one that holds messages.
type stretch struct{ addr, size uint64 }

// header is an object header that is being read.
type header struct {
	*Object
	head int // bytes of a message's head: 8 of version 1, 4 or 6 of version 2
	left int // messages of version 1 that must come still
	todo []stretch
	seen visited
	held uint64 // bytes of the blocks that the messages lie in
}

// object reads the header at an address.
func (f *File) object(ctx context.Context, addr uint64) *Object {
	h := &header{Object: &Object{f: f, addr: addr}, seen: visited{addr: true}}
	switch b := f.metadata(ctx, addr, 4, "object header"); {
	case string(b) == "OHDR":
		c := f.cursor(
			addr,
			"an object header",
			f.metadata(ctx, addr, min(34, f.size-min(f.size, addr+f.base)), "object header"),
		)
		c.skip(4)
		version, flags := c.u8(), c.u8()
		if version != 2 {
			f.unsupported(addr, "an object header of a version above 2", "")
		}
		c.skip(int(flags>>5&1)*16 + int(flags>>4&1)*4)
		h.head = 4 + int(flags>>2&1)*2
		h.held = c.uint(1 << (flags & 3))
		if h.held > maxMetadata {
			f.bad(addr, "an object header of %d bytes", h.held)
		}
		first := c.off
		c = f.structure(ctx, addr, uint64(first)+h.held+4, "OHDR", true)
		c.off = first
		h.messages(c)
		for len(h.todo) > 0 {
			s := h.todo[0]
			h.todo = h.todo[1:]
			h.messages(f.structure(ctx, s.addr, s.size, "OCHK", true))
		}
	case b[0] == 1: // its count of messages runs across the blocks
		c := f.cursor(addr, "an object header", f.metadata(ctx, addr, 16, "object header"))
		c.skip(2)
		h.head, h.left = 8, int(c.u16())
		c.skip(4)
		h.held = uint64(c.u32())
		for h.todo = []stretch{{addr + 16, h.held}}; len(h.todo) > 0 && h.left > 0; {
			s := h.todo[0]
			h.todo = h.todo[1:]
			h.messages(
				f.cursor(
					s.addr,
					"a block of an object header",
					f.metadata(ctx, s.addr, s.size, "messages of an object header"),
				),
			)
		}
		if h.left > 0 {
			f.bad(addr, "the object header says %d messages more than there are", h.left)
		}
	default:
		if addr == f.root {
			e := f.error(
				robocache.ErrMalformed,
				addr,
				"the file has no root group: its writer has not closed it, or the file is cut",
			)
			e.Hint = "Fetch the file again, or record it again: what the writer kept in memory is lost"
			guard.Fail(e)
		}
		f.bad(addr, "no object header")
	}
	return h.Object
}

// messages reads those of a block. What is shorter than a message's head, at its end, is a gap.
func (h *header) messages(c *cursor) {
	for c.left() >= h.head && (h.head != 8 || h.left > 0) {
		var m message
		var size int
		if h.head == 8 {
			m.kind, size, m.flags = c.u16(), int(c.u16()), c.u8()
			c.skip(3)
			h.left--
		} else {
			m.kind, size, m.flags = uint16(c.u8()), int(c.u16()), c.u8()
			c.skip(h.head - 4)
		}
		m.data = c.take(size)
		switch m.kind {
		case 0:
		case msgContinuation:
			c := h.f.cursor(h.addr, "a continuation message", m.data)
			s := stretch{c.addr(), c.length()}
			h.seen.once(h.f, s.addr)
			// Blocks that lie over each other would make gigabytes of messages out of one megabyte.
			h.held += min(s.size, maxMetadata)
			h.f.limit(h.addr, "the blocks of an object header", h.held, maxMetadata)
			h.todo = append(h.todo, s)
		default:
			h.msgs = append(h.msgs, m)
		}
	}
}

// find gives the first message of a kind; nil where there is none.
func (o *Object) find(kind uint16) *message {
	for i := range o.msgs {
		if o.msgs[i].kind == kind {
			return &o.msgs[i]
		}
	}
	return nil
}

// body gives a message's data, of a shared one those of the object that it names; nil where there
// is none.
func (o *Object) body(ctx context.Context, m *message) []byte {
	switch {
	case m == nil:
		return nil
	case m.flags&2 != 0:
		return o.f.shared(ctx, o.addr, m.data, m.kind, 0)
	}
	return m.data
}

// shared follows a reference to a message of another object: a named type.
func (f *File) shared(ctx context.Context, from uint64, ref []byte, kind uint16, depth int) []byte {
	c := f.cursor(from, "a shared message", ref)
	version, how := c.u8(), c.u8()
	switch {
	case version == 1:
		c.skip(6)
	case version == 3 && how == 1:
		f.unsupported(
			from,
			"a message in the file's table of shared messages",
			"write the file again with h5repack",
		)
	case version != 2 && version != 3:
		f.bad(from, "shared message version %d", version)
	}
	addr := c.addr()
	if depth > maxSoft {
		f.bad(from, "a shared message leads nowhere")
	}
	m := f.object(ctx, addr).find(kind)
	if m == nil {
		f.bad(addr, "the object that a shared message names has no such message")
	}
	if m.flags&2 != 0 {
		return f.shared(ctx, addr, m.data, kind, depth+1)
	}
	return m.data
}
