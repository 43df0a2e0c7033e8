package npy

import (
	"encoding/binary"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/guard"
)

// reduceCall pushes the result that a whitelisted function would return for its arguments.
func (m *pickleMachine) reduceCall() {
	call := m.popN(2)
	c, isClass := call[0].(className)
	args, ok := call[1].(Tuple)
	if !ok || !isClass {
		m.failPickle("a call of an object that is not a function")
	}
	arg := func(i int) any {
		if i < len(args) {
			return args[i]
		}
		return nil
	}
	switch c {
	case "numpy.core.multiarray._reconstruct":
		if arg(0) != any(className("numpy.ndarray")) {
			m.refusePickle("an array of another class than numpy.ndarray")
		}
		m.push(&Array{}) // BUILD fills it
	case "numpy.dtype":
		s, ok := asText(arg(0))
		if !ok {
			m.failPickle("a dtype without a name")
		}
		m.push(&dtypeBuilder{guard.Must(ParseType(s))})
	case "numpy.core.multiarray.scalar":
		t, ok := arg(0).(*dtypeBuilder)
		b, ok2 := asBytes(arg(1))
		if !ok || t.t.Kind == 'O' || !ok2 {
			m.failPickle("a scalar without its type or bytes")
		}
		h := Header{Type: t.t, Bytes: int64(t.t.Size)}
		m.push(guard.Must(h.decodeArray(b)).scalarValue())
	case "_codecs.encode":
		s, ok := arg(0).(string)
		if name, _ := arg(1).(string); !ok || name != "latin1" {
			m.failPickle("a text encoded by something other than latin1")
		}
		m.push(m.encodeLatin1(s))
	case "numpy.core.numeric._frombuffer":
		b, ok := asBytes(arg(0))
		t, ok2 := arg(1).(*dtypeBuilder)
		shape, ok3 := arg(2).(Tuple)
		order, ok4 := arg(3).(string)
		if !ok || !ok2 || !ok3 || !ok4 || t.t.Kind == 'O' {
			m.failPickle("a buffer without type, shape or order")
		}
		m.push(m.fillArray(&Array{}, t.t, shape, order == "F", Bytes(b)))
	default:
		m.failPickle("%s is not called so", string(c))
	}
}

// countBytes limits the bytes of results by the size of the file. Otherwise a pickle could encode a
// text in the memo again and again.
func (m *pickleMachine) countBytes(n int) {
	if m.bytesMade += n; m.bytesMade > 4*len(m.b)+1<<10 {
		m.failPickle("more bytes made than the pickle has")
	}
}

// encodeLatin1 converts a text to the bytes that protocol 2 stored in it, one character per byte.
func (m *pickleMachine) encodeLatin1(s string) Bytes {
	m.countBytes(len(s))
	b := make(Bytes, 0, utf8.RuneCountInString(s))
	for _, r := range s {
		if r > 0xff {
			m.failPickle("a character that latin1 does not have")
		}
		b = append(b, byte(r))
	}
	return b
}

// asText returns v as text. It also accepts bytes.
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

