package ros2

import (
	"encoding/json"
	"strings"

	"github.com/goatnote-inc/robocache"
)

// sink collects the requested leaves of one message.
type sink struct {
	fields      []int      // the fields that it collects
	slot        []int32    // output slot of each leaf; -1 if the leaf is skipped
	last        int        // last requested leaf; later members are not read
	out         [][]byte   // by slot: appended little-endian numbers
	texts       [][]string // by slot
	counts      []int      // by leaf: number of elements; nil if they are not counted
	missingPath string     // path of the first missing member
}

// walk decodes nodes of a message. It returns true if no further leaf is requested or a read
// failed. once reports whether the nodes are not inside an array.
func (s *sink) walk(nodes []node, c *cursor, once bool) (done bool) {
	for k := range nodes {
		n := &nodes[k]
		if once && n.base != isMessage && n.leaf > s.last {
			return true
		}
		count := 1
		switch n.array {
		case single:
		case sequence:
			count = c.count(n.least)
			if n.lengths >= 0 && s.slot[n.lengths] >= 0 {
				p := &s.out[s.slot[n.lengths]]
				*p = append(*p, byte(count), byte(count>>8), byte(count>>16), byte(count>>24))
			}
			if n.lengths >= 0 && s.counts != nil {
				s.counts[n.lengths]++
			}
		default:
			count = n.array
			if int64(count)*int64(n.least) > int64(c.remaining()) {
				c.short = true
			}
		}
		if c.short {
			return s.recordMissing(n)
		}
		switch n.base {
		case isNumber:
			p := c.elements(count, n.size)
			if n.leaf < 0 {
				break
			}
			if at := s.slot[n.leaf]; at >= 0 {
				s.out[at] = appendNumbers(s.out[at], p, n.dtype)
			}
			if s.counts != nil {
				s.counts[n.leaf] += count
			}
		case isString:
			for range count {
				p := c.str()
				if c.short {
					return s.recordMissing(n)
				}
				if at := s.slot[n.leaf]; at >= 0 {
					s.texts[at] = append(s.texts[at], strings.ToValidUTF8(string(p), "\ufffd"))
				}
			}
		case isMessage:
			for range count {
				if s.walk(n.children, c, once && n.array == single) {
					return true
				}
			}
		}
		if c.short {
			return s.recordMissing(n)
		}
	}
	return false
}

func (s *sink) recordMissing(n *node) bool {
	if s.missingPath == "" {
		s.missingPath = n.path
	}
	return true
}

func appendNumbers(dst, src []byte, dtype robocache.DType) []byte {
	at := len(dst)
	dst = append(dst, src...)
	if dtype == robocache.Bool {
		for k := at; k < len(dst); k++ {
			if dst[k] != 0 {
				dst[k] = 1
			}
		}
	}
	return dst
}

// decode decodes one message into the sink.
func (s *sink) decode(t *tree, msg []byte) error {
	c := newCursor(msg)
	s.walk(t.nodes, &c, true)
	return c.finish(s.missingPath)
}

// leafText returns the row of a text leaf: the text, or a JSON list if the leaf holds several
// texts.
func leafText(l *leaf, texts []string) (string, error) {
	if l.seqs == 0 && len(l.dims) == 0 {
		if len(texts) == 0 {
			return "", nil
		}
		return texts[0], nil
	}
	if texts == nil {
		texts = []string{}
	}
	b, err := json.Marshal(texts)
	return string(b), err
}
