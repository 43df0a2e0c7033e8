package ros2

import (
	"bytes"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/guard"
)

// noMembers is the row of a type that holds nothing beside its timestamp (std_msgs/Empty): the
// message is the event.
const noMembers = "{}"

// generic decodes any type by its schema: a stream a leaf; of a type without leaves one stream of
// events.
type generic struct {
	onlyType
	tree   *tree
	fields []int // leaf of each field
	// lens is what scanning saw of each leaf inside sequences: its number of elements, unseen, or
	// varying.
	lens   []int
	camera bool // CameraInfo: its values are the camera's, and should not change
	first  []byte
	scans  int64
	change int64
	at     int64 // message of the first change
	sinks  sync.Pool
}

const (
	unseen  = -1
	varying = -2
)

func newGeneric(s *Schema) (_ *generic, err error) {
	defer guard.Recover("schema", &err)
	t := compile(s.root)
	if p := wide(t.nodes); p != "" {
		return nil, robocache.Unsupported(
			"schema",
			robocache.Where{"field": p},
			"wide strings (wstring) are not read",
		)
	}
	g := &generic{
		onlyType: onlyType(s.Name),
		tree:     t,
		lens:     make([]int, len(t.leaves)),
		camera:   shortKey(s.Name) == "sensor_msgs/CameraInfo",
	}
	for k := range t.leaves {
		g.lens[k] = unseen
		if k < 2 && (t.header || t.timestamp) {
			continue // the timestamp is the row's time
		}
		g.fields = append(g.fields, k)
	}
	return g, nil
}

// sink gives a sink for some fields. One that was for the same fields before is as it has to be.
func (g *generic) sink(fields ...int) *sink {
	s, ok := g.sinks.Get().(*sink)
	if !ok {
		s = &sink{slot: make([]int32, len(g.tree.leaves))}
	} else if len(fields) > 0 && slices.Equal(s.fields, fields) {
		return s
	}
	*s = sink{
		slot:   s.slot,
		fields: append(s.fields[:0], fields...),
		out:    slices.Grow(s.out[:0], len(fields))[:len(fields)],
	}
	for k := range s.slot {
		s.slot[k] = -1
	}
	for j, f := range fields {
		leaf := g.fields[f]
		s.slot[leaf], s.last = int32(j), max(s.last, leaf)
	}
	return s
}

// release gives a sink back; it holds nothing of the caller's.
func (g *generic) release(s *sink) {
	clear(s.out)
	s.texts, s.counts, s.fail = nil, nil, ""
	g.sinks.Put(s)
}

func (g *generic) scan(msg []byte, row rowFunc) error {
	if row != nil {
		defer func() { g.scans++ }()
	}
	s := g.sink()
	defer g.release(s)
	s.counts = make([]int, len(s.slot))
	s.last = len(s.slot)
	if err := s.run(g.tree, msg); err != nil {
		return err
	}
	for k, n := range s.counts {
		if g.tree.leaves[k].seqs == 0 {
			continue
		}
		switch g.lens[k] {
		case unseen:
			g.lens[k] = n
		case n:
		default:
			g.lens[k] = varying
		}
	}
	if g.camera && row != nil {
		g.watch(msg)
	}
	return nil
}

// watch compares what follows the header with that of the first message.
func (g *generic) watch(msg []byte) {
	c := open(msg)
	if g.tree.header {
		c.header()
	}
	body := c.b[c.off:]
	if g.first == nil {
		g.first = append([]byte{}, body...)
	} else if !bytes.Equal(g.first, body) {
		if g.change == 0 {
			g.at = g.scans
		}
		g.change++
	}
}

func (g *generic) findings() []robocache.Finding {
	return counted(g.change, robocache.Finding{
		Severity: robocache.SeverityWarning,
		Code:     "camera-info-changed",
		Where:    robocache.Where{"index": g.at},
		Message:  "the camera's calibration is not that of the first message",
		Hint:     "split the recording where the camera was changed",
	})
}

