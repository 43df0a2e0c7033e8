package ros2

import (
	"strconv"
	"strings"

	"github.com/goatnote-inc/robocache"
)

// transforms decodes tf2_msgs/TFMessage: a pair of streams (translation, rotation) on a clock of their own for every (parent, child).
// A row is one transform; its entry is the transform's place in its message.
type transforms struct {
	pairs map[string]int // "parent\x00child"
	order []string       // suffix of each pair
	taken map[string]bool
	full  int64
}

const maxPairs = 4096

func newTransforms() *transforms {
	return &transforms{pairs: map[string]int{}, taken: map[string]bool{}}
}

// transform is one of a message.
type transform struct {
	timestamp     int64
	parent, child []byte
	data          []byte // 7 float64
	big           bool
}

// leastTransform: header 12, child 4, numbers 56 bytes.
const leastTransform = 72

// each calls fn for the transforms of a message until it says false.
func (t *transforms) each(msg []byte, fn func(k int, x *transform) bool) error {
	c, err := open(msg)
	if err != nil {
		return err
	}
	x := transform{big: c.big}
	for k := range c.count(leastTransform) {
		x.timestamp, x.parent = c.header()
		x.child = c.str()
		x.data = c.take(8, 56)
		if c.short {
			return c.end("transforms[" + strconv.Itoa(k) + "]")
		}
		if !fn(k, &x) {
			return nil
		}
	}
	return c.end("transforms")
}

func (t *transforms) scan(msg []byte, row func(clock, entry int, timestamp int64, stamped bool)) error {
	var name []byte
	return t.each(msg, func(k int, x *transform) bool {
		name = append(append(append(name[:0], x.parent...), 0), x.child...)
		at, ok := t.pairs[string(name)]
		if !ok {
			if len(t.order) == maxPairs {
				t.full++
				return true
			}
			at = t.add(string(name))
		}
		if row != nil {
			row(at, k, x.timestamp, true)
		}
		return true
	})
}

func (t *transforms) add(name string) int {
	suffix := strings.NewReplacer("\x00", ".", "/", ".").Replace(strings.ToValidUTF8(name, "\ufffd"))
	suffix = "." + strings.Trim(suffix, ".")
	for k := 2; t.taken[suffix]; k++ { // "a/b" and "a.b" are two frames
		if next := suffix + "#" + strconv.Itoa(k); !t.taken[next] {
			suffix = next
		}
	}
	t.taken[suffix] = true
	t.pairs[name] = len(t.order)
	t.order = append(t.order, suffix)
	return len(t.order) - 1
}

func (t *transforms) layout(key string) (fields []Field, clocks []string) {
	for k, suffix := range t.order {
		clocks = append(clocks, key+suffix)
		fields = append(fields,
			Field{Suffix: suffix + ".translation", Clock: k, Feature: robocache.Feature{Kind: robocache.KindNumeric, DType: robocache.Float64, Shape: []int{3}, Names: namesOf(xyz)}},
			Field{Suffix: suffix + ".rotation", Clock: k, Feature: robocache.Feature{Kind: robocache.KindNumeric, DType: robocache.Float64, Shape: []int{4}, Names: namesOf(xyzw), Interpolation: "slerp"}})
	}
	return fields, clocks
}

// at reads the transform at a place of a message.
func (x *transform) at(msg []byte, entry int) error {
	c, err := open(msg)
	if err != nil {
		return err
	}
	x.big = c.big
	n := c.count(leastTransform)
	if entry >= n && !c.short {
		return lengthError("transforms", entry+1, n)
	}
	for range entry + 1 {
		x.timestamp, x.parent = c.header()
		x.child = c.str()
		x.data = c.take(8, 56)
	}
	if c.short {
		return c.end("transforms[" + strconv.Itoa(entry) + "]")
	}
	return nil
}

func (t *transforms) numeric(msg []byte, field, entry int, dst []byte) (bool, error) {
	var x transform
	if err := x.at(msg, entry); err != nil {
		return false, err
	}
	x.put(field, dst)
	return true, nil
}

// put writes the translation or the rotation, by the field's parity.
func (x *transform) put(field int, dst []byte) {
	if field%2 == 0 {
		copyLE(dst, x.data[:24], 8, x.big)
	} else {
		copyLE(dst, x.data[24:], 8, x.big)
	}
}

func (t *transforms) columns(msgs [][]byte, entries []int32, fields []int, dst [][]byte, valid [][]uint8) (int, error) {
	var x transform
	for k, msg := range msgs {
		entry := 0
		if entries != nil {
			entry = int(entries[k])
		}
		if err := x.at(msg, entry); err != nil {
			return k, err
		}
		for j, f := range fields {
			row := 24 + 8*(f%2)
			x.put(f, dst[j][k*row:(k+1)*row])
			mark(valid, j, k, true)
		}
	}
	return -1, nil
}

func (t *transforms) findings() []robocache.Finding {
	if t.full == 0 {
		return nil
	}
	return []robocache.Finding{{Severity: robocache.SeverityError, Code: "too-many-frames", Count: t.full, Message: "transforms between more than " + strconv.Itoa(maxPairs) + " pairs of frames: the others are left out"}}
}

func (t *transforms) ragged([]byte, int, int, []byte) ([]byte, int, error) {
	return nil, 0, noSuch("tf2_msgs/TFMessage", "ragged fields")
}
func (t *transforms) pic([]byte, int, int) (robocache.FrameRef, error) {
	return robocache.FrameRef{}, noSuch("tf2_msgs/TFMessage", "images")
}
func (t *transforms) text([]byte, int, int) (string, error) {
	return "", noSuch("tf2_msgs/TFMessage", "texts")
}
