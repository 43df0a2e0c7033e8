package npy

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/guard"
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

// Whitelist is what a pickle may name. Each stands for NumPy's own array, scalar, or dtype, and is
// built here, not called.
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
	defer guard.Recover("npy", &err)
	m := &machine{b: b}
	for {
		op := m.take(1)[0]
		if op == '.' {
			if len(m.stack) != 1 || len(m.marks) != 0 {
				m.bad("%d values at the end, not one", len(m.stack))
			}
			return m.stack[0], nil
		}
		m.step(op)
	}
}

// bad ends the reading: the pickle is malformed.
func (m *machine) bad(format string, args ...any) {
	guard.Fail(malformed("pickle: byte %d: %s", m.at, fmt.Sprintf(format, args...)))
}

// refuse ends the reading: the pickle has something that is not read.
func (m *machine) refuse(format string, args ...any) {
	guard.Fail(unsupported("pickle: byte %d: %s", m.at, fmt.Sprintf(format, args...)))
}

func (m *machine) take(n uint64) []byte {
	if n > uint64(len(m.b)-m.at) {
		m.bad("the pickle is cut: %d bytes declared, %d left", n, len(m.b)-m.at)
	}
	m.at += int(n)
	return m.b[m.at-int(n) : m.at : m.at]
}

// number reads a little-endian number of n bytes.
func (m *machine) number(n uint64) uint64 {
	var l [8]byte
	copy(l[:], m.take(n))
	return binary.LittleEndian.Uint64(l[:])
}

// sized reads a length of w bytes and what it counts.
func (m *machine) sized(w uint64) []byte { return m.take(m.number(w)) }

func (m *machine) line() string {
	n := bytes.IndexByte(m.b[m.at:], '\n')
	if n < 0 {
		m.bad("the pickle is cut")
	}
	return string(m.take(uint64(n) + 1)[:n])
}

func (m *machine) push(v any) { m.stack = append(m.stack, v) }

// floor is where the values above the last mark begin: nothing may be popped from below it.
func (m *machine) floor() int {
	if len(m.marks) == 0 {
		return 0
	}
	return m.marks[len(m.marks)-1]
}

func (m *machine) pop() any { return m.popN(1)[0] }

// popN takes the last n values.
func (m *machine) popN(n int) []any {
	from := len(m.stack) - n
	if from < m.floor() {
		m.bad("the stack is empty")
	}
	out := slices.Clone(m.stack[from:])
	m.stack = m.stack[:from]
	return out
}

func (m *machine) top() any {
	if len(m.stack) <= m.floor() {
		m.bad("the stack is empty")
	}
	return m.stack[len(m.stack)-1]
}

// sinceMark takes the values above the last mark.
func (m *machine) sinceMark() []any {
	if len(m.marks) == 0 {
		m.bad("no mark")
	}
	out := m.popN(len(m.stack) - m.floor())
	m.marks = m.marks[:len(m.marks)-1]
	return out
}

func (m *machine) put(i uint64, v any) {
	// A pickler numbers its memo from 0 on: a number beyond what the file could hold would only
	// take memory.
	if i > uint64(len(m.b)) {
		m.bad("memo %d", i)
	}
	for uint64(len(m.memo)) <= i {
		m.memo, m.have = append(m.memo, nil), append(m.have, false)
	}
	m.memo[i], m.have[i] = v, true
}

func (m *machine) get(i uint64) {
	if i >= uint64(len(m.memo)) || !m.have[i] {
		m.bad("memo %d is not there", i)
	}
	m.push(m.memo[i])
}

// global looks a name up in the whitelist.
func (m *machine) global(module, name string) {
	c, ok := whitelist[module+"."+name]
	if !ok {
		refused(module + "." + name)
	}
	m.push(c)
}

func refused(name string) {
	guard.Fail(
		robocache.Unsupported("npy", nil, "the pickle names %s, which is not read: it could run code", strconv.QuoteToGraphic(cut(name))).
			WithHint("only NumPy's own arrays, scalars and dtypes are rebuilt; save the data as arrays and texts"),
	)
}

func cut(s string) string {
	if len(s) > 200 {
		return s[:200] + "…"
	}
	return s
}

