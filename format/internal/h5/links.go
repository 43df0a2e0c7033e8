package h5

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/guard"
)

// Link is an entry of a group.
type Link struct {
	Name     string
	addr     uint64
	Soft     string // path of a soft link
	External string // file of an external link; Soft is the path in that file
}

// Hard reports whether the link refers to an object of this file.
func (l *Link) Hard() bool { return l.addr != undefined }

// Address returns the address of the object that a hard link refers to.
func (l *Link) Address() uint64 { return l.addr }

// IsGroup reports whether the object can contain links.
func (o *Object) IsGroup() bool {
	return o.findMessage(msgSymbols) != nil || o.findMessage(msgLinkInfo) != nil ||
		o.findMessage(msgLink) != nil
}

// IsDataset reports whether the object is a data set.
func (o *Object) IsDataset() bool { return o.findMessage(msgLayout) != nil }

// Links returns the links of a group, sorted by name.
func (o *Object) Links(ctx context.Context) (out []Link, err error) {
	defer guard.Recover("hdf5", &err)
	f := o.f
	for i := range o.msgs {
		switch m := &o.msgs[i]; m.kind {
		case msgSymbols:
			c := f.newCursor(o.addr, "a symbol table message", m.data)
			out = f.readSymbolTable(ctx, c.readAddr(), c.readAddr(), out)
		case msgLink:
			out = append(out, f.parseLink(o.addr, m.data))
		case msgLinkInfo:
			o.forEachDense(
				ctx,
				m,
				8,
				recLinkName,
				func(heap uint64, b []byte, _ *cursor) { out = append(out, f.parseLink(heap, b)) },
			)
		}
	}
	slices.SortFunc(out, func(a, b Link) int { return strings.Compare(a.Name, b.Name) })
	for i := 1; i < len(out); i++ {
		if out[i].Name == out[i-1].Name {
			f.failMalformed(o.addr, "two links named %q", out[i].Name)
		}
	}
	return out, nil
}

// readSymbolTable reads the links of an old group, which has a tree of nodes and a heap of names.
func (f *File) readSymbolTable(ctx context.Context, tree, heapAddr uint64, out []Link) []Link {
	c := f.readStructure(ctx, heapAddr, uint64(8+2*f.lsz+f.osz), "HEAP", false)
	c.skip(4)
	size := c.readLength()
	c.readLength()
	heap := f.newCursor(
		heapAddr,
		"a name in a group's heap",
		f.readMetadata(ctx, c.readAddr(), size, "local heap"),
	)
	// total bytes of names: entries may share one name, so a small file could produce a large list
	held := uint64(0)
	name := func(at uint64) string {
		if at >= size {
			heap.failCutOff()
		}
		heap.off = int(at)
		s := heap.readName()
		if len(s) > maxPath {
			heap.failCutOff()
		}
		held += uint64(len(s))
		f.checkLimit(heapAddr, "the names of a group", held, maxMetadata)
		return s
	}
	seen := visited{}
	f.walkBTree1(ctx, tree, 0, f.lsz, func(_ []byte, child uint64) {
		seen.markVisited(f, child)
		c := f.readStructure(ctx, child, 8, "SNOD", false)
		c.skip(2)
		n := int(c.u16())
		c = f.readStructure(ctx, child, uint64(8+n*(2*f.osz+24)), "SNOD", false)
		c.skip(4)
		for range n {
			at, l := c.readAddr(), Link{addr: c.readAddr()}
			kind := c.u32()
			c.skip(4)
			scratch := c.takeBytes(16)
			if l.Name = name(at); kind == 2 {
				l.addr, l.Soft = undefined, name(leUint(scratch[:4]))
			}
			out = append(out, l)
		}
	})
	return out
}

