package npy

import (
	"bytes"
	"encoding/binary"
	"math/bits"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/internal/elements"
	"github.com/goatnote-inc/robocache/internal/guard"
)

// Header describes an array in an npy file.
type Header struct {
	Type    Type
	Shape   []int
	Fortran bool
	Bytes   int64 // size of the array; 0 for objects, whose pickle extends to the end
	Offset  int   // offset of the array's bytes
}

// maxHeader is NumPy's limit for headers of untrusted files.
const maxHeader = 10_000

// ParseHeader reads the header at the beginning of an npy file. b may be only the beginning of the
// file.
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
	return h, h.parseDict(string(b[at:h.Offset]))
}

// A header is a dict with three keys in any order. The expressions accept only the forms that
// writers of npy files produce, not every Python dict.
var (
	headerDict = regexp.MustCompile(`^\s*\{(.*?),?\s*\}[\s\x00]*$`)
	headerItem = regexp.MustCompile(
		`^\s*['"](descr|fortran_order|shape)['"]\s*:\s*(?:[ub]?'([^'\\]*)'|[ub]?"([^"\\]*)"|(\[.*\])|(True|False)|\(([-+\dL,\s]*)\))\s*(?:,|$)`,
	)
	headerDims = regexp.MustCompile(`^\s*(?:(?:[-+]?\d+L?\s*,\s*)+(?:[-+]?\d+L?\s*)?)?$`)
)

// parseDict parses the dict of a header.
func (h *Header) parseDict(s string) (err error) {
	whole := headerDict.FindStringSubmatch(s)
	if whole == nil {
		return malformed("the header is not a dict")
	}
	seen := map[string]bool{}
	for rest := whole[1]; rest != ""; {
		m := headerItem.FindStringSubmatch(rest)
		if m == nil || seen[m[1]] {
			return malformed(
				"character %d of the header is no entry for descr, fortran_order or shape, each "+
					"once",
				len(s)-len(rest),
			)
		}
		rest = rest[len(m[0]):]
		seen[m[1]] = true
		name, order, dims := m[2]+m[3], m[5], m[6]
		switch {
		case m[1] == "descr" && m[4] != "":
			return unsupported("a structured dtype")
		case m[1] == "descr" && name != "":
			if h.Type, err = ParseType(name); err != nil {
				return err
			}
		case m[1] == "fortran_order" && order != "":
			h.Fortran = order == "True"
		case m[1] == "shape" &&
			strings.HasPrefix(strings.TrimSpace(m[0][strings.Index(m[0], ":")+1:]), "(") &&
			headerDims.MatchString(dims):
			for _, d := range strings.FieldsFunc(dims, func(r rune) bool {
				return strings.ContainsRune(", \t\r\nL", r)
			}) {
				n, err := strconv.Atoi(d)
				if err != nil {
					return malformed("dimension %q of the shape", d)
				}
				h.Shape = append(h.Shape, n)
			}
		default:
			return malformed("%s in the header is of another type", m[1])
		}
	}
	if len(seen) != 3 {
		return malformed("the header is not a dict of descr, fortran_order and shape")
	}
	dims := make([]any, len(h.Shape))
	for i, d := range h.Shape {
		dims[i] = int64(d)
	}
	h.Shape, h.Bytes, err = checkShape(dims, h.Type)
	return err
}

// maxEmpty limits the number of texts of size 0. They take no bytes in the file, so the file size
// does not limit them.
const maxEmpty = 1 << 20

// maxDims is NumPy's limit.
const maxDims = 64

