package npy

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/goatnote-inc/robocache"
)

// Values of a pickle: nil, bool, int64, float64, string, Bytes, *List, *Dict, Tuple, *Array.
type (
	Bytes []byte
	Tuple []any
	List  struct{ Items []any }
	Dict  struct {
		Keys, Values []any
	}
)

// Get gives the value of a text key.
func (d *Dict) Get(key string) (any, bool) {
	for i := len(d.Keys) - 1; i >= 0; i-- {
		if d.Keys[i] == key {
			return d.Values[i], true
		}
	}
	return nil, false
}

// class is a class or function that a pickle named: one of the whitelist.
type class string

// Whitelist is what a pickle may name. Each stands for NumPy's own array, scalar, or dtype, and is built here, not called.
var Whitelist = []string{
	"numpy.core.multiarray._reconstruct", "numpy._core.multiarray._reconstruct",
	"numpy.core.multiarray.scalar", "numpy._core.multiarray.scalar",
	"numpy.core.numeric._frombuffer", "numpy._core.numeric._frombuffer",
	"numpy.ndarray", "numpy.dtype", "_codecs.encode",
}

var whitelist = func() map[string]class {
	m := map[string]class{}
	for _, w := range Whitelist {
		m[w] = class(strings.Replace(w, "numpy._core.", "numpy.core.", 1))
	}
	return m
}()

// dtype is one under construction: BUILD sets its byte order.
type dtype struct{ t Type }

type machine struct {
	b     []byte
	at    int
	stack []any
	marks []int
	memo  []any
	have  []bool // of memo
	spent int    // bytes made that the file does not have
}

// Unpickle reads a pickle of protocol 0 to 5 (N3).
func Unpickle(b []byte) (v any, err error) {
	m := &machine{b: b}
	for {
		op, err := m.byte()
		if err != nil {
			return nil, err
		}
		if op == '.' {
			if len(m.stack) != 1 || len(m.marks) != 0 {
				return nil, m.bad("%d values at the end, not one", len(m.stack))
			}
			return m.stack[0], nil
		}
		if err := m.step(op); err != nil {
			return nil, err
		}
	}
}

func (m *machine) bad(format string, args ...any) error {
	return malformed("pickle: byte %d: %s", m.at, fmt.Sprintf(format, args...))
}

func (m *machine) byte() (byte, error) {
	if m.at >= len(m.b) {
		return 0, m.bad("the pickle is cut")
	}
	m.at++
	return m.b[m.at-1], nil
}

func (m *machine) take(n uint64) ([]byte, error) {
	if n > uint64(len(m.b)-m.at) {
		return nil, m.bad("%d bytes declared, %d left", n, len(m.b)-m.at)
	}
	m.at += int(n)
	return m.b[m.at-int(n) : m.at : m.at], nil
}

// number reads a little-endian number of n bytes.
func (m *machine) number(n uint64) (uint64, error) {
	b, err := m.take(n)
	var l [8]byte
	copy(l[:], b)
	return binary.LittleEndian.Uint64(l[:]), err
}

// sized reads a length of w bytes and what it counts.
func (m *machine) sized(w uint64) ([]byte, error) {
	n, err := m.number(w)
	if err != nil {
		return nil, err
	}
	return m.take(n)
}

func (m *machine) line() (string, error) {
	n := bytes.IndexByte(m.b[m.at:], '\n')
	if n < 0 {
		return "", m.bad("the pickle is cut")
	}
	s := string(m.b[m.at : m.at+n])
	m.at += n + 1
	return s, nil
}

// lines2 reads two lines: a module and a name in it.
func (m *machine) lines2() (module, name string, err error) {
	if module, err = m.line(); err == nil {
		name, err = m.line()
	}
	return module, name, err
}

func (m *machine) push(v any) { m.stack = append(m.stack, v) }

// floor is where the values above the last mark begin: nothing may be popped from below it.
func (m *machine) floor() int {
	if len(m.marks) == 0 {
		return 0
	}
	return m.marks[len(m.marks)-1]
}

func (m *machine) pop() (any, error) {
	v, err := m.top()
	if err == nil {
		m.stack = m.stack[:len(m.stack)-1]
	}
	return v, err
}

func (m *machine) top() (any, error) {
	if len(m.stack) <= m.floor() {
		return nil, m.bad("the stack is empty")
	}
	return m.stack[len(m.stack)-1], nil
}

// sinceMark takes the values above the last mark.
func (m *machine) sinceMark() ([]any, error) {
	if len(m.marks) == 0 {
		return nil, m.bad("no mark")
	}
	from := m.marks[len(m.marks)-1]
	m.marks = m.marks[:len(m.marks)-1]
	out := append([]any(nil), m.stack[from:]...)
	m.stack = m.stack[:from]
	return out, nil
}

func (m *machine) put(i uint64, v any) error {
	// A pickler numbers its memo from 0 on: a number beyond what the file could hold is a wish for memory.
	if i > uint64(len(m.b)) {
		return m.bad("memo %d", i)
	}
	for uint64(len(m.memo)) <= i {
		m.memo, m.have = append(m.memo, nil), append(m.have, false)
	}
	m.memo[i], m.have[i] = v, true
	return nil
}

func (m *machine) get(i uint64) error {
	if i >= uint64(len(m.memo)) || !m.have[i] {
		return m.bad("memo %d is not there", i)
	}
	m.push(m.memo[i])
	return nil
}

