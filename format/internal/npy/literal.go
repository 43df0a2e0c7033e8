package npy

import (
	"fmt"
	"strconv"
	"strings"
)

// maxDepth bounds what nests: literals and pickled values.
const maxDepth = 32

// literal reads the subset of Python literals that npy headers are made of: dict, tuple, list, text, integer, bool, None.
type literal struct {
	s     string
	at    int
	depth int
}

// pair is an entry of a dict: headers have three, in no fixed order.
type pair struct{ key, value any }

type (
	dict  []pair
	tuple []any
)

func (d dict) get(key string) (any, bool) {
	for _, p := range d {
		if p.key == key {
			return p.value, true
		}
	}
	return nil, false
}

func parseLiteral(s string) (any, error) {
	l := &literal{s: s}
	v, err := l.value()
	if err != nil {
		return nil, err
	}
	if l.space(); l.at != len(l.s) {
		return nil, l.bad("something follows the literal")
	}
	return v, nil
}

func (l *literal) bad(msg string) error {
	return malformed("header: character %d: %s", l.at, msg)
}

func (l *literal) space() {
	for l.at < len(l.s) && strings.IndexByte(" \t\r\n\f\x00", l.s[l.at]) >= 0 {
		l.at++
	}
}

func (l *literal) peek() byte {
	if l.space(); l.at < len(l.s) {
		return l.s[l.at]
	}
	return 0
}

func (l *literal) value() (any, error) {
	if l.depth++; l.depth > maxDepth {
		return nil, l.bad("nested too deep")
	}
	defer func() { l.depth-- }()
	switch c := l.peek(); {
	case c == '{':
		return l.dict()
	case c == '(':
		items, comma, err := l.items(')')
		if err == nil && len(items) == 1 && !comma {
			return items[0], nil // parentheses around a value
		}
		return tuple(items), err
	case c == '[':
		items, _, err := l.items(']')
		return items, err
	case c == '\'' || c == '"':
		return l.text()
	case c == '-' || c == '+' || c >= '0' && c <= '9':
		from := l.at
		for l.at++; l.at < len(l.s) && l.s[l.at] >= '0' && l.s[l.at] <= '9'; l.at++ {
		}
		n, err := strconv.ParseInt(l.s[from:l.at], 10, 64)
		if err != nil {
			return nil, l.bad("not an integer of 64 bits")
		}
		if l.at < len(l.s) && l.s[l.at] == 'L' { // Python 2 wrote long integers so
			l.at++
		}
		return n, nil
	}
	for word, v := range map[string]any{"True": true, "False": false, "None": nil} {
		if strings.HasPrefix(l.s[l.at:], word) {
			l.at += len(word)
			return v, nil
		}
	}
	if (strings.HasPrefix(l.s[l.at:], "u") || strings.HasPrefix(l.s[l.at:], "b")) && l.at+1 < len(l.s) && (l.s[l.at+1] == '\'' || l.s[l.at+1] == '"') {
		l.at++
		return l.text()
	}
	return nil, l.bad("not a literal")
}

// items reads what stands between brackets; comma says that the last item was followed by one.
func (l *literal) items(end byte) (out []any, comma bool, err error) {
	for l.at++; ; l.at++ {
		if l.peek() == end {
			l.at++
			return out, comma, nil
		}
		v, err := l.value()
		if err != nil {
			return nil, false, err
		}
		out = append(out, v)
		switch l.peek() {
		case ',':
			comma = true
		case end:
			l.at++
			return out, false, nil
		default:
			return nil, false, l.bad(fmt.Sprintf("expected , or %c", end))
		}
	}
}

func (l *literal) dict() (any, error) {
	var out dict
	for l.at++; ; l.at++ {
		if l.peek() == '}' {
			l.at++
			return out, nil
		}
		k, err := l.value()
		if err != nil {
			return nil, err
		}
		if l.peek() != ':' {
			return nil, l.bad("expected :")
		}
		l.at++
		v, err := l.value()
		if err != nil {
			return nil, err
		}
		if name, ok := k.(string); ok {
			if _, twice := out.get(name); twice {
				return nil, l.bad("two entries for " + strconv.Quote(name))
			}
		}
		out = append(out, pair{k, v})
		switch l.peek() {
		case ',':
		case '}':
			l.at++
			return out, nil
		default:
			return nil, l.bad("expected , or }")
		}
	}
}

func (l *literal) text() (any, error) {
	quote := l.s[l.at]
	var b strings.Builder
	for l.at++; l.at < len(l.s); l.at++ {
		switch c := l.s[l.at]; c {
		case quote:
			l.at++
			return b.String(), nil
		case '\\':
			if l.at++; l.at == len(l.s) || strings.IndexByte(`\'"`, l.s[l.at]) < 0 {
				return nil, l.bad("an escape that no header needs")
			}
			b.WriteByte(l.s[l.at])
		case '\n':
			return nil, l.bad("a line break in a text")
		default:
			b.WriteByte(c)
		}
	}
	return nil, l.bad("a text without its end")
}
