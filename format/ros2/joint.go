package ros2

import (
	"bytes"
	"encoding/json"
	"slices"
	"strconv"

	"github.com/goatnote-inc/robocache"
)

// joints decodes sensor_msgs/JointState. Columns are keyed by joint name: the first message settles
// their order. Several nodes may share a topic with joints of their own each (an arm and its
// gripper): messages without a common joint are groups, with a clock each.
type joints struct {
	onlyType
	groups  []*jointGroup
	fields  []jointField
	moved   int64 // messages whose joints come in another order, or are others
	strange int64 // joints that the first message does not have
}

type jointGroup struct {
	// the sequence of names as the first message has it, from its count on: most messages have the
	// same
	block   []byte
	names   []string
	columns map[string]int
	width   int      // columns; of messages without names as many as the first one has values
	has     [3]bool  // position, velocity, effort
	partial [3]int64 // messages that lack a joint's value
}

type jointField struct{ group, what int }

var jointParts = [3]string{"position", "velocity", "effort"}

const maxJointGroups = 64

// message is a JointState in pieces.
type jointMessage struct {
	timestamp int64
	block     []byte // names with their count
	names     int
	data      [3][]byte
	group     int
	same      bool // names are those of the group, in its order
}

func (j *joints) parse(msg []byte, m *jointMessage) error {
	c := open(msg)
	m.timestamp, _ = c.header()
	start := (c.off + 3) &^ 3
	big := c.big
	if big { // turned around before it is compared
		for range c.count(4) {
			c.str()
		}
		c.off, c.big = min(start, len(c.b)), false
	}
	m.group, m.same = -1, false
	for k, g := range j.groups {
		if !c.short && len(c.b)-start >= len(g.block) &&
			bytes.Equal(c.b[start:start+len(g.block)], g.block) {
			m.group, m.same, m.names, m.block = k, true, len(g.names), g.block
			c.off = start + len(g.block)
			break
		}
	}
	if !m.same {
		m.names = c.count(4)
		for range m.names {
			c.str()
		}
		if c.short {
			return c.end("name")
		}
		m.block = c.b[start:c.off]
	}
	c.big = big
	for k := range m.data {
		m.data[k] = c.elements(c.count(8), 8)
		if c.short {
			return c.end(jointParts[k])
		}
	}
	return nil
}

// each calls fn for every name of a message.
func (m *jointMessage) each(fn func(k int, name []byte)) {
	c := cursor{b: m.block, wide: 8}
	c.u32()
	for k := range m.names {
		fn(k, c.str())
	}
}

// find gives the group that a message belongs to; -1 where it has no joint of any.
func (j *joints) find(m *jointMessage) int {
	if m.group >= 0 {
		return m.group
	}
	return slices.IndexFunc(j.groups, func(g *jointGroup) bool {
		ours := m.names == 0 && len(g.names) == 0
		m.each(func(_ int, name []byte) {
			_, ok := g.columns[string(name)]
			ours = ours || ok
		})
		return ours
	})
}

func (j *joints) several() bool { return true }

func (j *joints) scan(msg []byte, row rowFunc) error {
	var m jointMessage
	err := j.parse(msg, &m)
	group := 0
	if err == nil {
		if group = j.find(&m); group < 0 {
			if len(j.groups) == maxJointGroups {
				group, err = 0, robocache.ResourceLimit(
					"cdr",
					nil,
					"messages with more than %d different sets of joints",
					maxJointGroups,
				)
			} else {
				group = j.add(&m)
			}
		}
	}
	if row != nil {
		row(group, 0, m.timestamp, err == nil || m.timestamp != 0)
	}
	if err != nil {
		return err
	}
	g := j.groups[group]
	for k := range g.has {
		if !g.has[k] && len(m.data[k]) > 0 {
			g.has[k] = true
			j.fields = append(j.fields, jointField{group, k})
		}
	}
	var columns [3]bool
	if m.same {
		for k := range columns {
			columns[k] = len(m.data[k]) == 8*g.width
		}
	} else {
		columns = j.whole(g, &m)
		if row != nil {
			j.moved++
		}
	}
	for k, ok := range columns {
		if !ok && row != nil {
			g.partial[k]++
		}
	}
	return nil
}