// global looks a name up in the whitelist.
func (m *machine) global(module, name string) error {
	c, ok := whitelist[module+"."+name]
	if !ok {
		return refused(module + "." + name)
	}
	m.push(c)
	return nil
}

func refused(name string) error {
	return &robocache.Error{Class: robocache.ErrUnsupported, Op: "npy", Msg: "the pickle names " + strconv.QuoteToGraphic(cut(name)) + ", which is not read: it could run code",
		Hint: "only NumPy's own arrays, scalars and dtypes are rebuilt; save the data as arrays and texts"}
}

func cut(s string) string {
	if len(s) > 200 {
		return s[:200] + "…"
	}
	return s
}

func (m *machine) text(b []byte, err error) error {
	if err != nil {
		return err
	}
	if !utf8.Valid(b) {
		b = bytes.ToValidUTF8(b, []byte("\uFFFD")) // lone surrogates, which Python lets pass
	}
	m.push(string(b))
	return nil
}

func (m *machine) bytes(b []byte, err error) error {
	if err == nil {
		m.push(Bytes(b))
	}
	return err
}

// step runs one opcode.
func (m *machine) step(op byte) error {
	switch op {
	case 0x80: // PROTO
		v, err := m.byte()
		if err == nil && v > 5 {
			err = unsupported("pickle protocol %d", v)
		}
		return err
	case 0x95: // FRAME: how much to read at once
		_, err := m.take(8)
		return err
	case '(':
		m.marks = append(m.marks, len(m.stack))
		return nil
	case '0': // POP
		if len(m.stack) == m.floor() && len(m.marks) > 0 {
			_, err := m.sinceMark()
			return err
		}
		_, err := m.pop()
		return err
	case '1': // POP_MARK
		_, err := m.sinceMark()
		return err
	case '2': // DUP
		v, err := m.top()
		m.push(v)
		return err
	case 'N':
		m.push(nil)
		return nil
	case 0x88, 0x89:
		m.push(op == 0x88)
		return nil
	case 'J', 'K', 'M':
		v, err := m.number(map[byte]uint64{'J': 4, 'K': 1, 'M': 2}[op])
		if op == 'J' {
			v = uint64(int32(v))
		}
		m.push(int64(v))
		return err
	case 0x8a, 0x8b: // LONG1, LONG4
		b, err := m.sized(map[byte]uint64{0x8a: 1, 0x8b: 4}[op])
		if err != nil {
			return err
		}
		return m.long(b)
	case 'I', 'L':
		return m.decimal(op)
	case 'G':
		b, err := m.take(8)
		if err == nil {
			m.push(math.Float64frombits(binary.BigEndian.Uint64(b)))
		}
		return err
	case 'F':
		s, err := m.line()
		if err != nil {
			return err
		}
		f, err := strconv.ParseFloat(s, 64)
		if err != nil && !math.IsInf(f, 0) {
			return m.bad("float %q", cut(s))
		}
		m.push(f)
		return nil
	case 'X':
		return m.text(m.sized(4))
	case 0x8c:
		return m.text(m.sized(1))
	case 0x8d:
		return m.text(m.sized(8))
	case 'V', 'S':
		return m.quoted(op)
	case 'B', 'T':
		return m.bytes(m.sized(4))
	case 'C', 'U':
		return m.bytes(m.sized(1))
	case 0x8e, 0x96: // BINBYTES8, BYTEARRAY8
		return m.bytes(m.sized(8))
	case ')':
		m.push(Tuple(nil))
		return nil
	case 't', 'l', 'd':
		items, err := m.sinceMark()
		if err != nil {
			return err
		}
		switch op {
		case 't':
			m.push(Tuple(items))
		case 'l':
			m.push(&List{items})
		default:
			d := &Dict{}
			m.push(d)
			return m.fill(d, items)
		}
		return nil
	case 0x85, 0x86, 0x87:
		n := int(op) - 0x84
		t := make(Tuple, n)
		for i := n - 1; i >= 0; i-- {
			var err error
			if t[i], err = m.pop(); err != nil {
				return err
			}
		}
		m.push(t)
		return nil
	case ']', 0x8f: // EMPTY_LIST, EMPTY_SET: order does not matter to who reads it
		m.push(&List{})
		return nil
	case '}':
		m.push(&Dict{})
		return nil
	case 'a', 's', 'e', 'u', 0x90, 0x91:
		return m.add(op)
	case 'q', 'r', 'p', 0x94, 'h', 'j', 'g':
		return m.remember(op)
	case 'c', 0x93:
		return m.named(op)
	case 'R':
		return m.reduce()
	case 'b':
		return m.build()
	case 'i': // INST: a class by name, to be called
		module, name, err := m.lines2()
		if err != nil {
			return err
		}
		return refused(module + "." + name)
	case 'o', 0x81, 0x92: // OBJ, NEWOBJ, NEWOBJ_EX: nothing on the whitelist is made so
		return unsupported("pickle: byte %d: an object is made by its class", m.at)
	case 'P', 'Q':
		return unsupported("pickle: byte %d: a persistent id", m.at)
	case 0x82, 0x83, 0x84:
		return unsupported("pickle: byte %d: a class of the copyreg extension registry", m.at)
	case 0x97, 0x98:
		return unsupported("pickle: byte %d: an out-of-band buffer", m.at)
	}
	return m.bad("opcode 0x%02x", op)
}
