package h5

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/goatnote-inc/robocache"
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
func (o *Object) Links(ctx context.Context) ([]Link, error) {
	var out []Link
	f := o.f
	for i := range o.msgs {
		m := &o.msgs[i]
		var err error
		switch m.kind {
		case msgSymbols:
			c := f.cursor(m.data)
			tree, heap := c.addr(), c.addr()
			if c.short {
				return nil, f.bad(o.addr, "a symbol table message is cut off")
			}
			out, err = f.symbols(ctx, tree, heap, out)
		case msgLink:
			var l Link
			if l, err = f.link(o.addr, m.data); err == nil {
				out = append(out, l)
			}
		case msgLinkInfo:
			c := f.cursor(m.data)
			version, flags := c.u8(), c.u8()
			if flags&1 != 0 {
				c.skip(8)
			}
			heap, tree := c.addr(), c.addr()
			if version != 0 || c.short {
				return nil, f.bad(o.addr, "a link info message is cut off, or of another version")
			}
			if heap != undefined {
				out, err = f.denseLinks(ctx, heap, tree, out)
			}
		}
		if err != nil {
			return nil, err
		}
	}
	slices.SortFunc(out, func(a, b Link) int { return strings.Compare(a.Name, b.Name) })
	for i := 1; i < len(out); i++ {
		if out[i].Name == out[i-1].Name {
			return nil, f.bad(o.addr, fmt.Sprintf("two links named %q", out[i].Name))
		}
	}
	return out, nil
}

// localHeap gives the data of a local heap.
func (f *File) localHeap(ctx context.Context, addr uint64) (*cursor, error) {
	c, err := f.structure(ctx, addr, uint64(8+2*f.lsz+f.osz), "HEAP", false)
	if err != nil {
		return nil, err
	}
	c.skip(4)
	size := c.length()
	c.length()
	b, err := f.metadata(ctx, c.addr(), size, "local heap")
	if err != nil {
		return nil, err
	}
	return f.cursor(b), nil
}

func (f *File) symbols(ctx context.Context, tree, heapAddr uint64, out []Link) ([]Link, error) {
	heap, err := f.localHeap(ctx, heapAddr)
	if err != nil {
		return nil, err
	}
	held := 0 // bytes of names: entries may share one, and would then make much of little
	name := func(at uint64) (string, error) {
		if at >= uint64(len(heap.b)) {
			return "", f.bad(heapAddr, fmt.Sprintf("a name at %d of a heap of %d bytes", at, len(heap.b)))
		}
		heap.off, heap.short = int(at), false
		s := heap.name()
		if heap.short || len(s) > maxPath {
			return "", f.bad(heapAddr, "a name without end")
		}
		if held += len(s); held > maxMetadata {
			return "", f.limit(heapAddr, "the names of a group", uint64(held), maxMetadata)
		}
		return s, nil
	}
	seen := map[uint64]bool{}
	err = f.tree1(ctx, tree, 0, f.lsz, func(_ []byte, child uint64) error {
		if seen[child] {
			return f.bad(child, "a symbol table node is there twice")
		}
		seen[child] = true
		c, err := f.structure(ctx, child, 8, "SNOD", false)
		if err != nil {
			return err
		}
		c.skip(2)
		n := int(c.u16())
		if c, err = f.structure(ctx, child, uint64(8+n*(2*f.osz+24)), "SNOD", false); err != nil {
			return err
		}
		c.off = 8
		for range n {
			at, l := c.addr(), Link{addr: c.addr()}
			kind := c.u32()
			c.skip(4)
			scratch := c.take(16)
			if l.Name, err = name(at); err != nil {
				return err
			}
			if kind == 2 {
				l.addr = undefined
				if l.Soft, err = name(leUint(scratch[:4])); err != nil {
					return err
				}
			}
			out = append(out, l)
		}
		return nil
	})
	return out, err
}

// link parses a link message.
func (f *File) link(addr uint64, b []byte) (Link, error) {
	c := f.cursor(b)
	version, flags := c.u8(), c.u8()
	if version != 1 {
		return Link{}, f.unsupported(addr, fmt.Sprintf("link message version %d", version), "")
	}
	var kind uint8
	if flags&8 != 0 {
		kind = c.u8()
	}
	if flags&4 != 0 {
		c.skip(8)
	}
	if flags&16 != 0 {
		c.skip(1)
	}
	l := Link{addr: undefined}
	n := c.uint(1 << (flags & 3))
	if n > maxPath {
		return Link{}, f.bad(addr, fmt.Sprintf("a name of %d bytes", n))
	}
	l.Name = string(c.take(int(n)))
	switch kind {
	case 0:
		l.addr = c.addr()
	case 1:
		l.Soft = string(c.take(int(c.u16())))
	case 64:
		v := c.take(int(c.u16()))
		if len(v) > 0 {
			file, path, _ := strings.Cut(string(v[1:]), "\x00")
			l.External, l.Soft = file, strings.TrimRight(path, "\x00")
		}
		if l.External == "" {
			l.External = "?"
		}
	default:
		l.External, l.Soft = fmt.Sprintf("a user-defined link of type %d", kind), "?"
	}
	if c.short {
		return Link{}, f.bad(addr, "a link message is cut off")
	}
	return l, nil
}

