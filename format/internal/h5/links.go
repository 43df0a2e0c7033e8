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
	External string // of an external link: the file; Soft is the path in it
}

// Hard says that the link names an object of the file.
func (l *Link) Hard() bool { return l.addr != undefined }

// Address is that of the object of a hard link.
func (l *Link) Address() uint64 { return l.addr }

// IsGroup says that the object holds links.
func (o *Object) IsGroup() bool {
	return o.find(msgSymbols) != nil || o.find(msgLinkInfo) != nil || o.find(msgLink) != nil
}

// IsDataset says that the object holds data.
func (o *Object) IsDataset() bool { return o.find(msgLayout) != nil }

// Links lists the links of a group by name.
func (o *Object) Links(ctx context.Context) (out []Link, err error) {
	defer guard.Recover("hdf5", &err)
	f := o.f
	for i := range o.msgs {
		switch m := &o.msgs[i]; m.kind {
		case msgSymbols:
			c := f.cursor(o.addr, "a symbol table message", m.data)
			out = f.symbols(ctx, c.addr(), c.addr(), out)
		case msgLink:
			out = append(out, f.link(o.addr, m.data))
		case msgLinkInfo:
			o.dense(
				ctx,
				m,
				8,
				recLinkName,
				func(heap uint64, b []byte, _ *cursor) { out = append(out, f.link(heap, b)) },
			)
		}
	}
	slices.SortFunc(out, func(a, b Link) int { return strings.Compare(a.Name, b.Name) })
	for i := 1; i < len(out); i++ {
		if out[i].Name == out[i-1].Name {
			f.bad(o.addr, "two links named %q", out[i].Name)
		}
	}
	return out, nil
}

// symbols reads the links of an old group: a tree of nodes, and a heap of their names.
func (f *File) symbols(ctx context.Context, tree, heapAddr uint64, out []Link) []Link {
	c := f.structure(ctx, heapAddr, uint64(8+2*f.lsz+f.osz), "HEAP", false)
	c.skip(4)
	size := c.length()
	c.length()
	heap := f.cursor(
		heapAddr,
		"a name in a group's heap",
		f.metadata(ctx, c.addr(), size, "local heap"),
	)
	held := uint64(0) // bytes of names: entries may share one, and would then make much of little
	name := func(at uint64) string {
		if at >= size {
			heap.cut()
		}
		heap.off = int(at)
		s := heap.name()
		if len(s) > maxPath {
			heap.cut()
		}
		held += uint64(len(s))
		f.limit(heapAddr, "the names of a group", held, maxMetadata)
		return s
	}
	seen := visited{}
	f.tree1(ctx, tree, 0, f.lsz, func(_ []byte, child uint64) {
		seen.once(f, child)
		c := f.structure(ctx, child, 8, "SNOD", false)
		c.skip(2)
		n := int(c.u16())
		c = f.structure(ctx, child, uint64(8+n*(2*f.osz+24)), "SNOD", false)
		c.skip(4)
		for range n {
			at, l := c.addr(), Link{addr: c.addr()}
			kind := c.u32()
			c.skip(4)
			scratch := c.take(16)
			if l.Name = name(at); kind == 2 {
				l.addr, l.Soft = undefined, name(leUint(scratch[:4]))
			}
			out = append(out, l)
		}
	})
	return out
}

// link parses a link message.
func (f *File) link(addr uint64, b []byte) Link {
	c := f.cursor(addr, "a link message", b)
	version, flags := c.u8(), c.u8()
	if version != 1 {
		f.unsupported(addr, fmt.Sprintf("link message version %d", version), "")
	}
	var kind uint8
	if flags&8 != 0 {
		kind = c.u8()
	}
	c.skip(int(flags>>2&1)*8 + int(flags>>4&1)) // order of creation, character set
	n := c.uint(1 << (flags & 3))
	if n > maxPath {
		f.bad(addr, "a name of %d bytes", n)
	}
	l := Link{addr: undefined, Name: string(c.take(int(n)))}
	switch kind {
	case 0:
		l.addr = c.addr()
	case 1:
		l.Soft = string(c.take(int(c.u16())))
	case 64:
		if v := c.take(int(c.u16())); len(v) > 0 {
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

// Root is the root group.
func (f *File) Root(ctx context.Context) (*Object, error) { return f.At(ctx, f.root) }

// At reads the object at an address: that of a hard link, or of an object.
func (f *File) At(ctx context.Context, addr uint64) (o *Object, err error) {
	defer guard.Recover("hdf5", &err)
	return f.object(ctx, addr), nil
}

// Lookup finds an object by path, along hard and soft links. ErrNotFound where there is none;
// ErrUnsupported behind an external link.
func (f *File) Lookup(ctx context.Context, path string) (_ *Object, err error) {
	defer guard.Recover("hdf5", &err)
	soft := 0
	return f.object(ctx, f.root).lookup(ctx, path, &soft), nil
}

// Lookup finds an object by a path that begins at o, or at the root where it begins with "/".
func (o *Object) Lookup(ctx context.Context, path string) (_ *Object, err error) {
	defer guard.Recover("hdf5", &err)
	soft := 0
	return o.lookup(ctx, path, &soft), nil
}

func (o *Object) lookup(ctx context.Context, path string, soft *int) *Object {
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
		at = f.object(ctx, f.root)
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
		at = at.follow(ctx, &links[i], path, soft)
	}
	return at
}

// Follow gives the object that a link of o names. Whoever has the links of a group comes to its
// objects by it: Lookup lists them anew for each name.
func (o *Object) Follow(ctx context.Context, l *Link) (_ *Object, err error) {
	defer guard.Recover("hdf5", &err)
	soft := 0
	return o.follow(ctx, l, l.Name, &soft), nil
}

func (o *Object) follow(ctx context.Context, l *Link, path string, soft *int) *Object {
	if l.Hard() {
		return o.f.object(ctx, l.addr)
	}
	if l.External != "" {
		guard.Fail(
			robocache.Unsupported("hdf5", robocache.Where{"file": o.f.name, "pointer": l.Name}, "an external link to %q in %q", l.Soft, l.External).
				WithHint("links out of a file are not followed; copy the data in with h5copy or h5repack"),
		)
	}
	if *soft++; *soft > maxSoft {
		guard.Fail(
			robocache.Malformed("hdf5", robocache.Where{"file": o.f.name, "pointer": path}, "soft links go round in a circle").
				Expected(fmt.Sprintf("at most %d on the way", maxSoft), l.Soft),
		)
	}
	return o.lookup(ctx, l.Soft, soft)
}
