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

// Attributes returns the attributes of the object, sorted by name.
func (o *Object) Attributes(ctx context.Context) (out []Attribute, err error) {
	defer guard.Recover("hdf5", &err)
	f := o.f
	for i := range o.msgs {
		switch m := &o.msgs[i]; m.kind {
		case msgAttribute:
			out = append(out, f.parseAttribute(ctx, o.addr, o.messageBody(ctx, m)))
		case msgAttrInfo:
			o.forEachDense(ctx, m, 2, recAttrName, func(heap uint64, b []byte, rec *cursor) {
				if rec.u8()&2 != 0 {
					f.failUnsupported(
						heap,
						"an attribute in the file's table of shared messages",
						"write the file again with h5repack",
					)
				}
				out = append(out, f.parseAttribute(ctx, heap, b))
			})
		}
	}
	slices.SortStableFunc(out, func(a, b Attribute) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}

// Attribute returns the attribute with the given name, or nil if the object has none.
func (o *Object) Attribute(ctx context.Context, name string) (*Attribute, error) {
	all, err := o.Attributes(ctx)
	i := slices.IndexFunc(all, func(a Attribute) bool { return a.Name == name })
	if i >= 0 && err == nil {
		return &all[i], nil
	}
	return nil, err
}

func (f *File) parseAttribute(ctx context.Context, addr uint64, b []byte) Attribute {
	c := f.newCursor(addr, "an attribute", b)
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
		f.failUnsupported(addr, fmt.Sprintf("attribute version %d", version), "")
	}
	part := func(n int) []byte {
		p := c.takeBytes(n)
		c.skip(-n & pad)
		return p
	}
	name, _, _ := bytes.Cut(part(nameSize), []byte{0})
	a := Attribute{Name: string(name), f: f}
	defer guard.In("attribute", a.Name)
	tb, sb := part(typeSize), part(spaceSize)
	if flags&1 != 0 {
		tb = f.sharedMessage(ctx, addr, tb, msgType, 0)
	}
	if flags&2 != 0 {
		sb = f.sharedMessage(ctx, addr, sb, msgSpace, 0)
	}
	s := f.parseSpace(addr, sb)
	a.Shape, a.Null, a.Type = s.shape, s.null, f.typeOf(addr, tb)
	n, ok := s.elementCount()
	if !ok || n > int64(c.bytesLeft())/int64(a.Type.Size) {
		f.failMalformed(
			addr,
			"an attribute of shape %v of %s in %d bytes",
			s.shape,
			a.Type,
			c.bytesLeft(),
		)
	}
	a.raw = c.takeBytes(int(n) * a.Type.Size)
	return a
}

// Raw returns the elements of a numeric attribute in little-endian order.
func (a *Attribute) Raw() []byte {
	out := bytes.Clone(a.raw)
	a.Type.Native(out)
	return out
}

// Int returns the number in a scalar attribute, or in an attribute of one element.
func (a *Attribute) Int() (int64, bool) {
	if a.Type.DType.Integer() || a.Type.DType == robocache.Bool {
		if len(a.raw) == a.Type.Size {
			return a.Type.intValue(bytes.Clone(a.raw)), true
		}
		return 0, false
	}
	v, ok := a.Float()
	return int64(v), ok && v == float64(int64(v))
}

// Float returns the number in a scalar attribute, or in an attribute of one element.
func (a *Attribute) Float() (float64, bool) {
	v := robocache.Float64s(nil, a.Type.DType, a.Raw())
	if len(v) != 1 {
		return 0, false
	}
	return v[0], true
}

// Strings returns the texts of an attribute. It returns ErrUnsupported if the attribute is not
// textual.
func (a *Attribute) Strings(ctx context.Context) (out []string, err error) {
	defer guard.Recover("hdf5", &err)
	defer guard.In("attribute", a.Name)
	t := a.Type
	if !t.isTextual() {
		a.f.failUnsupported(0, fmt.Sprintf("attribute %q of %s as text", a.Name, t), "")
	}
	held := uint64(0) // total size of the texts: several elements may share one text of a heap
	for raw := a.raw; len(raw) >= t.Size; raw = raw[t.Size:] {
		b := a.f.elementBytes(ctx, t, raw[:t.Size])
		held += uint64(len(b))
		a.f.checkLimit(0, "the texts of an attribute", held, maxMetadata)
		out = append(out, string(b))
	}
	return out, nil
}

// Text returns the text of a scalar attribute. It returns "" and false if the attribute is not one
// text.
func (a *Attribute) Text(ctx context.Context) (string, bool, error) {
	if !a.Type.isTextual() || len(a.raw) != a.Type.Size {
		return "", false, nil
	}
	s, err := a.Strings(ctx)
	return strings.Join(s, ""), err == nil, err
}
