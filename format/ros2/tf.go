package ros2

import (
	"strconv"
	"strings"

	"github.com/goatnote-inc/robocache"
)

// transforms decodes tf2_msgs/TFMessage: a pair of streams (translation, rotation) on a clock of
// their own for every (parent, child). A row is one transform; its entry is the transform's place
// in its message.
type transforms struct {
	onlyType
	pairs map[string]int // "parent\x00child"
	order []string       // suffix of each pair
	taken map[string]bool
	full  int64
}

const maxPairs = 4096

func newTransforms() *transforms {
	return &transforms{
		onlyType: "tf2_msgs/TFMessage",
		pairs:    map[string]int{},
		taken:    map[string]bool{},
	}
}

// transform is one of a message.
type transform struct {
	timestamp     int64
	parent, child []byte
	data          []byte // 7 float64
}

// leastTransform: header 12, child 4, numbers 56 bytes.
const leastTransform = 72

// each calls fn for the transforms of a message until it says false.
func (t *transforms) each(msg []byte, fn func(k int, x transform) bool) error {
	c := open(msg)
	var x transform
	for k := range c.count(leastTransform) {
		x.timestamp, x.parent = c.header()
		x.child = c.str()
		x.data = c.elements(7, 8)
		if c.short {
			return c.end("transforms[" + strconv.Itoa(k) + "]")
		}
		if !fn(k, x) {
			return nil
		}
	}
	return c.end("transforms")
}

func (t *transforms) several() bool { return true }

func (t *transforms) scan(msg []byte, row rowFunc) error {
	var name []byte
	return t.each(msg, func(k int, x transform) bool {
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
	suffix := strings.NewReplacer("\x00", ".", "/", ".").
		Replace(strings.ToValidUTF8(name, "\ufffd"))
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
		fields = append(
			fields,
			Field{
				Suffix: suffix + ".translation",
				Clock:  k,
				Feature: robocache.Feature{
					Kind:  robocache.KindNumeric,
					DType: robocache.Float64,
					Shape: []int{3},
					Names: namesOf(xyz),
				},
			},
			Field{
				Suffix: suffix + ".rotation",
				Clock:  k,
				Feature: robocache.Feature{
					Kind:          robocache.KindNumeric,
					DType:         robocache.Float64,
					Shape:         []int{4},
					Names:         namesOf(xyzw),
					Interpolation: "slerp",
				},
			},
		)
	}
	return fields, clocks
}

func (t *transforms) row(msg []byte, entry int, fields []int, to rows) error {
	n := 0
	err := t.each(msg, func(k int, x transform) bool {
		if n = k + 1; k < entry {
			return true
		}
		for j, f := range fields {
			if f%2 == 0 { // the translation
				copy(to.at(j, 24), x.data)
			} else {
				copy(to.at(j, 32), x.data[24:])
			}
			to.mark(j, true)
		}
		return false
	})
	if err == nil && n <= entry {
		return lengthError("transforms", entry+1, n)
	}
	return err
}

func (t *transforms) findings() []robocache.Finding {
	return counted(
		t.full,
		robocache.Finding{
			Severity: robocache.SeverityError,
			Code:     "too-many-frames",
			Message: "transforms between more than " + strconv.Itoa(
				maxPairs,
			) + " pairs of frames: the others are left out",
		},
	)
}
