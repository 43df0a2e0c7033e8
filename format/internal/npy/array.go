package npy

import (
	"encoding/binary"
	"math/bits"
	"strings"
	"unicode/utf8"
)

// Header is what stands before an array's bytes.
type Header struct {
	Type    Type
	Shape   []int
	Fortran bool
	Bytes   int64 // of the array; 0 for objects, whose pickle runs to the end
	Offset  int   // where they begin
}

// maxHeader is NumPy's own limit of a header that is read without trust.
const maxHeader = 10_000

// ParseHeader reads the header at the beginning of an npy file. b may be the beginning alone.
func ParseHeader(b []byte) (h Header, err error) {
	if len(b) < 10 || string(b[:6]) != "\x93NUMPY" {
		return h, malformed("no npy header")
	}
	n, at := int(binary.LittleEndian.Uint16(b[8:])), 10
	switch b[6] {
	case 1:
	case 2, 3:
		if len(b) < 12 {
			return h, malformed("the header is cut")
		}
		n, at = int(binary.LittleEndian.Uint32(b[8:])), 12
	default:
		return h, unsupported("npy version %d.%d", b[6], b[7])
	}
	if n > maxHeader {
		return h, malformed("a header of %d bytes", n)
	}
	if n > len(b)-at {
		return h, malformed("the header is cut: %d bytes declared", n)
	}
	h.Offset = at + n
	v, err := parseLiteral(string(b[at:h.Offset]))
	if err != nil {
		return h, err
	}
	d, ok := v.(dict)
	descr, hasType := d.get("descr")
	order, hasOrder := d.get("fortran_order")
	shape, hasShape := d.get("shape")
	if !ok || !hasType || !hasOrder || !hasShape || len(d) != 3 {
		return h, malformed("the header is not a dict of descr, fortran_order and shape")
	}
	name, ok := descr.(string)
	if !ok {
		return h, unsupported("a structured dtype")
	}
	if h.Type, err = ParseType(name); err != nil {
		return h, err
	}
	if h.Fortran, ok = order.(bool); !ok {
		return h, malformed("fortran_order is not a bool")
	}
	dims, ok := shape.(tuple)
	if !ok {
		return h, malformed("shape is not a tuple")
	}
	h.Shape, h.Bytes, err = sizes(dims, h.Type)
	return h, err
}

// maxEmpty bounds the texts of no size that a header may claim: they have no bytes in the file that would do it.
const maxEmpty = 1 << 20

// maxDims is NumPy's limit.
const maxDims = 64

// sizes checks a shape: no negative, no product beyond 64 bits.
func sizes(dims []any, t Type) (shape []int, n int64, err error) {
	if len(dims) > maxDims {
		return nil, 0, malformed("%d dimensions", len(dims))
	}
	shape = make([]int, len(dims))
	total, empty := uint64(max(t.Size, 1)), false
	for i, d := range dims {
		v, ok := d.(int64)
		if !ok || v < 0 || v > 1<<48 {
			return nil, 0, malformed("dimension %d of the shape is %v", i, d)
		}
		shape[i] = int(v)
		if v == 0 {
			empty = true
			continue
		}
		hi, lo := bits.Mul64(total, uint64(v))
		if hi != 0 || lo > 1<<62 {
			return nil, 0, malformed("shape %v has too many elements", dims)
		}
		total = lo
	}
	if t.Size == 0 && total > maxEmpty {
		return nil, 0, malformed("%d texts of no size", total)
	}
	if empty || t.Kind == 'O' || t.Size == 0 {
		total = 0
	}
	return shape, int64(total), nil
}

// Array is an array in C order, little-endian.
type Array struct {
	Type    Type // Big is false
	Shape   []int
	Data    []byte
	Objects []any // of kind O
}

// Len is the number of elements.
func (a *Array) Len() int {
	n := 1
	for _, d := range a.Shape {
		n *= d
	}
	return n
}

// Decode reads an npy file. Where the file is in C order and little-endian, the array is a piece of b. Object arrays are ErrUnsupported:
// DecodeObjects reads them.
func Decode(b []byte) (*Array, error) {
	h, err := ParseHeader(b)
	if err != nil {
		return nil, err
	}
	if h.Type.Kind == 'O' {
		return nil, unsupported("an array of Python objects")
	}
	return h.decode(b[h.Offset:])
}

// DecodeObjects is Decode that also reads object arrays, by the whitelist.
func DecodeObjects(b []byte) (*Array, error) {
	h, err := ParseHeader(b)
	if err != nil {
		return nil, err
	}
	if h.Type.Kind != 'O' {
		return h.decode(b[h.Offset:])
	}
	v, err := Unpickle(b[h.Offset:])
	if err != nil {
		return nil, err
	}
	a, ok := v.(*Array)
	if !ok || a.Type.Kind != 'O' {
		return nil, malformed("the pickle of an object array holds something else")
	}
	if a.Len() != len(a.Objects) {
		return nil, malformed("%d objects for shape %v", len(a.Objects), a.Shape)
	}
	return a, nil
}

