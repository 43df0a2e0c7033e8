package npy

import (
	"encoding/binary"
	"strconv"
	"strings"
	"unicode/utf8"
)

// long reads a little-endian two's complement integer.
func (m *machine) long(b []byte) {
	if len(b) > 8 {
		m.refuse("an integer of %d bytes", len(b))
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

func (m *machine) decimal(op byte) {
	s := m.line()
	if op == 'I' && (s == "00" || s == "01") {
		m.push(s == "01")
		return
	}
	n, err := strconv.ParseInt(strings.TrimSuffix(s, "L"), 10, 64)
	if err != nil {
		m.bad("integer %q", cut(s))
	}
	m.push(n)
}

// quoted reads the texts of protocol 0.
func (m *machine) quoted(op byte) {
	s := m.line()
	if op == 'S' {
		if len(s) < 2 || s[0] != s[len(s)-1] || s[0] != '\'' && s[0] != '"' {
			m.bad("a text without quotes")
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
			m.bad("an escape in a text")
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

func (m *machine) fill(d *Dict, items []any) {
	if len(items)%2 != 0 {
		m.bad("a dict of %d keys and values", len(items))
	}
	for i := 0; i < len(items); i += 2 {
		d.Keys, d.Values = append(d.Keys, items[i]), append(d.Values, items[i+1])
	}
}

// add puts values into the list, set or dict below them.
func (m *machine) add(op byte) {
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
		m.fill(dict, items)
	default:
		m.bad("values added to something that holds none")
	}
}

// remember puts the last value into the memo, or takes one out of it.
func (m *machine) remember(op byte) {
	var i uint64
	switch op {
	case 0x94:
		i = uint64(len(m.memo))
	case 'p', 'g':
		s := m.line()
		var err error
		if i, err = strconv.ParseUint(s, 10, 32); err != nil {
			m.bad("memo %q", cut(s))
		}
	default:
		i = m.number(widths[op])
	}
	if op == 'h' || op == 'j' || op == 'g' {
		m.get(i)
	} else {
		m.put(i, m.top())
	}
}
