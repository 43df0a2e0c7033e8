package h5

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/goatnote-inc/robocache"
)

// Attribute is a named value of an object.
type Attribute struct {
	Name  string
	Type  *Type
	Shape []int64
	Null  bool
	f     *File
	raw   []byte
}

// Attributes lists an object's attributes by name.
func (o *Object) Attributes(ctx context.Context) ([]Attribute, error) {
	var out []Attribute
	f := o.f
	for i := range o.msgs {
		m := &o.msgs[i]
		switch m.kind {
		case msgAttribute:
			b, err := o.body(ctx, m)
			if err != nil {
				return nil, err
			}
			a, err := f.attribute(ctx, o.addr, b)
			if err != nil {
				return nil, err
			}
			out = append(out, *a)
		case msgAttrInfo:
			c := f.cursor(m.data)
			version, flags := c.u8(), c.u8()
			if flags&1 != 0 {
				c.skip(2)
			}
			heap, tree := c.addr(), c.addr()
			if version != 0 || c.short {
				return nil, f.bad(o.addr, "an attribute info message is cut off, or of another version")
			}
			if heap == undefined {
				continue
			}
			h, err := f.fractalHeap(ctx, heap)
			if err != nil {
				return nil, err
			}
			err = f.tree2(ctx, tree, []uint8{recAttrName}, func(_ uint8, rec []byte) error {
				if len(rec) < h.idLength+1 {
					return f.bad(tree, "a record of the attributes' index is too short")
				}
				b, err := h.object(ctx, rec)
				if err != nil {
					return err
				}
				if rec[h.idLength]&2 != 0 {
					return f.unsupported(tree, "an attribute in the file's table of shared messages", "write the file again with h5repack")
				}
				a, err := f.attribute(ctx, heap, b)
				if err == nil {
					out = append(out, *a)
				}
				return err
			})
			if err != nil {
				return nil, err
			}
		}
	}
	slices.SortStableFunc(out, func(a, b Attribute) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}

// Attribute finds one by name; nil where there is none.
func (o *Object) Attribute(ctx context.Context, name string) (*Attribute, error) {
	all, err := o.Attributes(ctx)
	if err != nil {
		return nil, err
	}
	for i := range all {
		if all[i].Name == name {
			return &all[i], nil
		}
	}
	return nil, nil
}

func (f *File) attribute(ctx context.Context, addr uint64, b []byte) (*Attribute, error) {
	c := f.cursor(b)
	version, flags := c.u8(), c.u8()
	nameSize, typeSize, spaceSize := int(c.u16()), int(c.u16()), int(c.u16())
	switch version {
	case 1, 2:
	case 3:
		c.skip(1)
	default:
		return nil, f.unsupported(addr, fmt.Sprintf("attribute version %d", version), "")
	}
	part := func(n int) []byte {
		p := c.take(n)
		if version == 1 {
			c.take(-n & 7)
		}
		return p
	}
	name, _, _ := bytes.Cut(part(nameSize), []byte{0})
	tb, sb := part(typeSize), part(spaceSize)
	if c.short {
		return nil, f.bad(addr, "an attribute is cut off")
	}
	a := &Attribute{Name: string(name), f: f}
	if version == 1 {
		flags = 0
	}
	var err error
	if flags&1 != 0 {
		if tb, err = f.shared(ctx, addr, f.cursor(tb), msgType, 0); err != nil {
			return nil, err
		}
	}
	if flags&2 != 0 {
		if sb, err = f.shared(ctx, addr, f.cursor(sb), msgSpace, 0); err != nil {
			return nil, err
		}
	}
	at := func(err error) error { return robocache.At(err, robocache.Where{"attribute": a.Name}) }
	s, err := f.space(addr, sb)
	if err != nil {
		return nil, at(err)
	}
	a.Shape, a.Null = s.shape, s.null
	if a.Type, err = f.typeOf(ctx, addr, tb); err != nil {
		return nil, at(err)
	}
	n, ok := s.elements()
	if !ok || n > int64(c.left())/int64(a.Type.Size) {
		return nil, at(f.bad(addr, fmt.Sprintf("an attribute of shape %v of %s in %d bytes", s.shape, a.Type, c.left())))
	}
	a.raw = c.take(int(n) * a.Type.Size)
	return a, nil
}

// Raw gives the elements of a numeric attribute, little-endian.
func (a *Attribute) Raw() []byte {
	out := bytes.Clone(a.raw)
	a.Type.Native(out)
	return out
}

// Int gives the number of a scalar attribute, or of one of one element.
func (a *Attribute) Int() (int64, bool) {
	if a.Type.DType.Integer() || a.Type.DType == robocache.Bool {
		if len(a.raw) == a.Type.Size {
			return a.Type.int(bytes.Clone(a.raw)), true
		}
		return 0, false
	}
	v, ok := a.Float()
	return int64(v), ok && v == float64(int64(v))
}

// Float gives the number of a scalar attribute, or of one of one element.
func (a *Attribute) Float() (float64, bool) {
	v := robocache.Float64s(nil, a.Type.DType, a.Raw())
	if len(v) != 1 {
		return 0, false
	}
	return v[0], true
}

// Strings gives the texts of an attribute; ErrUnsupported where it holds none.
func (a *Attribute) Strings(ctx context.Context) ([]string, error) {
	t := a.Type
	if t.Class != Text && !(t.Class == Varying && t.IsText) {
		return nil, a.f.unsupported(0, fmt.Sprintf("attribute %q of %s as text", a.Name, t), "")
	}
	var out []string
	held := 0 // elements may share one text of a heap
	for raw := a.raw; len(raw) >= t.Size; raw = raw[t.Size:] {
		b, err := a.f.element(ctx, t, raw[:t.Size])
		if held += len(b); err == nil && held > maxMetadata {
			err = a.f.limit(0, "the texts of an attribute", uint64(held), maxMetadata)
		}
		if err != nil {
			return nil, robocache.At(err, robocache.Where{"attribute": a.Name})
		}
		out = append(out, string(b))
	}
	return out, nil
}

// Text gives the text of a scalar attribute; "" and false where it is none.
func (a *Attribute) Text(ctx context.Context) (string, bool, error) {
	if t := a.Type; t.Class != Text && !(t.Class == Varying && t.IsText) || len(a.raw) != t.Size {
		return "", false, nil
	}
	s, err := a.Strings(ctx)
	if err != nil {
		return "", false, err
	}
	return s[0], true, nil
}