func (h *Header) decode(b []byte) (*Array, error) {
	if int64(len(b)) < h.Bytes {
		return nil, malformed("shape %v of %s needs %d bytes, there are %d", h.Shape, h.Type, h.Bytes, len(b))
	}
	a := &Array{Type: h.Type, Shape: h.Shape, Data: b[:h.Bytes:h.Bytes]}
	a.Type.Big = false
	if h.Fortran && len(h.Shape) > 1 && h.Bytes > 0 {
		a.Data = fromFortran(a.Data, h.Shape, h.Type.Size)
		if h.Type.Big {
			Swap(a.Data, a.Data, h.Type.word())
		}
	} else if h.Type.Big {
		a.Data = make([]byte, h.Bytes)
		Swap(a.Data, b[:h.Bytes], h.Type.word())
	}
	return a, nil
}

// Swap turns the byte order of words of n bytes. dst may be src.
func Swap(dst, src []byte, n int) {
	be, le := binary.BigEndian, binary.LittleEndian
	switch n {
	case 2:
		for i := 0; i+2 <= len(src); i += 2 {
			le.PutUint16(dst[i:], be.Uint16(src[i:]))
		}
	case 4:
		for i := 0; i+4 <= len(src); i += 4 {
			le.PutUint32(dst[i:], be.Uint32(src[i:]))
		}
	case 8:
		for i := 0; i+8 <= len(src); i += 8 {
			le.PutUint64(dst[i:], be.Uint64(src[i:]))
		}
	default:
		copy(dst, src)
	}
}

// fromFortran gives C order of elements of size bytes that lie with the first dimension fastest.
func fromFortran(src []byte, shape []int, size int) []byte {
	stride := make([]int, len(shape))
	step := size
	for i, d := range shape {
		stride[i], step = step, step*d
	}
	return Reorder(src, shape, stride, size)
}

// Reorder gives C order of an array of at least one dimension and elements of size bytes, a step of whose dimension i is stride[i]
// bytes of src.
func Reorder(src []byte, shape, stride []int, size int) []byte {
	dst := make([]byte, len(src))
	n := len(shape)
	index := make([]int, n)
	inner, by := shape[n-1], stride[n-1]
	for at, from := 0, 0; at < len(dst); {
		for k, f := 0, from; k < inner; k, f = k+1, f+by {
			copy(dst[at:at+size], src[f:f+size])
			at += size
		}
		for d := n - 2; d >= 0; d-- {
			if index[d]++; index[d] < shape[d] {
				from += stride[d]
				break
			}
			from -= stride[d] * (shape[d] - 1)
			index[d] = 0
		}
	}
	return dst
}

// Strings gives the elements of a text array, without the padding; false for other kinds.
func (a *Array) Strings() ([]string, bool) {
	switch a.Type.Kind {
	case 'O':
		out := make([]string, len(a.Objects))
		for i, o := range a.Objects {
			s, ok := o.(string)
			if !ok {
				return nil, false
			}
			out[i] = s
		}
		return out, true
	case 'S', 'U':
	default:
		return nil, false
	}
	n := a.Len()
	if a.Type.Size == 0 {
		return make([]string, n), true
	}
	out := make([]string, n)
	for i := range out {
		b := a.Data[i*a.Type.Size:][:a.Type.Size]
		if a.Type.Kind == 'S' {
			out[i] = strings.TrimRight(string(b), "\x00")
			continue
		}
		var s []byte
		for len(b) > 0 {
			s = utf8.AppendRune(s, rune(binary.LittleEndian.Uint32(b)))
			b = b[4:]
		}
		out[i] = strings.TrimRight(string(s), "\x00")
	}
	return out, true
}

// Int64s gives the elements of an integer array; false for other kinds, and where one does not fit.
func (a *Array) Int64s() ([]int64, bool) {
	le := binary.LittleEndian
	switch a.Type.Kind {
	case 'i', 'u', 'b':
	case 'O':
		out := make([]int64, len(a.Objects))
		for i, o := range a.Objects {
			v, ok := o.(int64)
			if !ok {
				return nil, false
			}
			out[i] = v
		}
		return out, true
	default:
		return nil, false
	}
	out := make([]int64, len(a.Data)/a.Type.Size)
	for i := range out {
		b := a.Data[i*a.Type.Size:]
		var v int64
		switch signed := a.Type.Kind == 'i'; a.Type.Size {
		case 1:
			if v = int64(b[0]); signed {
				v = int64(int8(b[0]))
			}
		case 2:
			if v = int64(le.Uint16(b)); signed {
				v = int64(int16(le.Uint16(b)))
			}
		case 4:
			if v = int64(le.Uint32(b)); signed {
				v = int64(int32(le.Uint32(b)))
			}
		case 8:
			if v = int64(le.Uint64(b)); !signed && v < 0 {
				return nil, false
			}
		}
		out[i] = v
	}
	return out, true
}