// checkShape checks that no dimension is negative and the size fits into 62 bits. It returns the
// shape and the size in bytes.
func checkShape(dims []any, t Type) (shape []int, n int64, err error) {
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

// Array is an array in C order and little-endian byte order.
type Array struct {
	Type    Type // Big is false
	Shape   []int
	Data    []byte
	Objects []any // for kind O
}

// Len returns the number of elements.
func (a *Array) Len() int {
	n := 1
	for _, d := range a.Shape {
		n *= d
	}
	return n
}

// Decode reads an npy file. If the file is in C order and little-endian, the array aliases b.
// Object arrays are ErrUnsupported; use DecodeObjects to read them.
func Decode(b []byte) (_ *Array, err error) {
	defer guard.Into(&err)
	h := guard.Must(ParseHeader(b))
	if h.Type.Kind == 'O' {
		return nil, unsupported("an array of Python objects")
	}
	return h.decodeArray(b[h.Offset:])
}

// DecodeObjects is like Decode, but also reads object arrays, limited to the whitelist.
func DecodeObjects(b []byte) (_ *Array, err error) {
	defer guard.Into(&err)
	h := guard.Must(ParseHeader(b))
	if h.Type.Kind != 'O' {
		return h.decodeArray(b[h.Offset:])
	}
	a, ok := guard.Must(Unpickle(b[h.Offset:])).(*Array)
	if !ok || a.Type.Kind != 'O' {
		return nil, malformed("the pickle of an object array contains another object")
	}
	if a.Len() != len(a.Objects) {
		return nil, malformed("%d objects for shape %v", len(a.Objects), a.Shape)
	}
	return a, nil
}

func (h *Header) decodeArray(b []byte) (*Array, error) {
	if int64(len(b)) < h.Bytes {
		return nil, malformed(
			"shape %v of %s needs %d bytes, there are %d",
			h.Shape,
			h.Type,
			h.Bytes,
			len(b),
		)
	}
	a := &Array{Type: h.Type, Shape: h.Shape, Data: b[:h.Bytes:h.Bytes]}
	a.Type.Big = false
	if h.Fortran && len(h.Shape) > 1 && h.Bytes > 0 {
		a.Data = elements.Transposed(a.Data, h.Shape, elements.Reversed(len(h.Shape)), h.Type.Size)
	} else if h.Type.Big {
		a.Data = bytes.Clone(a.Data)
	}
	if h.Type.Big {
		elements.Swap(a.Data, a.Data, h.Type.Word())
	}
	return a, nil
}

// Strings returns the elements of a text array without padding. It returns false for other kinds.
func (a *Array) Strings() ([]string, bool) {
	switch a.Type.Kind {
	case 'O':
		return objectsAs[string](a.Objects)
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

// Int64s returns the elements of an integer array. It returns false for other kinds, and if an
// element does not fit.
func (a *Array) Int64s() ([]int64, bool) {
	if a.Type.Kind == 'O' {
		return objectsAs[int64](a.Objects)
	}
	t := a.Type.DType()
	if !t.Integer() && t != robocache.Bool {
		return nil, false
	}
	out := robocache.Int64s(make([]int64, 0, len(a.Data)/a.Type.Size), t, a.Data)
	return out, t != robocache.Uint64 || len(out) == 0 || slices.Min(out) >= 0
}

// objectsAs returns objects of one type. It returns false if an object has another type.
func objectsAs[T any](objects []any) ([]T, bool) {
	out := make([]T, len(objects))
	for i, o := range objects {
		v, ok := o.(T)
		if !ok {
			return nil, false
		}
		out[i] = v
	}
	return out, true
}

func malformed(format string, args ...any) error {
	return robocache.Malformed("npy", nil, format, args...)
}

func unsupported(format string, args ...any) error {
	return robocache.Unsupported("npy", nil, format, args...)
}

// Type is an element type: NumPy's kind letter, size and byte order.
type Type struct {
	Kind byte // b i u f: numbers; S U: texts of fixed size; O: objects
	Size int  // bytes of an element
	Big  bool
}

// maxText limits the size of one element of a text array.
const maxText = 1 << 24

// ParseType parses NumPy's string for a type: "<f4", "|b1", ">i8", "|S7", "<U3", "|O". Strings in
// pickles have no byte order.
func ParseType(s string) (Type, error) {
	full := s
	var t Type
	if s != "" {
		switch s[0] {
		case '<', '|', '=':
			s = s[1:]
		case '>':
			t.Big, s = true, s[1:]
		}
	}
	if s == "" {
		return t, malformed("dtype %q", full)
	}
	t.Kind = s[0]
	if t.Kind == 'O' {
		t.Size = 8
		return t, nil
	}
	if s == "?" {
		return Type{Kind: 'b', Size: 1}, nil
	}
	n, err := strconv.Atoi(s[1:])
	if err != nil || n < 0 || s[1] == '+' {
		return t, unsupported("dtype %q", full)
	}
	t.Size = n
	ok := numbers[t.Kind][n] != robocache.InvalidDType
	switch t.Kind {
	case 'b':
		ok = n == 1
	case 'S':
		ok = n <= maxText
	case 'U':
		ok = n <= maxText/4
		t.Size = 4 * n
	}
	if !ok {
		return t, unsupported("dtype %q", full)
	}
	if n == 1 && t.Kind != 'U' {
		t.Big = false
	}
	return t, nil
}

// DType returns the type of a number, or InvalidDType for texts and objects.
func (t Type) DType() robocache.DType {
	if t.Kind == 'b' {
		return robocache.Bool
	}
	return numbers[t.Kind][t.Size]
}

var numbers = map[byte]map[int]robocache.DType{
	'i': {1: robocache.Int8, 2: robocache.Int16, 4: robocache.Int32, 8: robocache.Int64},
	'u': {1: robocache.Uint8, 2: robocache.Uint16, 4: robocache.Uint32, 8: robocache.Uint64},
	'f': {2: robocache.Float16, 4: robocache.Float32, 8: robocache.Float64},
}

// Word returns the number of bytes that a change of byte order reverses together.
func (t Type) Word() int {
	if t.Kind == 'U' {
		return 4
	}
	if t.Kind == 'S' {
		return 1
	}
	return t.Size
}

// String returns NumPy's string for the type.
func (t Type) String() string {
	order := "<"
	if t.Big {
		order = ">"
	}
	switch {
	case t.Kind == 'O':
		return "|O"
	case t.Kind == 'U':
		return order + "U" + strconv.Itoa(t.Size/4)
	case t.Size == 1 || t.Kind == 'S':
		order = "|"
	}
	return order + string(t.Kind) + strconv.Itoa(t.Size)
}