// parseLink parses a link message.
func (f *File) parseLink(addr uint64, b []byte) Link {
	c := f.newCursor(addr, "a link message", b)
	version, flags := c.u8(), c.u8()
	if version != 1 {
		f.failUnsupported(addr, fmt.Sprintf("link message version %d", version), "")
	}
	var kind uint8
	if flags&8 != 0 {
		kind = c.u8()
	}
	c.skip(int(flags>>2&1)*8 + int(flags>>4&1)) // creation order, character set
	n := c.uint(1 << (flags & 3))
	if n > maxPath {
		f.failMalformed(addr, "a name of %d bytes", n)
	}
	l := Link{addr: undefined, Name: string(c.takeBytes(int(n)))}
	switch kind {
	case 0:
		l.addr = c.readAddr()
	case 1:
		l.Soft = string(c.takeBytes(int(c.u16())))
	case 64:
		if v := c.takeBytes(int(c.u16())); len(v) > 0 {
			file, path, _ := strings.Cut(string(v[1:]), "\x00")
			l.External, l.Soft = file, strings.TrimRight(path, "\x00")
		}
		if l.External == "" {
			l.External = "?"
		}
	default:
		l.External, l.Soft = fmt.Sprintf("a user-defined link of type %d", kind), "?"
	}
	return l
}

// Root returns the root group.
func (f *File) Root(ctx context.Context) (*Object, error) { return f.At(ctx, f.root) }

// At reads the object at an address, which comes from a hard link or from an object.
func (f *File) At(ctx context.Context, addr uint64) (o *Object, err error) {
	defer guard.Recover("hdf5", &err)
	return f.readObject(ctx, addr), nil
}

// Lookup returns the object at a path. It follows hard and soft links. It returns ErrNotFound if
// there is no such object, and ErrUnsupported if an external link is on the path.
func (f *File) Lookup(ctx context.Context, path string) (_ *Object, err error) {
	defer guard.Recover("hdf5", &err)
	soft := 0
	return f.readObject(ctx, f.root).lookupPath(ctx, path, &soft), nil
}

// Lookup returns the object at a path that is relative to o, or to the root if it begins with "/".
func (o *Object) Lookup(ctx context.Context, path string) (_ *Object, err error) {
	defer guard.Recover("hdf5", &err)
	soft := 0
	return o.lookupPath(ctx, path, &soft), nil
}

func (o *Object) lookupPath(ctx context.Context, path string, soft *int) *Object {
	f := o.f
	missing := func(name string) {
		guard.Fail(
			robocache.NotFound(
				"hdf5",
				robocache.Where{"file": f.name, "pointer": path},
				"no object %q",
				name,
			),
		)
	}
	if len(path) > maxPath {
		missing(path[:64])
	}
	at := o
	if strings.HasPrefix(path, "/") {
		at = f.readObject(ctx, f.root)
	}
	for name := range strings.SplitSeq(path, "/") {
		if name == "" || name == "." {
			continue
		}
		links := guard.Must(at.Links(ctx))
		i, ok := slices.BinarySearchFunc(
			links,
			name,
			func(l Link, n string) int { return strings.Compare(l.Name, n) },
		)
		if !ok {
			missing(name)
		}
		at = at.followLink(ctx, &links[i], path, soft)
	}
	return at
}

// Follow returns the object that a link of o refers to. Use Follow if the links of the group are
// known, because Lookup lists them again for each name.
func (o *Object) Follow(ctx context.Context, l *Link) (_ *Object, err error) {
	defer guard.Recover("hdf5", &err)
	soft := 0
	return o.followLink(ctx, l, l.Name, &soft), nil
}

func (o *Object) followLink(ctx context.Context, l *Link, path string, soft *int) *Object {
	if l.Hard() {
		return o.f.readObject(ctx, l.addr)
	}
	if l.External != "" {
		guard.Fail(
			robocache.Unsupported(
				"hdf5",
				robocache.Where{"file": o.f.name, "pointer": l.Name},
				"an external link to %q in %q",
				l.Soft,
				l.External,
			).
				WithHint("links out of a file are not followed; copy the data in with h5copy or " +
					"h5repack"),
		)
	}
	if *soft++; *soft > maxSoft {
		guard.Fail(
			robocache.Malformed(
				"hdf5",
				robocache.Where{"file": o.f.name, "pointer": path},
				"soft links go round in a circle",
			).
				Expected(fmt.Sprintf("at most %d on the way", maxSoft), l.Soft),
		)
	}
	return o.lookupPath(ctx, l.Soft, soft)
}