func (m *machine) text(b []byte) {
	m.push(strings.ToValidUTF8(string(b), "\uFFFD")) // lone surrogates, which Python lets pass
}

// widths are the bytes of the numbers and lengths that opcodes have.
var widths = map[byte]uint64{
	'J':  4,
	'K':  1,
	'M':  2,
	0x8a: 1,
	0x8b: 4,
	'X':  4,
	0x8c: 1,
	0x8d: 8,
	'B':  4,
	'T':  4,
	'C':  1,
	'U':  1,
	0x8e: 8,
	0x96: 8,
	'q':  1,
	'h':  1,
	'r':  4,
	'j':  4,
}

// step runs one opcode.
func (m *machine) step(op byte) {
	switch op {
	case 0x80: // PROTO
		if v := m.take(1)[0]; v > 5 {
			guard.Fail(unsupported("pickle protocol %d", v))
		}
	case 0x95: // FRAME: how much to read at once
		m.take(8)
	case '(':
		m.marks = append(m.marks, len(m.stack))
	case '0': // POP
		if len(m.stack) == m.floor() && len(m.marks) > 0 {
			m.sinceMark()
		} else {
			m.pop()
		}
	case '1': // POP_MARK
		m.sinceMark()
	case '2': // DUP
		m.push(m.top())
	case 'N':
		m.push(nil)
	case 0x88, 0x89:
		m.push(op == 0x88)
	case 'J':
		m.push(int64(int32(m.number(4))))
	case 'K', 'M':
		m.push(int64(m.number(widths[op])))
	case 0x8a, 0x8b: // LONG1, LONG4
		m.long(m.sized(widths[op]))
	case 'I', 'L':
		m.decimal(op)
	case 'G':
		m.push(math.Float64frombits(binary.BigEndian.Uint64(m.take(8))))
	case 'F':
		s := m.line()
		f, err := strconv.ParseFloat(s, 64)
		if err != nil && !math.IsInf(f, 0) {
			m.bad("float %q", cut(s))
		}
		m.push(f)
	case 'X', 0x8c, 0x8d:
		m.text(m.sized(widths[op]))
	case 'V', 'S':
		m.quoted(op)
	case 'B', 'T', 'C', 'U', 0x8e, 0x96: // also BINBYTES8, BYTEARRAY8
		m.push(Bytes(m.sized(widths[op])))
	case ')':
		m.push(Tuple(nil))
	case 't':
		m.push(Tuple(m.sinceMark()))
	case 'l':
		m.push(&List{m.sinceMark()})
	case 'd':
		d := &Dict{}
		m.fill(d, m.sinceMark())
		m.push(d)
	case 0x85, 0x86, 0x87:
		m.push(Tuple(m.popN(int(op) - 0x84)))
	case ']', 0x8f: // EMPTY_LIST, EMPTY_SET: order does not matter to who reads it
		m.push(&List{})
	case '}':
		m.push(&Dict{})
	case 'a', 's', 'e', 'u', 0x90, 0x91:
		m.add(op)
	case 'q', 'r', 'p', 0x94, 'h', 'j', 'g':
		m.remember(op)
	case 'c':
		module := m.line()
		m.global(module, m.line())
	case 0x93: // STACK_GLOBAL
		names := m.popN(2)
		module, ok1 := names[0].(string)
		name, ok2 := names[1].(string)
		if !ok1 || !ok2 {
			m.bad("a class whose name is no text")
		}
		m.global(module, name)
	case 'R':
		m.reduce()
	case 'b':
		m.build()
	case 'i': // INST: a class by name, to be called
		module := m.line()
		refused(module + "." + m.line())
	case 'o', 0x81, 0x92: // OBJ, NEWOBJ, NEWOBJ_EX: nothing on the whitelist is made so
		m.refuse("an object is made by its class")
	case 'P', 'Q':
		m.refuse("a persistent id")
	case 0x82, 0x83, 0x84:
		m.refuse("a class of the copyreg extension registry")
	case 0x97, 0x98:
		m.refuse("an out-of-band buffer")
	default:
		m.bad("opcode 0x%02x", op)
	}
}
