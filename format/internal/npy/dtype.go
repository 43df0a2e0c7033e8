package npy

import (
	"fmt"
	"strconv"

	"github.com/goatnote-inc/robocache"
)

func malformed(format string, args ...any) error {
	return &robocache.Error{Class: robocache.ErrMalformed, Op: "npy", Msg: fmt.Sprintf(format, args...)}
}

func unsupported(format string, args ...any) error {
	return &robocache.Error{Class: robocache.ErrUnsupported, Op: "npy", Msg: fmt.Sprintf(format, args...)}
}

// Type is an element type: NumPy's kind letter, its size and byte order.
type Type struct {
	Kind byte // b i u f: numbers; S U: texts of fixed size; O: objects
	Size int  // bytes of an element
	Big  bool
}

// maxText bounds one element of a text array.
const maxText = 1 << 24

// ParseType reads NumPy's string for a type: "<f4", "|b1", ">i8", "|S7", "<U3", "|O", and without a byte order as pickles have it.
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

// DType is the type of a number; InvalidDType for texts and objects.
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

// Word is the unit that a byte order turns.
func (t Type) Word() int {
	if t.Kind == 'U' {
		return 4
	}
	if t.Kind == 'S' {
		return 1
	}
	return t.Size
}

// String gives NumPy's string.
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