// scalarValue returns the Go value of a 0-d array of a number or a text.
func (a *Array) scalarValue() any {
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

// applyState sets the state of an array or a dtype.
func (m *pickleMachine) applyState() {
	state, ok := m.pop().(Tuple)
	if !ok {
		m.failPickle("a state that is not a tuple")
	}
	switch v := m.top().(type) {
	case *dtypeBuilder:
		// (version, byte order, subarray, names, fields, size, alignment, flags, …)
		if len(state) < 5 {
			m.failPickle("a dtype's state of %d values", len(state))
		}
		if state[2] != nil || state[3] != nil || state[4] != nil {
			m.refusePickle("a structured dtype")
		}
		order, _ := asText(state[1])
		v.t.Big = order == ">" && v.t.Word() > 1
		// The state also has the size of "U" and "S". It is ignored, because the name contains the
		// size since NumPy 1.
	case *Array:
		// (version, shape, dtype, is Fortran, bytes or list)
		if len(state) == 4 {
			state = append(Tuple{int64(1)}, state...) // version 0 has no version field
		}
		if len(state) != 5 {
			m.failPickle("an array's state of %d values", len(state))
		}
		shape, ok := state[1].(Tuple)
		t, ok2 := state[2].(*dtypeBuilder)
		fortran, ok3 := state[3].(bool)
		if n, isInt := state[3].(int64); isInt {
			fortran, ok3 = n != 0, true
		}
		if !ok || !ok2 || !ok3 || v.Shape != nil {
			m.failPickle("an array's state without shape, dtype or order")
		}
		m.fillArray(v, t.t, shape, fortran, state[4])
	default:
		m.refusePickle("a state for something that takes none")
	}
}

// fillArray fills a from its type, dimensions and data.
func (m *pickleMachine) fillArray(a *Array, t Type, dims Tuple, fortran bool, data any) *Array {
	shape, n, err := checkShape(dims, t)
	guard.Check(err)
	if t.Kind == 'O' {
		l, ok := data.(*List)
		*a = Array{Type: t, Shape: shape}
		if count := a.Len(); !ok || count != len(l.Items) {
			m.failPickle("an object array of shape %v without that many objects", shape)
		}
		if fortran && len(shape) > 1 {
			m.refusePickle("an object array in Fortran order")
		}
		a.Objects = l.Items
		return a
	}
	b, ok := asBytes(data)
	if !ok || int64(len(b)) != n {
		m.failPickle("an array of shape %v and type %s without its %d bytes", shape, t, n)
	}
	if t.Big || fortran && len(shape) > 1 {
		m.countBytes(len(b))
	}
	h := Header{Type: t, Shape: shape, Fortran: fortran, Bytes: n}
	*a = *guard.Must(h.decodeArray(b))
	return a
}

// pushLong reads a little-endian two's complement integer.
func (m *pickleMachine) pushLong(b []byte) {
	if len(b) > 8 {
		m.refusePickle("an integer of %d bytes", len(b))
	}
	var l [8]byte
	copy(l[:], b)
	if len(b) > 0 && b[len(b)-1] >= 0x80 {
		for i := len(b); i < 8; i++ {
			l[i] = 0xff
		}
	}
	m.push(int64(binary.LittleEndian.Uint64(l[:])))
}

func (m *pickleMachine) pushDecimal(op byte) {
	s := m.readLine()
	if op == 'I' && (s == "00" || s == "01") {
		m.push(s == "01")
		return
	}
	n, err := strconv.ParseInt(strings.TrimSuffix(s, "L"), 10, 64)
	if err != nil {
		m.failPickle("integer %q", shortenText(s))
	}
	m.push(n)
}

// pushQuoted reads a text of protocol 0.
func (m *pickleMachine) pushQuoted(op byte) {
	s := m.readLine()
	if op == 'S' {
		if len(s) < 2 || s[0] != s[len(s)-1] || s[0] != '\'' && s[0] != '"' {
			m.failPickle("a text without quotes")
		}
		s = s[1 : len(s)-1]
	}
	var b []byte
	for len(s) > 0 {
		if s[0] != '\\' || op == 'V' && (len(s) < 2 || s[1] != 'u' && s[1] != 'U') {
			// 'V' is Latin-1 except for \u escapes, 'S' is bytes
			if op == 'V' {
				b = utf8.AppendRune(b, rune(s[0]))
			} else {
				b = append(b, s[0])
			}
			s = s[1:]
			continue
		}
		if op == 'S' && len(s) > 1 && (s[1] == '\'' || s[1] == '"') {
			b, s = append(b, s[1]), s[2:]
			continue
		}
		r, multibyte, rest, err := strconv.UnquoteChar(s, 0)
		if err != nil {
			m.failPickle("an escape in a text")
		}
		if s = rest; r < utf8.RuneSelf || !multibyte {
			if op == 'S' || r < utf8.RuneSelf {
				b = append(b, byte(r))
				continue
			}
		}
		b = utf8.AppendRune(b, r)
	}
	if op == 'S' {
		m.push(Bytes(b))
	} else {
		m.push(string(b))
	}
}

func (m *pickleMachine) appendItems(d *Dict, items []any) {
	if len(items)%2 != 0 {
		m.failPickle("a dict of %d keys and values", len(items))
	}
	for i := 0; i < len(items); i += 2 {
		d.Keys, d.Values = append(d.Keys, items[i]), append(d.Values, items[i+1])
	}
}

// appendToContainer appends values to the list, set or dict below them on the stack.
func (m *pickleMachine) appendToContainer(op byte) {
	var items []any
	switch op {
	case 'a':
		items = m.popN(1)
	case 's':
		items = m.popN(2)
	default:
		items = m.sinceMark()
	}
	if op == 0x91 { // FROZENSET
		m.push(&List{items})
		return
	}
	list, _ := m.top().(*List)
	dict, _ := m.top().(*Dict)
	switch {
	case list != nil && (op == 'a' || op == 'e' || op == 0x90):
		list.Items = append(list.Items, items...)
	case dict != nil && (op == 's' || op == 'u'):
		m.appendItems(dict, items)
	default:
		m.failPickle("values added to something that holds none")
	}
}

// runMemoOpcode stores the last value in the memo, or pushes a value from the memo.
func (m *pickleMachine) runMemoOpcode(op byte) {
	var i uint64
	switch op {
	case 0x94:
		i = uint64(len(m.memo))
	case 'p', 'g':
		s := m.readLine()
		var err error
		if i, err = strconv.ParseUint(s, 10, 32); err != nil {
			m.failPickle("memo %q", shortenText(s))
		}
	default:
		i = m.readUint(widths[op])
	}
	if op == 'h' || op == 'j' || op == 'g' {
		m.pushMemo(i)
	} else {
		m.memoize(i, m.top())
	}
}
