package h5

import (
	"context"
	"fmt"
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
	held uint64 // bytes of the blocks that the messages lie in
}

// Address tells objects of a file apart: hard links to one object share it.
func (o *Object) Address() uint64 { return o.addr }

// object reads the header at an address.
func (f *File) object(ctx context.Context, addr uint64) (*Object, error) {
	b, err := f.metadata(ctx, addr, 4, "object header")
	if err != nil {
		return nil, err
	}
	o := &Object{f: f, addr: addr}
	switch {
	case string(b) == "OHDR":
		err = o.readNew(ctx)
	case b[0] == 1:
		err = o.readOld(ctx)
	default:
		err = f.bad(addr, "no object header")
	}
	if err != nil {
		return nil, err
	}
	return o, nil
}

// stretch is a piece of a header that holds messages.
type stretch struct{ addr, size uint64 }

// readOld reads a header of version 1. Its count of messages runs across continuation blocks.
func (o *Object) readOld(ctx context.Context) error {
	f := o.f
	b, err := f.metadata(ctx, o.addr, 16, "object header")
	if err != nil {
		return err
	}
	c := f.cursor(b)
	c.skip(2)
	count := int(c.u16())
	c.skip(4)
	todo := []stretch{{o.addr + 16, uint64(c.u32())}}
	seen := map[uint64]bool{o.addr + 16: true}
	o.held = todo[0].size
	read := 0
	for len(todo) > 0 && read < count {
		s := todo[0]
		todo = todo[1:]
		if b, err = f.metadata(ctx, s.addr, s.size, "messages of an object header"); err != nil {
			return err
		}
		c := f.cursor(b)
		for c.left() >= 8 && read < count {
			kind, size, flags := c.u16(), int(c.u16()), c.u8()
			c.skip(3)
			data := c.take(size)
			if c.short {
				return f.bad(s.addr, "a message of the object header ends after its block")
			}
			read++
			if err := o.add(message{kind, flags, data}, &todo, seen); err != nil {
				return err
			}
		}
	}
	if read < count {
		return f.bad(o.addr, fmt.Sprintf("the object header says %d messages, there are %d", count, read))
	}
	return nil
}

// readNew reads a header of version 2.
func (o *Object) readNew(ctx context.Context) error {
	f := o.f
	b, err := f.metadata(ctx, o.addr, min(34, f.size-min(f.size, o.addr+f.base)), "object header")
	if err != nil {
		return err
	}
	c := f.cursor(b)
	c.skip(4)
	if v := c.u8(); v != 2 {
		return f.unsupported(o.addr, fmt.Sprintf("object header version %d", v), "")
	}
	flags := c.u8()
	if flags&0x20 != 0 {
		c.skip(16)
	}
	if flags&0x10 != 0 {
		c.skip(4)
	}
	size := c.uint(1 << (flags & 3))
	head := uint64(c.off)
	if c.short || size > maxMetadata {
		return f.bad(o.addr, "the object header is cut off, or its size is wrong")
	}
	var todo []stretch
	seen := map[uint64]bool{o.addr: true}
	o.held = size
	if c, err = f.structure(ctx, o.addr, head+size+4, "OHDR", true); err != nil {
		return err
	}
	c.off = int(head)
	// What is shorter than a message's head, at the end of a block, is a gap.
	least := 4
	if flags&4 != 0 {
		least = 6
	}
	block := o.addr
	for {
		for c.left() >= least {
			kind, size, mf := uint16(c.u8()), int(c.u16()), c.u8()
			if flags&4 != 0 {
				c.skip(2)
			}
			data := c.take(size)
			if c.short {
				return f.bad(block, fmt.Sprintf("a message of %d bytes of the object header ends after its block", size))
			}
			if err := o.add(message{kind, mf, data}, &todo, seen); err != nil {
				return err
			}
		}
		if len(todo) == 0 {
			return nil
		}
		block = todo[0].addr
		if c, err = f.structure(ctx, block, todo[0].size, "OCHK", true); err != nil {
			return err
		}
		todo = todo[1:]
	}
}

// add keeps a message, or the place where a header goes on.
func (o *Object) add(m message, todo *[]stretch, seen map[uint64]bool) error {
	switch {
	case m.kind == msgContinuation:
		c := o.f.cursor(m.data)
		s := stretch{c.addr(), c.length()}
		if c.short {
			return o.f.bad(o.addr, "a continuation message is cut off")
		}
		if seen[s.addr] {
			return o.f.bad(o.addr, "the object header goes round in a circle")
		}
		seen[s.addr] = true
		// Blocks that lie over each other would make gigabytes of messages out of one megabyte.
		if o.held += min(s.size, maxMetadata); o.held > maxMetadata {
			return o.f.limit(o.addr, "the blocks of an object header", o.held, maxMetadata)
		}
		*todo = append(*todo, s)
	case m.kind == 0:
	default:
		o.msgs = append(o.msgs, m)
	}
	return nil
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

// body gives a message's data, of a shared one those of the object that it names.
func (o *Object) body(ctx context.Context, m *message) ([]byte, error) {
	if m.flags&2 == 0 {
		return m.data, nil
	}
	return o.f.shared(ctx, o.addr, o.f.cursor(m.data), m.kind, 0)
}

// shared follows a reference to a message of another object: a named type.
func (f *File) shared(ctx context.Context, from uint64, c *cursor, kind uint16, depth int) ([]byte, error) {
	version, how := c.u8(), c.u8()
	var addr uint64
	switch {
	case version == 1:
		c.skip(6)
		addr = c.addr()
	case version == 2 || version == 3 && how != 1:
		addr = c.addr()
	case version == 3:
		return nil, f.unsupported(from, "a message in the file's table of shared messages", "write the file again with h5repack")
	default:
		return nil, f.bad(from, fmt.Sprintf("shared message version %d", version))
	}
	if c.short || depth > maxSoft {
		return nil, f.bad(from, "a shared message leads nowhere")
	}
	o, err := f.object(ctx, addr)
	if err != nil {
		return nil, err
	}
	m := o.find(kind)
	if m == nil {
		return nil, f.bad(addr, "the object that a shared message names has no such message")
	}
	if m.flags&2 != 0 {
		return f.shared(ctx, addr, f.cursor(m.data), kind, depth+1)
	}
	return m.data, nil
}