func (g *generic) timestampOf(msg []byte) (int64, bool, error) {
	if !g.tree.header && !g.tree.timestamp {
		return 0, false, nil
	}
	c := open(msg)
	timestamp := c.timestamp()
	return timestamp, !c.short, c.end("stamp")
}

func (g *generic) layout(key string) ([]Field, []string) {
	if len(g.fields) == 0 {
		return []Field{
			{
				Feature: robocache.Feature{
					Kind:  robocache.KindEvent,
					DType: robocache.JSON,
					Shape: []int{1},
				},
			},
		}, []string{
			key,
		}
	}
	var out []Field
	for _, k := range g.fields {
		l := &g.tree.leaves[k]
		f := Field{
			Suffix: "." + l.path,
			Feature: robocache.Feature{
				Kind:  robocache.KindNumeric,
				DType: l.dtype,
				Shape: []int{1},
			},
		}
		if len(g.tree.leaves) == 1 && l.path == "data" &&
			strings.HasPrefix(string(g.onlyType), "std_msgs/") {
			f.Suffix = ""
		}
		switch n := g.lens[k]; {
		case l.text:
			f.Feature.Kind, f.Feature.DType = robocache.KindText, robocache.String
		case l.seqs > 1 || l.seqs == 1 && n <= 0:
			f.Feature.Shape = []int{-1}
		case l.seqs == 1:
			f.Feature.Shape = []int{n}
			f.Partial = true
		case len(l.dims) > 0:
			f.Feature.Shape = l.dims
		}
		out = append(out, f)
	}
	return out, []string{key}
}

func (g *generic) row(msg []byte, _ int, fields []int, to rows) error {
	if len(g.fields) == 0 {
		return misuse("the type has no fields: its messages are events")
	}
	s := g.sink(fields...)
	defer g.release(s)
	for j, f := range fields {
		if s.slot[g.fields[f]] != int32(j) {
			return misuse("a field is asked for twice")
		}
		w := to.width(j)
		s.out[j] = to.dst[j][to.k*w : to.k*w : (to.k+1)*w]
	}
	if err := s.run(g.tree, msg); err != nil {
		return err
	}
	for j, out := range s.out {
		w := to.width(j)
		ok := len(out) == w
		if !ok {
			clear(to.at(j, w))
		}
		to.mark(j, ok)
	}
	return nil
}

// trailing is how many bytes may follow a message: padding.
const trailing = 3

// fits says whether messages are decoded to their ends.
func (g *generic) fits(msgs [][]byte) bool {
	s := g.sink()
	defer g.release(s)
	most := trailing
	if len(g.tree.nodes) == 0 {
		most++ // the byte that a structure without members has on the wire
	}
	for _, m := range msgs {
		c := open(m)
		s.last = len(s.slot)
		s.walk(g.tree.nodes, &c, true)
		if c.short || c.left() > most {
			return false
		}
	}
	return true
}

func (g *generic) ragged(msg []byte, field, _ int, dst []byte) ([]byte, int, error) {
	s := g.sink(field)
	defer g.release(s)
	s.out[0] = dst
	if err := s.run(g.tree, msg); err != nil {
		return dst, 0, err
	}
	return s.out[0], (len(s.out[0]) - len(dst)) / g.tree.leaves[g.fields[field]].dtype.Size(), nil
}

func (g *generic) text(msg []byte, field, _ int) (string, error) {
	if len(g.fields) == 0 {
		return noMembers, nil
	}
	s := g.sink(field)
	defer g.release(s)
	s.texts = [][]string{nil}
	if err := s.run(g.tree, msg); err != nil {
		return "", err
	}
	return textOf(&g.tree.leaves[g.fields[field]], s.texts[0])
}

func lengthError(field string, want, got int) error {
	return robocache.Malformed("cdr", robocache.Where{"field": field}, "").
		Expected(strconv.Itoa(want)+" elements", strconv.Itoa(got))
}