func (f *File) denseLinks(ctx context.Context, heap, tree uint64, out []Link) ([]Link, error) {
	h, err := f.fractalHeap(ctx, heap)
	if err != nil {
		return nil, err
	}
	err = f.tree2(ctx, tree, []uint8{recLinkName}, func(_ uint8, rec []byte) error {
		if len(rec) < 4+h.idLength {
			return f.bad(tree, "a record of a group's index is too short")
		}
		b, err := h.object(ctx, rec[4:])
		if err != nil {
			return err
		}
		l, err := f.link(heap, b)
		out = append(out, l)
		return err
	})
	return out, err
}

// Root is the root group.
func (f *File) Root(ctx context.Context) (*Object, error) { return f.object(ctx, f.root) }

// At reads the object at an address: that of a hard link, or of an object.
func (f *File) At(ctx context.Context, addr uint64) (*Object, error) { return f.object(ctx, addr) }

func (f *File) external(l *Link) error {
	if l.External != "" {
		return &robocache.Error{Class: robocache.ErrUnsupported, Op: "hdf5", Where: robocache.Where{"file": f.name, "pointer": l.Name}, Msg: fmt.Sprintf("an external link to %q in %q", l.Soft, l.External), Hint: "links out of a file are not followed; copy the data in with h5copy or h5repack"}
	}
	return f.bad(undefined, fmt.Sprintf("link %q names no object", l.Name))
}

// Lookup finds an object by path, along hard and soft links. ErrNotFound where there is none; ErrUnsupported behind an external link.
func (f *File) Lookup(ctx context.Context, path string) (*Object, error) {
	root, err := f.Root(ctx)
	if err != nil {
		return nil, err
	}
	return root.Lookup(ctx, path)
}

// Lookup finds an object by a path that begins at o, or at the root where it begins with "/".
func (o *Object) Lookup(ctx context.Context, path string) (*Object, error) {
	soft := 0
	return o.lookup(ctx, path, &soft)
}

func (o *Object) lookup(ctx context.Context, path string, soft *int) (*Object, error) {
	f := o.f
	missing := func(name string) error {
		return &robocache.Error{Class: robocache.ErrNotFound, Op: "hdf5", Where: robocache.Where{"file": f.name, "pointer": path}, Msg: fmt.Sprintf("no object %q", name)}
	}
	if len(path) > maxPath {
		return nil, missing(path[:64])
	}
	at := o
	if strings.HasPrefix(path, "/") {
		var err error
		if at, err = f.Root(ctx); err != nil {
			return nil, err
		}
	}
	for name := range strings.SplitSeq(path, "/") {
		if name == "" || name == "." {
			continue
		}
		links, err := at.Links(ctx)
		if err != nil {
			return nil, err
		}
		i, ok := slices.BinarySearchFunc(links, name, func(l Link, n string) int { return strings.Compare(l.Name, n) })
		if !ok {
			return nil, missing(name)
		}
		at, err = at.follow(ctx, &links[i], path, soft)
		if err != nil {
			return nil, err
		}
	}
	return at, nil
}

// Follow gives the object that a link of o names. Whoever has the links of a group comes to its objects by it: Lookup lists them anew for each name.
func (o *Object) Follow(ctx context.Context, l *Link) (*Object, error) {
	soft := 0
	return o.follow(ctx, l, l.Name, &soft)
}

func (o *Object) follow(ctx context.Context, l *Link, path string, soft *int) (*Object, error) {
	switch {
	case l.Hard():
		return o.f.object(ctx, l.addr)
	case l.External != "":
		return nil, o.f.external(l)
	}
	if *soft++; *soft > maxSoft {
		return nil, &robocache.Error{Class: robocache.ErrMalformed, Op: "hdf5", Where: robocache.Where{"file": o.f.name, "pointer": path}, Msg: "soft links go round in a circle", Got: l.Soft, Want: fmt.Sprintf("at most %d on the way", maxSoft)}
	}
	return o.lookup(ctx, l.Soft, soft)
}
