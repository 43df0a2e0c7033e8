package ros2

import (
	"bytes"
	"cmp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/guard"
)

// noMembers is the row of a type that contains at most a timestamp (std_msgs/Empty). Each message
// is an event.
const noMembers = "{}"

// generic decodes any type with its schema. Each leaf is a stream. A type without leaves is one
// stream of events.
type generic struct {
	onlyType
	tree   *tree
	fields []int // leaf of each field
	genericLayout
	camera bool // CameraInfo, whose values should not change
	first  []byte
	scans  int64
	change int64
	at     int64 // number of the first message with a change
	sinks  sync.Pool
}

// genericLayout holds the number of elements of each leaf inside sequences, or unseen or varying.
type genericLayout struct {
	Lengths []int `json:"lengths"`
}

const (
	unseen  = -1
	varying = -2
)

func newGeneric(s *Schema) (_ *generic, err error) {
	defer guard.Recover("schema", &err)
	t := compile(s.root)
	if p := wideStringPath(t.nodes); p != "" {
		return nil, robocache.Unsupported(
			"schema",
			robocache.Where{"field": p},
			"wide strings (wstring) are not read",
		)
	}
	g := &generic{
		onlyType: onlyType(s.Name),
		tree:     t,
		camera:   shortKey(s.Name) == "sensor_msgs/CameraInfo",
	}
	g.Lengths = slices.Repeat([]int{unseen}, len(t.leaves))
	for k := range t.leaves {
		if k < 2 && (t.header || t.timestamp) {
			continue // the timestamp is the row's time
		}
		g.fields = append(g.fields, k)
	}
	return g, nil
}

func (g *generic) learnedState() any {
	if slices.ContainsFunc(g.tree.leaves, func(l leaf) bool { return l.seqs > 0 }) {
		return &g.genericLayout
	}
	return nil
}

func (g *generic) restoreState(bool) error {
	if len(g.Lengths) != len(g.tree.leaves) {
		return layoutError(
			"lengths",
			strconv.Itoa(len(g.tree.leaves)),
			strconv.Itoa(len(g.Lengths)),
		)
	}
	return nil
}

// acquireSink returns a sink for some fields. A pooled sink with the same fields is reused
// unchanged.
func (g *generic) acquireSink(fields ...int) *sink {
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

// releaseSink returns a sink to the pool without references to the caller's data.
func (g *generic) releaseSink(s *sink) {
	clear(s.out)
	s.texts, s.counts, s.missingPath = nil, nil, ""
	g.sinks.Put(s)
}

func (g *generic) scanMessage(msg []byte, row rowFunc) error {
	if row != nil {
		defer func() { g.scans++ }()
	}
	s := g.acquireSink()
	defer g.releaseSink(s)
	s.counts = make([]int, len(s.slot))
	s.last = len(s.slot)
	if err := s.decode(g.tree, msg); err != nil {
		return err
	}
	for k, n := range s.counts {
		if g.tree.leaves[k].seqs == 0 {
			continue
		}
		switch g.Lengths[k] {
		case unseen:
			g.Lengths[k] = n
		case n:
		default:
			g.Lengths[k] = varying
		}
	}
	if g.camera && row != nil {
		g.checkCalibration(msg)
	}
	return nil
}

// checkCalibration compares the bytes after the header with those of the first message.
func (g *generic) checkCalibration(msg []byte) {
	c := newCursor(msg)
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

func (g *generic) scanFindings() []robocache.Finding {
	return countedFinding(g.change, robocache.Finding{
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
	c := newCursor(msg)
	timestamp := c.timestamp()
	return timestamp, !c.short, c.finish("stamp")
}

func (g *generic) streamLayout(key string) ([]Field, []string) {
	if len(g.fields) == 0 {
		event := robocache.Feature{
			Kind:  robocache.KindEvent,
			DType: robocache.JSON,
			Shape: []int{1},
		}
		return []Field{{Feature: event}}, []string{key}
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
		switch n := g.Lengths[k]; {
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

func (g *generic) decodeRow(msg []byte, _ int, fields []int, to rows) error {
	if len(g.fields) == 0 {
		return misuseError("the type has no fields: its messages are events")
	}
	s := g.acquireSink(fields...)
	defer g.releaseSink(s)
	for j, f := range fields {
		if s.slot[g.fields[f]] != int32(j) {
			return misuseError("a field is asked for twice")
		}
		w := to.rowWidth(j)
		s.out[j] = to.dst[j][to.k*w : to.k*w : (to.k+1)*w]
	}
	if err := s.decode(g.tree, msg); err != nil {
		return err
	}
	for j, out := range s.out {
		w := to.rowWidth(j)
		ok := len(out) == w
		if !ok {
			clear(to.rowOf(j, w))
		}
		to.setValid(j, ok)
	}
	return nil
}

// trailing is the number of padding bytes that may follow a message.
const trailing = 3

// fitsMessages reports whether the messages are decoded to their ends.
func (g *generic) fitsMessages(msgs [][]byte) bool {
	for _, m := range msgs {
		if further, path := g.furtherBytes(m); further > 0 || path != "" {
			return false
		}
	}
	return true
}

// furtherBytes returns the number of bytes behind a message, or 0 if they may be padding. path is
// the member inside which the message ends, if it ends early.
func (g *generic) furtherBytes(msg []byte) (further int, path string) {
	s := g.acquireSink()
	defer g.releaseSink(s)
	c := newCursor(msg)
	s.last = len(s.slot)
	s.walk(g.tree.nodes, &c, true)
	most := trailing
	if len(g.tree.nodes) == 0 {
		most++ // a structure without members has one byte on the wire
	}
	switch n := c.remaining(); {
	case c.short:
		return 0, cmp.Or(s.missingPath, "its header")
	case n > most:
		return n, ""
	}
	return 0, ""
}

func (g *generic) appendRagged(msg []byte, field, _ int, dst []byte) ([]byte, int, error) {
	s := g.acquireSink(field)
	defer g.releaseSink(s)
	s.out[0] = dst
	if err := s.decode(g.tree, msg); err != nil {
		return dst, 0, err
	}
	return s.out[0], (len(s.out[0]) - len(dst)) / g.tree.leaves[g.fields[field]].dtype.Size(), nil
}

func (g *generic) decodeText(msg []byte, field, _ int) (string, error) {
	if len(g.fields) == 0 {
		return noMembers, nil
	}
	s := g.acquireSink(field)
	defer g.releaseSink(s)
	s.texts = [][]string{nil}
	if err := s.decode(g.tree, msg); err != nil {
		return "", err
	}
	return leafText(&g.tree.leaves[g.fields[field]], s.texts[0])
}

func lengthError(field string, want, got int) error {
	return layoutError(field, strconv.Itoa(want)+" elements", strconv.Itoa(got))
}
