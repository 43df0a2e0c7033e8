package ros2

import (
	"bytes"
	"strconv"
	"strings"
	"sync"

	"github.com/goatnote-inc/robocache"
)

// noMembers is the row of a type that holds nothing beside its timestamp (std_msgs/Empty): the message is the event.
const noMembers = "{}"

// generic decodes any type by its schema: a stream a leaf; of a type without leaves one stream of events.
type generic struct {
	tree   *tree
	name   string
	fields []int // leaf of each field
	// lens is what scanning saw of each leaf inside sequences: its number of elements, unseen, or varying.
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

func newGeneric(s *Schema) (*generic, error) {
	t, err := compile(s.root)
	if err != nil {
		return nil, err
	}
	if p := wide(t.nodes); p != "" {
		return nil, &robocache.Error{Class: robocache.ErrUnsupported, Op: "schema", Where: robocache.Where{"field": p}, Msg: "wide strings (wstring) are not read"}
	}
	g := &generic{tree: t, name: s.Name, lens: make([]int, len(t.leaves)), camera: shortKey(s.Name) == "sensor_msgs/CameraInfo"}
	for k := range t.leaves {
		g.lens[k] = unseen
		if k < 2 && (t.header || t.timestamp) {
			continue // the timestamp is the row's time
		}
		g.fields = append(g.fields, k)
	}
	return g, nil
}

func (g *generic) sink() *sink {
	if s, ok := g.sinks.Get().(*sink); ok {
		return s
	}
	s := &sink{slot: make([]int32, len(g.tree.leaves))}
	for k := range s.slot {
		s.slot[k] = -1
	}
	return s
}

func (g *generic) release(s *sink) {
	for k := range s.slot {
		s.slot[k] = -1
	}
	*s = sink{slot: s.slot}
	g.sinks.Put(s)
}

func (g *generic) scan(msg []byte, row func(clock, entry int, timestamp int64, stamped bool)) error {
	timestamp, ok, err := g.timestampOf(msg)
	if row != nil {
		row(0, 0, timestamp, ok)
		defer func() { g.scans++ }()
	}
	if err != nil {
		return err
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
	c, _ := open(msg)
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
	if g.change == 0 {
		return nil
	}
	return []robocache.Finding{{Severity: robocache.SeverityWarning, Code: "camera-info-changed", Where: robocache.Where{"index": g.at}, Count: g.change,
		Message: "the camera's calibration is not that of the first message", Hint: "split the recording where the camera was changed"}}
}

func (g *generic) timestampOf(msg []byte) (int64, bool, error) {
	if !g.tree.header && !g.tree.timestamp {
		return 0, false, nil
	}
	c, err := open(msg)
	if err != nil {
		return 0, false, err
	}
	timestamp := c.timestamp()
	return timestamp, !c.short, c.end("stamp")
}

func (g *generic) layout(key string) ([]Field, []string) {
	if len(g.fields) == 0 {
		return []Field{{Feature: robocache.Feature{Kind: robocache.KindEvent, DType: robocache.JSON, Shape: []int{1}}}}, []string{key}
	}
	var out []Field
	for _, k := range g.fields {
		l := &g.tree.leaves[k]
		f := Field{Suffix: "." + l.path, Feature: robocache.Feature{Kind: robocache.KindNumeric, DType: l.dtype, Shape: []int{1}}}
		if len(g.tree.leaves) == 1 && l.path == "data" && strings.HasPrefix(g.name, "std_msgs/") {
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

func (g *generic) numeric(msg []byte, field, _ int, dst []byte) (bool, error) {
	valid := []uint8{0}
	_, err := g.columns([][]byte{msg}, nil, []int{field}, [][]byte{dst}, [][]uint8{valid})
	return valid[0] != 0, err
}

func (g *generic) columns(msgs [][]byte, _ []int32, fields []int, dst [][]byte, valid [][]uint8) (int, error) {
	if len(msgs) == 0 {
		return -1, nil
	}
	s := g.sink()
	defer g.release(s)
	s.out = make([][]byte, len(fields))
	for j, f := range fields {
		leaf := g.fields[f]
		if s.slot[leaf] >= 0 {
			return 0, misuse("a field is asked for twice")
		}
		s.slot[leaf] = int32(j)
		s.last = max(s.last, leaf)
	}
	for k, msg := range msgs {
		for j := range fields {
			row := len(dst[j]) / len(msgs)
			s.out[j] = dst[j][k*row : k*row : (k+1)*row]
		}
		s.fail = ""
		if err := s.run(g.tree, msg); err != nil {
			return k, err
		}
		for j := range fields {
			row := len(dst[j]) / len(msgs)
			ok := len(s.out[j]) == row
			if !ok {
				clear(dst[j][k*row : (k+1)*row])
			}
			mark(valid, j, k, ok)
		}
	}
	return -1, nil
}

func mark(valid [][]uint8, j, k int, ok bool) {
	if valid == nil || valid[j] == nil {
		return
	}
	valid[j][k] = 0
	if ok {
		valid[j][k] = 1
	}
}

func (g *generic) ragged(msg []byte, field, _ int, dst []byte) ([]byte, int, error) {
	s := g.sink()
	defer g.release(s)
	leaf := g.fields[field]
	s.slot[leaf], s.last = 0, leaf
	s.out = [][]byte{dst}
	if err := s.run(g.tree, msg); err != nil {
		return dst, 0, err
	}
	return s.out[0], (len(s.out[0]) - len(dst)) / g.tree.leaves[leaf].dtype.Size(), nil
}

func (g *generic) text(msg []byte, field, _ int) (string, error) {
	if len(g.fields) == 0 {
		return noMembers, nil
	}
	s := g.sink()
	defer g.release(s)
	leaf := g.fields[field]
	s.slot[leaf], s.last = 0, leaf
	s.texts = [][]string{nil}
	if err := s.run(g.tree, msg); err != nil {
		return "", err
	}
	return textOf(&g.tree.leaves[leaf], s.texts[0])
}

func (g *generic) pic([]byte, int, int) (robocache.FrameRef, error) {
	return robocache.FrameRef{}, noSuch(g.name, "images")
}

func noSuch(name, what string) error {
	return &robocache.Error{Class: robocache.ErrMisuse, Op: "ros2", Msg: name + " has no " + what}
}

func lengthError(field string, want, got int) error {
	return &robocache.Error{Class: robocache.ErrMalformed, Op: "cdr", Where: robocache.Where{"field": field}, Want: strconv.Itoa(want) + " elements", Got: strconv.Itoa(got)}
}
