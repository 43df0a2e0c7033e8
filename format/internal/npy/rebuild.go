package npy

import (
	"unicode/utf8"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/guard"
)

// reduce builds what a function of the whitelist would give for its arguments.
func (m *machine) reduce() {
	call := m.popN(2)
	c, isClass := call[0].(class)
	args, ok := call[1].(Tuple)
	if !ok || !isClass {
		m.bad("a call of something that is no function")
	}
	arg := func(i int) any {
		if i < len(args) {
			return args[i]
		}
		return nil
	}
	switch c {
	case "numpy.core.multiarray._reconstruct":
		if arg(0) != any(class("numpy.ndarray")) {
			m.refuse("an array of another class than numpy.ndarray")
		}
		m.push(&Array{}) // BUILD fills it
	case "numpy.dtype":
		s, ok := asText(arg(0))
		if !ok {
			m.bad("a dtype without a name")
		}
		m.push(&dtype{guard.Must(ParseType(s))})
	case "numpy.core.multiarray.scalar":
		t, ok := arg(0).(*dtype)
		b, ok2 := asBytes(arg(1))
		if !ok || t.t.Kind == 'O' || !ok2 {
			m.bad("a scalar without its type or bytes")
		}
		h := Header{Type: t.t, Bytes: int64(t.t.Size)}
		m.push(guard.Must(h.decode(b)).scalar())
	case "_codecs.encode":
		s, ok := arg(0).(string)
		if name, _ := arg(1).(string); !ok || name != "latin1" {
			m.bad("a text encoded by something other than latin1")
		}
		m.push(m.latin1(s))
	case "numpy.core.numeric._frombuffer":
		b, ok := asBytes(arg(0))
		t, ok2 := arg(1).(*dtype)
		shape, ok3 := arg(2).(Tuple)
		order, ok4 := arg(3).(string)
		if !ok || !ok2 || !ok3 || !ok4 || t.t.Kind == 'O' {
			m.bad("a buffer without type, shape or order")
		}
		m.push(m.array(&Array{}, t.t, shape, order == "F", Bytes(b)))
	default:
		m.bad("%s is not called so", string(c))
	}
}

// spend counts bytes that are made against the file's size: the same text may be encoded again and again out of the memo.
func (m *machine) spend(n int) {
	if m.spent += n; m.spent > 4*len(m.b)+1<<10 {
		m.bad("more bytes made than the pickle has")
	}
}

// latin1 turns a text back into the bytes that protocol 2 wrote so: a character a byte.
func (m *machine) latin1(s string) Bytes {
	m.spend(len(s))
	b := make(Bytes, 0, utf8.RuneCountInString(s))
	for _, r := range s {
		if r > 0xff {
			m.bad("a character that latin1 does not have")
		}
		b = append(b, byte(r))
	}
	return b
}

// asText gives a text, or bytes that stand for one.
func asText(v any) (string, bool) {
	if b, ok := v.(Bytes); ok {
		return string(b), true
	}
	s, ok := v.(string)
	return s, ok
}

func asBytes(v any) ([]byte, bool) {
	b, ok := v.(Bytes)
	return b, ok
}

// scalar is the Go value of a 0-d array of a number or a text.
func (a *Array) scalar() any {
	if a.Type.Kind == 'b' {
		return a.Data[0] != 0
	}
	if v, ok := a.Int64s(); ok && len(v) == 1 {
		return v[0]
	}
	if v, ok := a.Strings(); ok && len(v) == 1 {
		return v[0]
	}
	if v := robocache.Float64s(nil, a.Type.DType(), a.Data); len(v) == 1 {
		return v[0]
	}
	return a
}

// build fills an array or a dtype with its state.
func (m *machine) build() {
	state, ok := m.pop().(Tuple)
	if !ok {
		m.bad("a state that is no tuple")
	}
	switch v := m.top().(type) {
	case *dtype:
		// (version, byte order, subarray, names, fields, size, alignment, flags, …)
		if len(state) < 5 {
			m.bad("a dtype's state of %d values", len(state))
		}
		if state[2] != nil || state[3] != nil || state[4] != nil {
			m.refuse("a structured dtype")
		}
		order, _ := asText(state[1])
		v.t.Big = order == ">" && v.t.Word() > 1
		// "U" and "S" get their size here: the name has it too since NumPy 1.
	case *Array:
		// (version, shape, dtype, is Fortran, bytes or list)
		if len(state) == 4 {
			state = append(Tuple{int64(1)}, state...) // version 0 had no version
		}
		if len(state) != 5 {
			m.bad("an array's state of %d values", len(state))
		}
		shape, ok := state[1].(Tuple)
		t, ok2 := state[2].(*dtype)
		fortran, ok3 := state[3].(bool)
		if n, isInt := state[3].(int64); isInt {
			fortran, ok3 = n != 0, true
		}
		if !ok || !ok2 || !ok3 || v.Shape != nil {
			m.bad("an array's state without shape, dtype or order")
		}
		m.array(v, t.t, shape, fortran, state[4])
	default:
		m.refuse("a state for something that takes none")
	}
}

// array fills a.
func (m *machine) array(a *Array, t Type, dims Tuple, fortran bool, data any) *Array {
	shape, n, err := sizes(dims, t)
	guard.Check(err)
	if t.Kind == 'O' {
		l, ok := data.(*List)
		*a = Array{Type: t, Shape: shape}
		if count := a.Len(); !ok || count != len(l.Items) {
			m.bad("an object array of shape %v without that many objects", shape)
		}
		if fortran && len(shape) > 1 {
			m.refuse("an object array in Fortran order")
		}
		a.Objects = l.Items
		return a
	}
	b, ok := asBytes(data)
	if !ok || int64(len(b)) != n {
		m.bad("an array of shape %v and type %s without its %d bytes", shape, t, n)
	}
	if t.Big || fortran && len(shape) > 1 {
		m.spend(len(b))
	}
	h := Header{Type: t, Shape: shape, Fortran: fortran, Bytes: n}
	*a = *guard.Must(h.decode(b))
	return a
}
