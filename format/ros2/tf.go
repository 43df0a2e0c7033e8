package ros2

import (
	"strconv"
	"strings"

	"github.com/goatnote-inc/robocache"
)

// transforms decodes tf2_msgs/TFMessage. Each pair (parent, child) has two streams (translation,
// rotation) with their own clock. A row is one transform, and its entry is the position of the
// transform in the message.
type transforms struct {
	onlyType
	transformLayout
	restored bool
	index    map[string]int // in Pairs
	order    []string       // suffix of each pair
	taken    map[string]bool
	overflow int64
}

type transformLayout struct {
	Pairs [][]byte `json:"pairs"` // "parent\x00child"
}

const maxPairs = 4096

func newTransforms() *transforms {
	return &transforms{
		onlyType: "tf2_msgs/TFMessage",
		index:    map[string]int{},
		taken:    map[string]bool{},
	}
}

// transform is one transform of a message.
type transform struct {
	timestamp     int64
	parent, child []byte
	data          []byte // 7 float64
}

// leastTransform is the minimum size of a transform: header 12, child 4, numbers 56 bytes.
const leastTransform = 72

// eachTransform calls fn for the transforms of a message until fn returns false.
func (t *transforms) eachTransform(msg []byte, fn func(k int, x transform) bool) error {
	c := newCursor(msg)
	var x transform
	for k := range c.count(leastTransform) {
		x.timestamp, x.parent = c.header()
		x.child = c.str()
		x.data = c.elements(7, 8)
		if c.short {
			return c.finish("transforms[" + strconv.Itoa(k) + "]")
		}
		if !fn(k, x) {
			return nil
		}
	}
	return c.finish("transforms")
}

func (t *transforms) hasManyRows() bool { return true }

func (t *transforms) scanMessage(msg []byte, row rowFunc) error {
	var few [128]byte // most pairs of names fit into it
	name := few[:0]
	return t.eachTransform(msg, func(k int, x transform) bool {
		name = append(append(append(name[:0], x.parent...), 0), x.child...)
		at, ok := t.index[string(name)]
		if !ok {
			if t.restored {
				return true // not a stream of the recording
			}
			if len(t.order) == maxPairs {
				t.overflow++
				return true
			}
			at = t.addPair(string(name))
		}
		if row != nil {
			row(at, k, x.timestamp, true)
		}
		return true
	})
}

func (t *transforms) addPair(name string) int {
	suffix := strings.NewReplacer("\x00", ".", "/", ".").
		Replace(strings.ToValidUTF8(name, "\ufffd"))
	suffix = "." + strings.Trim(suffix, ".")
	for k := 2; t.taken[suffix]; k++ { // "a/b" and "a.b" are different frames
		if next := suffix + "#" + strconv.Itoa(k); !t.taken[next] {
			suffix = next
		}
	}
	t.taken[suffix] = true
	t.index[name] = len(t.order)
	t.Pairs = append(t.Pairs, []byte(name))
	t.order = append(t.order, suffix)
	return len(t.order) - 1
}

func (t *transforms) learnedState() any { return &t.transformLayout }

func (t *transforms) restoreState(fixed bool) error {
	if len(t.Pairs) > maxPairs {
		return robocache.ResourceLimit("layout", nil, "%d pairs of frames", len(t.Pairs))
	}
	pairs := t.Pairs
	t.Pairs, t.restored = nil, fixed
	for _, name := range pairs {
		t.addPair(string(name))
	}
	return nil
}

func (t *transforms) streamLayout(key string) (fields []Field, clocks []string) {
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
					Names: encodeNames(xyz),
				},
			},
			Field{
				Suffix: suffix + ".rotation",
				Clock:  k,
				Feature: robocache.Feature{
					Kind:          robocache.KindNumeric,
					DType:         robocache.Float64,
					Shape:         []int{4},
					Names:         encodeNames(xyzw),
					Interpolation: "slerp",
				},
			},
		)
	}
	return fields, clocks
}

func (t *transforms) decodeRow(msg []byte, entry int, fields []int, to rows) error {
	n := 0
	err := t.eachTransform(msg, func(k int, x transform) bool {
		if n = k + 1; k < entry {
			return true
		}
		for j, f := range fields {
			if f%2 == 0 { // the translation
				copy(to.rowOf(j, 24), x.data)
			} else {
				copy(to.rowOf(j, 32), x.data[24:])
			}
			to.setValid(j, true)
		}
		return false
	})
	if err == nil && n <= entry {
		return lengthError("transforms", entry+1, n)
	}
	return err
}

func (t *transforms) scanFindings() []robocache.Finding {
	return countedFinding(
		t.overflow,
		robocache.Finding{
			Severity: robocache.SeverityError,
			Code:     "too-many-frames",
			Message: "transforms between more than " + strconv.Itoa(
				maxPairs,
			) + " pairs of frames: the others are left out",
		},
	)
}