// whole says of which parts the message has a value for every column, and counts the joints that
// the group does not have.
func (j *joints) whole(g *jointGroup, m *jointMessage) (out [3]bool) {
	seen := make([]bool, len(g.names))
	var have [3]int
	m.each(func(k int, name []byte) {
		col, ok := g.columns[string(name)]
		if !ok {
			j.strange++
			return
		}
		if seen[col] {
			return
		}
		seen[col] = true
		for p := range have {
			if 8*k < len(m.data[p]) {
				have[p]++
			}
		}
	})
	for p := range out {
		out[p] = have[p] == len(g.names)
	}
	return out
}

func (j *joints) add(m *jointMessage) int {
	g := &jointGroup{block: append([]byte{}, m.block...), columns: map[string]int{}}
	m.each(func(_ int, name []byte) {
		if _, twice := g.columns[string(name)]; twice {
			g.block = nil // more names than columns: every message goes by name
			return
		}
		g.columns[string(name)] = len(g.names)
		g.names = append(g.names, string(name))
	})
	if g.block == nil {
		// matches no message: a count of names that none has
		g.block = []byte{0xff, 0xff, 0xff, 0xff, 0xff}
	}
	if g.width = len(g.names); m.names == 0 {
		g.width = len(m.data[0]) / 8
	}
	j.groups = append(j.groups, g)
	return len(j.groups) - 1
}

func (j *joints) layout(key string) ([]Field, []string) {
	clocks := []string{key}
	prefix := []string{""}
	for k := 1; k < len(j.groups); k++ {
		prefix = append(prefix, "."+strconv.Itoa(k+1))
		clocks = append(clocks, key+prefix[k])
	}
	var out []Field
	for _, f := range j.fields {
		g := j.groups[f.group]
		out = append(
			out,
			Field{
				Suffix:  prefix[f.group] + "." + jointParts[f.what],
				Clock:   f.group,
				Partial: true,
				Feature: robocache.Feature{
					Kind: robocache.KindNumeric, DType: robocache.Float64,
					Shape: []int{g.width}, Names: namesOf(g.names), Masked: g.partial[f.what] > 0,
				},
			},
		)
	}
	return out, clocks
}

// put writes one part of a message by columns.
func (j *joints) put(m *jointMessage, f jointField, dst []byte) bool {
	g := j.groups[f.group]
	src := m.data[f.what]
	if m.same && m.group == f.group || len(g.names) == 0 && m.names == 0 {
		if len(src) != len(dst) {
			clear(dst)
			return false
		}
		copy(dst, src)
		return true
	}
	left := len(g.names)
	clear(dst)
	var few [512]bool
	done := few[:] // a name that comes twice counts once
	if left > len(few) {
		done = make([]bool, left)
	}
	m.each(func(k int, name []byte) {
		col, ok := g.columns[string(name)]
		if !ok || 8*k >= len(src) || done[col] {
			return
		}
		done[col] = true
		copy(dst[8*col:8*col+8], src[8*k:8*k+8])
		left--
	})
	if left != 0 || len(g.names) == 0 {
		clear(dst)
		return false
	}
	return true
}

func (j *joints) row(msg []byte, _ int, fields []int, to rows) error {
	var m jointMessage
	if err := j.parse(msg, &m); err != nil {
		return err
	}
	for i, k := range fields {
		f := j.fields[k]
		to.mark(i, j.put(&m, f, to.at(i, 8*j.groups[f.group].width)))
	}
	return nil
}

func (j *joints) findings() []robocache.Finding {
	out := append(
		counted(
			j.moved,
			robocache.Finding{
				Severity: robocache.SeverityInfo,
				Code:     "joint-names-changed",
				Message:  "messages name other joints than the first one, or in another order: columns go by name",
			},
		),
		counted(
			j.strange,
			robocache.Finding{
				Severity: robocache.SeverityWarning,
				Code:     "joint-unknown",
				Message:  "messages hold joints that the first one does not have: they are left out",
			},
		)...)
	for _, g := range j.groups {
		for p, n := range g.partial {
			if g.has[p] {
				out = append(
					out,
					counted(
						n,
						robocache.Finding{
							Severity: robocache.SeverityWarning,
							Code:     "joint-missing",
							Where:    robocache.Where{"field": jointParts[p]},
							Message:  "messages lack the value of a joint: their rows are masked",
						},
					)...)
			}
		}
	}
	return out
}

func namesOf(names []string) json.RawMessage {
	if len(names) == 0 {
		return nil
	}
	b, _ := json.Marshal(names) // texts can be written
	return b
}
