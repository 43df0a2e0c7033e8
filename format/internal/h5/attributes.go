package h5

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/guard"
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
func (o *Object) Attributes(ctx context.Context) (out []Attribute, err error) {
	defer guard.Recover("hdf5", &err)
	f := o.f
	for i := range o.msgs {
		switch m := &o.msgs[i]; m.kind {
		case msgAttribute:
			out = append(out, f.attribute(ctx, o.addr, o.body(ctx, m)))
		case msgAttrInfo:
			o.dense(ctx, m, 2, recAttrName, func(heap uint64, b []byte, rec *cursor) {
				if rec.u8()&2 != 0 {
					f.unsupported(
						heap,
						"an attribute in the file's table of shared messages",
						"write the file again with h5repack",
					)
				}
				out = append(out, f.attribute(ctx, heap, b))
			})
		}
	}
	slices.SortStableFunc(out, func(a, b Attribute) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}

// Attribute finds one by name; nil where there is none.
func (o *Object) Attribute(ctx context.Context, name string) (*Attribute, error) {
	all, err := o.Attributes(ctx)
	if i := slices.IndexFunc(
		all,
		func(a Attribute) bool { return a.Name == name },
	); i >= 0 &&
		err == nil {
		return &all[i], nil
	}
	return nil, err
}

func (f *File) attribute(ctx context.Context, addr uint64, b []byte) Attribute {
	c := f.cursor(addr, "an attribute", b)
	version, flags := c.u8(), c.u8()
	nameSize, typeSize, spaceSize := int(c.u16()), int(c.u16()), int(c.u16())
	pad := 0
	switch version {
	case 1:
		pad, flags = 7, 0
	case 2:
	case 3:
		c.skip(1)
	default:
		f.unsupported(addr, fmt.Sprintf("attribute version %d", version), "")
	}
	part := func(n int) []byte {
		p := c.take(n)
		c.skip(-n & pad)
		return p
	}
	name, _, _ := bytes.Cut(part(nameSize), []byte{0})
	a := Attribute{Name: string(name), f: f}
	defer guard.In("attribute", a.Name)
	tb, sb := part(typeSize), part(spaceSize)
	if flags&1 != 0 {
		tb = f.shared(ctx, addr, tb, msgType, 0)
	}
	if flags&2 != 0 {
		sb = f.shared(ctx, addr, sb, msgSpace, 0)
	}
	s := f.space(addr, sb)
	a.Shape, a.Null, a.Type = s.shape, s.null, f.typeOf(addr, tb)
	n, ok := s.elements()
	if !ok || n > int64(c.left())/int64(a.Type.Size) {
		f.bad(addr, "an attribute of shape %v of %s in %d bytes", s.shape, a.Type, c.left())
	}
	a.raw = c.take(int(n) * a.Type.Size)
	return a
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
func (a *Attribute) Strings(ctx context.Context) (out []string, err error) {
	defer guard.Recover("hdf5", &err)
	defer guard.In("attribute", a.Name)
	t := a.Type
	if !t.text() {
		a.f.unsupported(0, fmt.Sprintf("attribute %q of %s as text", a.Name, t), "")
	}
	held := uint64(0) // elements may share one text of a heap
	for raw := a.raw; len(raw) >= t.Size; raw = raw[t.Size:] {
		b := a.f.element(ctx, t, raw[:t.Size])
		held += uint64(len(b))
		a.f.limit(0, "the texts of an attribute", held, maxMetadata)
		out = append(out, string(b))
	}
	return out, nil
}

// Text gives the text of a scalar attribute; "" and false where it is none.
func (a *Attribute) Text(ctx context.Context) (string, bool, error) {
	if !a.Type.text() || len(a.raw) != a.Type.Size {
		return "", false, nil
	}
	s, err := a.Strings(ctx)
	return strings.Join(s, ""), err == nil, err
}
