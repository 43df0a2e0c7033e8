package ros2

import (
	"encoding/json"
	"strings"

	"github.com/goatnote-inc/robocache"
)

// sink collects the leaves of one message that are wanted.
type sink struct {
	fields []int      // that it is for
	slot   []int32    // of each leaf: where it goes; -1 = passed over
	last   int        // the last leaf that is wanted: behind it nothing is read
	out    [][]byte   // by slot: numbers, little-endian, appended
	texts  [][]string // by slot
	counts []int      // by leaf: elements met; nil = not counted
	fail   string     // path of the first member that is not there
}

// walk decodes nodes along a message. It ends early, with true, where nothing more is wanted; once
// says that the nodes come no more (they stand in no array).
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
			if int64(count)*int64(n.least) > int64(c.left()) {
				c.short = true
			}
		}
		if c.short {
			return s.failed(n)
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
					return s.failed(n)
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
			return s.failed(n)
		}
	}
	return false
}

func (s *sink) failed(n *node) bool {
	if s.fail == "" {
		s.fail = n.path
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

// run decodes one message into the sink.
func (s *sink) run(t *tree, msg []byte) error {
	c := open(msg)
	s.walk(t.nodes, &c, true)
	return c.end(s.fail)
}

// textOf is the row of a text leaf: the text, or of a leaf that holds several a JSON list.
func textOf(l *leaf, texts []string) (string, error) {
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
