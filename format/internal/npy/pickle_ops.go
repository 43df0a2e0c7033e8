package npy

import (
	"encoding/binary"
	"strconv"
	"strings"
	"unicode/utf8"
)

// long reads a little-endian two's complement integer.
func (m *machine) long(b []byte) error {
	if len(b) > 8 {
		return unsupported("pickle: byte %d: an integer of %d bytes", m.at, len(b))
	}
	var l [8]byte
	copy(l[:], b)
	if len(b) > 0 && b[len(b)-1] >= 0x80 {
		for i := len(b); i < 8; i++ {
			l[i] = 0xff
		}
	}
	m.push(int64(binary.LittleEndian.Uint64(l[:])))
	return nil
}

func (m *machine) decimal(op byte) error {
	s, err := m.line()
	if err != nil {
		return err
	}
	if op == 'I' && (s == "00" || s == "01") {
		m.push(s == "01")
		return nil
	}
	n, err := strconv.ParseInt(strings.TrimSuffix(s, "L"), 10, 64)
	if err != nil {
		return m.bad("integer %q", cut(s))
	}
	m.push(n)
	return nil
}

// quoted reads the texts of protocol 0.
func (m *machine) quoted(op byte) error {
	s, err := m.line()
	if err != nil {
		return err
	}
	if op == 'S' {
		if len(s) < 2 || s[0] != s[len(s)-1] || s[0] != '\'' && s[0] != '"' {
			return m.bad("a text without quotes")
		}
		s = s[1 : len(s)-1]
	}
	var b []byte
	for len(s) > 0 {
		if s[0] != '\\' || op == 'V' && (len(s) < 2 || s[1] != 'u' && s[1] != 'U') {
			// 'V' is Latin-1 but for its \u escapes, 'S' is bytes.
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
			return m.bad("an escape in a text")
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
	return nil
}

func (m *machine) fill(d *Dict, items []any) error {
	if len(items)%2 != 0 {
		return m.bad("a dict of %d keys and values", len(items))
	}
	for i := 0; i < len(items); i += 2 {
		d.Keys, d.Values = append(d.Keys, items[i]), append(d.Values, items[i+1])
	}
	return nil
}

// add puts values into the list, set or dict below them.
func (m *machine) add(op byte) error {
	var items []any
	var err error
	switch op {
	case 'a', 's':
		n := 1
		if op == 's' {
			n = 2
		}
		if len(m.stack) < m.floor()+n {
			return m.bad("the stack is empty")
		}
		items = append(items, m.stack[len(m.stack)-n:]...)
		m.stack = m.stack[:len(m.stack)-n]
	default:
		if items, err = m.sinceMark(); err != nil {
			return err
		}
	}
	if op == 0x91 { // FROZENSET
		m.push(&List{items})
		return nil
	}
	to, err := m.top()
	if err != nil {
		return err
	}
	switch to := to.(type) {
	case *List:
		if op == 'a' || op == 'e' || op == 0x90 {
			to.Items = append(to.Items, items...)
			return nil
		}
	case *Dict:
		if op == 's' || op == 'u' {
			return m.fill(to, items)
		}
	}
	return m.bad("values added to something that holds none")
}

func (m *machine) remember(op byte) error {
	var i uint64
	switch op {
	case 'q', 'h', 'r', 'j':
		n := uint64(1)
		if op == 'r' || op == 'j' {
			n = 4
		}
		var err error
		if i, err = m.number(n); err != nil {
			return err
		}
	case 'p', 'g':
		s, err := m.line()
		if err != nil {
			return err
		}
		if i, err = strconv.ParseUint(s, 10, 32); err != nil {
			return m.bad("memo %q", cut(s))
		}
	case 0x94:
		i = uint64(len(m.memo))
	}
	if op == 'h' || op == 'j' || op == 'g' {
		return m.get(i)
	}
	v, err := m.top()
	if err != nil {
		return err
	}
	return m.put(i, v)
}

func (m *machine) named(op byte) error {
	if op == 'c' {
		module, name, err := m.lines2()
		if err != nil {
			return err
		}
		return m.global(module, name)
	}
	n, err := m.pop()
	if err != nil {
		return err
	}
	mod, err := m.pop()
	if err != nil {
		return err
	}
	name, ok1 := n.(string)
	module, ok2 := mod.(string)
	if !ok1 || !ok2 {
		return m.bad("a class whose name is no text")
	}
	return m.global(module, name)
}
