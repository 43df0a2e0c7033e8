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

// Values of a pickle are nil, bool, int64, float64, string, Bytes, *List, *Dict, Tuple and *Array.
type (
	Bytes []byte
	Tuple []any
	List  struct{ Items []any }
	Dict  struct {
		Keys, Values []any
	}
)

// Get returns the value of a text key.
func (d *Dict) Get(key string) (any, bool) {
	for i := len(d.Keys) - 1; i >= 0; i-- {
		if d.Keys[i] == key {
			return d.Values[i], true
		}
	}
	return nil, false
}

// className is a class or function of the whitelist that a pickle named.
type className string

// Whitelist lists the names that a pickle may use. They belong to NumPy's arrays, scalars and
// dtypes. This package builds the objects itself and calls nothing.
var Whitelist = []string{
	"numpy.core.multiarray._reconstruct", "numpy._core.multiarray._reconstruct",
	"numpy.core.multiarray.scalar", "numpy._core.multiarray.scalar",
	"numpy.core.numeric._frombuffer", "numpy._core.numeric._frombuffer",
	"numpy.ndarray", "numpy.dtype", "_codecs.encode",
}

var whitelist = func() map[string]className {
	m := map[string]className{}
	for _, w := range Whitelist {
		m[w] = className(strings.Replace(w, "numpy._core.", "numpy.core.", 1))
	}
	return m
}()

// dtypeBuilder is an unfinished dtype. The opcode BUILD sets its byte order.
type dtypeBuilder struct{ t Type }

type pickleMachine struct {
	b         []byte
	at        int
	stack     []any
	marks     []int
	memo      []any
	memoSet   []bool // parallel to memo
	bytesMade int    // bytes of results that are not in the file
}

// Unpickle reads a pickle of protocol 0 to 5 (npy.N3).
func Unpickle(b []byte) (v any, err error) {
	defer guard.Recover("npy", &err)
	m := &pickleMachine{b: b}
	for {
		op := m.readBytes(1)[0]
		if op == '.' {
			if len(m.stack) != 1 || len(m.marks) != 0 {
				m.failPickle("%d values at the end, not one", len(m.stack))
			}
			return m.stack[0], nil
		}
		m.runOpcode(op)
	}
}

// failPickle fails the read because the pickle is malformed.
func (m *pickleMachine) failPickle(format string, args ...any) {
	guard.Fail(malformed("pickle: byte %d: %s", m.at, fmt.Sprintf(format, args...)))
}

// refusePickle fails the read because the pickle uses an unsupported feature.
func (m *pickleMachine) refusePickle(format string, args ...any) {
	guard.Fail(unsupported("pickle: byte %d: %s", m.at, fmt.Sprintf(format, args...)))
}

func (m *pickleMachine) readBytes(n uint64) []byte {
	if n > uint64(len(m.b)-m.at) {
		m.failPickle("the pickle is cut: %d bytes declared, %d left", n, len(m.b)-m.at)
	}
	m.at += int(n)
	return m.b[m.at-int(n) : m.at : m.at]
}

// readUint reads a little-endian number of n bytes.
func (m *pickleMachine) readUint(n uint64) uint64 {
	var l [8]byte
	copy(l[:], m.readBytes(n))
	return binary.LittleEndian.Uint64(l[:])
}

// readSized reads a length of w bytes, and then as many bytes as the length.
func (m *pickleMachine) readSized(w uint64) []byte { return m.readBytes(m.readUint(w)) }

func (m *pickleMachine) readLine() string {
	n := bytes.IndexByte(m.b[m.at:], '\n')
	if n < 0 {
		m.failPickle("the pickle is cut")
	}
	return string(m.readBytes(uint64(n) + 1)[:n])
}

func (m *pickleMachine) push(v any) { m.stack = append(m.stack, v) }

// stackFloor returns the position of the first value above the last mark. Values below it must not
// be popped.
func (m *pickleMachine) stackFloor() int {
	if len(m.marks) == 0 {
		return 0
	}
	return m.marks[len(m.marks)-1]
}

func (m *pickleMachine) pop() any { return m.popN(1)[0] }

// popN removes and returns the last n values.
func (m *pickleMachine) popN(n int) []any {
	from := len(m.stack) - n
	if from < m.stackFloor() {
		m.failPickle("the stack is empty")
	}
	out := slices.Clone(m.stack[from:])
	m.stack = m.stack[:from]
	return out
}

func (m *pickleMachine) top() any {
	if len(m.stack) <= m.stackFloor() {
		m.failPickle("the stack is empty")
	}
	return m.stack[len(m.stack)-1]
}

// sinceMark removes and returns the values above the last mark.
func (m *pickleMachine) sinceMark() []any {
	if len(m.marks) == 0 {
		m.failPickle("no mark")
	}
	out := m.popN(len(m.stack) - m.stackFloor())
	m.marks = m.marks[:len(m.marks)-1]
	return out
}

