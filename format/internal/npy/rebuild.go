package npy

import (
	"unicode/utf8"

	"github.com/goatnote-inc/robocache"
)

// reduce builds what a function of the whitelist would give for its arguments.
func (m *machine) reduce() error {
	a, err := m.pop()
	if err != nil {
		return err
	}
	f, err := m.pop()
	if err != nil {
		return err
	}
	args, ok := a.(Tuple)
	c, isClass := f.(class)
	if !ok || !isClass {
		return m.bad("a call of something that is no function")
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
			return unsupported("pickle: byte %d: an array of another class than numpy.ndarray", m.at)
		}
		m.push(&Array{}) // BUILD fills it
		return nil
	case "numpy.dtype":
		s, ok := arg(0).(string)
		if b, isBytes := arg(0).(Bytes); isBytes {
			s, ok = string(b), true
		}
		if !ok {
			return m.bad("a dtype without a name")
		}
		t, err := ParseType(s)
		if err != nil {
			return err
		}
		m.push(&dtype{t})
		return nil
	case "numpy.core.multiarray.scalar":
		t, ok := arg(0).(*dtype)
		b, ok2 := asBytes(arg(1))
		if !ok || t.t.Kind == 'O' || !ok2 {
			return m.bad("a scalar without its type or bytes")
		}
		h := Header{Type: t.t, Bytes: int64(t.t.Size)}
		v, err := h.decode(b)
		if err != nil {
			return err
		}
		m.push(v.scalar())
		return nil
	case "_codecs.encode":
		s, ok := arg(0).(string)
		if name, _ := arg(1).(string); !ok || name != "latin1" {
			return m.bad("a text encoded by something other than latin1")
		}
		return m.latin1(s)
	case "numpy.core.numeric._frombuffer":
		b, ok := asBytes(arg(0))
		t, ok2 := arg(1).(*dtype)
		shape, ok3 := arg(2).(Tuple)
		order, ok4 := arg(3).(string)
		if !ok || !ok2 || !ok3 || !ok4 || t.t.Kind == 'O' {
			return m.bad("a buffer without type, shape or order")
		}
		return m.array(&Array{}, t.t, shape, order == "F", Bytes(b))
	}
	return m.bad("%s is not called so", string(c))
}

// latin1 turns a text back into the bytes that protocol 2 wrote so: a character a byte.
func (m *machine) latin1(s string) error {
	// The same text may be encoded again and again out of the memo: what is made counts against the file's size.
	if m.spent += len(s); m.spent > 4*len(m.b)+1<<10 {
		return m.bad("more bytes made of texts than the pickle has")
	}
	b := make(Bytes, 0, utf8.RuneCountInString(s))
	for _, r := range s {
		if r > 0xff {
			return m.bad("a character that latin1 does not have")
		}
		b = append(b, byte(r))
	}
	m.push(b)
	return nil
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
func (m *machine) build() error {
	s, err := m.pop()
	if err != nil {
		return err
	}
	v, err := m.top()
	if err != nil {
		return err
	}
	state, ok := s.(Tuple)
	if !ok {
		return m.bad("a state that is no tuple")
	}
	switch v := v.(type) {
	case *dtype:
		// (version, byte order, subarray, names, fields, size, alignment, flags, …)
		if len(state) < 5 {
			return m.bad("a dtype's state of %d values", len(state))
		}
		if state[2] != nil || state[3] != nil || state[4] != nil {
			return unsupported("pickle: byte %d: a structured dtype", m.at)
		}
		order, _ := state[1].(string)
		if b, ok := state[1].(Bytes); ok {
			order = string(b)
		}
		v.t.Big = order == ">" && v.t.word() > 1
		// "U" and "S" get their size here: the name has it too since NumPy 1.
		return nil
	case *Array:
		// (version, shape, dtype, is Fortran, bytes or list)
		if len(state) == 4 {
			state = append(Tuple{int64(1)}, state...) // version 0 had no version
		}
		if len(state) != 5 {
			return m.bad("an array's state of %d values", len(state))
		}
		shape, ok := state[1].(Tuple)
		t, ok2 := state[2].(*dtype)
		fortran, ok3 := state[3].(bool)
		if n, isInt := state[3].(int64); isInt {
			fortran, ok3 = n != 0, true
		}
		if !ok || !ok2 || !ok3 || v.Shape != nil {
			return m.bad("an array's state without shape, dtype or order")
		}
		if _, err := m.pop(); err != nil {
			return err
		}
		return m.array(v, t.t, shape, fortran, state[4])
	}
	return unsupported("pickle: byte %d: a state for something that takes none", m.at)
}

// array fills a and pushes it.
func (m *machine) array(a *Array, t Type, dims Tuple, fortran bool, data any) error {
	shape, n, err := sizes(dims, t)
	if err != nil {
		return err
	}
	if t.Kind == 'O' {
		l, ok := data.(*List)
		*a = Array{Type: t, Shape: shape}
		if count := a.Len(); !ok || count != len(l.Items) {
			return m.bad("an object array of shape %v without that many objects", shape)
		}
		if fortran && len(shape) > 1 {
			return unsupported("pickle: byte %d: an object array in Fortran order", m.at)
		}
		a.Objects = l.Items
		m.push(a)
		return nil
	}
	b, ok := asBytes(data)
	if !ok || int64(len(b)) != n {
		return m.bad("an array of shape %v and type %s without its %d bytes", shape, t, n)
	}
	if t.Big || fortran && len(shape) > 1 {
		if m.spent += len(b); m.spent > 4*len(m.b)+1<<10 {
			return m.bad("more bytes made than the pickle has")
		}
	}
	h := Header{Type: t, Shape: shape, Fortran: fortran, Bytes: n}
	v, err := h.decode(b)
	if err != nil {
		return err
	}
	*a = *v
	m.push(a)
	return nil
}