func (m *pickleMachine) memoize(i uint64, v any) {
	// A pickler numbers its memo from 0. A number larger than the file would only allocate memory.
	if i > uint64(len(m.b)) {
		m.failPickle("memo %d", i)
	}
	for uint64(len(m.memo)) <= i {
		m.memo, m.memoSet = append(m.memo, nil), append(m.memoSet, false)
	}
	m.memo[i], m.memoSet[i] = v, true
}

func (m *pickleMachine) pushMemo(i uint64) {
	if i >= uint64(len(m.memo)) || !m.memoSet[i] {
		m.failPickle("memo %d does not exist", i)
	}
	m.push(m.memo[i])
}

// pushGlobal looks up a name in the whitelist.
func (m *pickleMachine) pushGlobal(module, name string) {
	c, ok := whitelist[module+"."+name]
	if !ok {
		refuseGlobal(module + "." + name)
	}
	m.push(c)
}

func refuseGlobal(name string) {
	guard.Fail(
		robocache.Unsupported(
			"npy",
			nil,
			"the pickle names %s, which is not supported because it could run code",
			strconv.QuoteToGraphic(shortenText(name)),
		).
			WithHint("only NumPy's own arrays, scalars and dtypes are rebuilt; save the data as " +
				"arrays and texts"),
	)
}

func shortenText(s string) string {
	if len(s) > 200 {
		return s[:200] + "…"
	}
	return s
}

func (m *pickleMachine) pushText(b []byte) {
	// replaces lone surrogates, which Python allows
	m.push(strings.ToValidUTF8(string(b), "\uFFFD"))
}

// widths has the byte sizes of the numbers and lengths of opcodes.
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

// runOpcode executes one opcode.
func (m *pickleMachine) runOpcode(op byte) {
	switch op {
	case 0x80: // PROTO
		if v := m.readBytes(1)[0]; v > 5 {
			guard.Fail(unsupported("pickle protocol %d", v))
		}
	case 0x95: // FRAME: the size of the next block, not needed
		m.readBytes(8)
	case '(':
		m.marks = append(m.marks, len(m.stack))
	case '0': // POP
		if len(m.stack) == m.stackFloor() && len(m.marks) > 0 {
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
		m.push(int64(int32(m.readUint(4))))
	case 'K', 'M':
		m.push(int64(m.readUint(widths[op])))
	case 0x8a, 0x8b: // LONG1, LONG4
		m.pushLong(m.readSized(widths[op]))
	case 'I', 'L':
		m.pushDecimal(op)
	case 'G':
		m.push(math.Float64frombits(binary.BigEndian.Uint64(m.readBytes(8))))
	case 'F':
		s := m.readLine()
		f, err := strconv.ParseFloat(s, 64)
		if err != nil && !math.IsInf(f, 0) {
			m.failPickle("float %q", shortenText(s))
		}
		m.push(f)
	case 'X', 0x8c, 0x8d:
		m.pushText(m.readSized(widths[op]))
	case 'V', 'S':
		m.pushQuoted(op)
	case 'B', 'T', 'C', 'U', 0x8e, 0x96: // also BINBYTES8, BYTEARRAY8
		m.push(Bytes(m.readSized(widths[op])))
	case ')':
		m.push(Tuple(nil))
	case 't':
		m.push(Tuple(m.sinceMark()))
	case 'l':
		m.push(&List{m.sinceMark()})
	case 'd':
		d := &Dict{}
		m.appendItems(d, m.sinceMark())
		m.push(d)
	case 0x85, 0x86, 0x87:
		m.push(Tuple(m.popN(int(op) - 0x84)))
	case ']', 0x8f: // EMPTY_LIST, EMPTY_SET: the order of a set does not matter
		m.push(&List{})
	case '}':
		m.push(&Dict{})
	case 'a', 's', 'e', 'u', 0x90, 0x91:
		m.appendToContainer(op)
	case 'q', 'r', 'p', 0x94, 'h', 'j', 'g':
		m.runMemoOpcode(op)
	case 'c':
		module := m.readLine()
		m.pushGlobal(module, m.readLine())
	case 0x93: // STACK_GLOBAL
		names := m.popN(2)
		module, ok1 := names[0].(string)
		name, ok2 := names[1].(string)
		if !ok1 || !ok2 {
			m.failPickle("a class name that is not a text")
		}
		m.pushGlobal(module, name)
	case 'R':
		m.reduceCall()
	case 'b':
		m.applyState()
	case 'i': // INST: a class by name, to be called
		module := m.readLine()
		refuseGlobal(module + "." + m.readLine())
	case 'o', 0x81, 0x92: // OBJ, NEWOBJ, NEWOBJ_EX: not needed for the whitelist
		m.refusePickle("an object is made by its class")
	case 'P', 'Q':
		m.refusePickle("a persistent id")
	case 0x82, 0x83, 0x84:
		m.refusePickle("a class of the copyreg extension registry")
	case 0x97, 0x98:
		m.refusePickle("an out-of-band buffer")
	default:
		m.failPickle("opcode 0x%02x", op)
	}
}
