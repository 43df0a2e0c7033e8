package ros2

import (
	"bytes"
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"github.com/goatnote-inc/robocache"
)

// joints decodes sensor_msgs/JointState. Columns are identified by joint name; the first message
// determines their order. Several nodes may share a topic with different joints, such as an arm and
// its gripper. Messages without a common joint form separate groups, each with its own clock.
type joints struct {
	onlyType
	jointLayout
	restored  bool
	reordered int64 // messages with other joints or another order
	unknown   int64 // joints that the first message does not have
}

type jointLayout struct {
	Groups []*jointGroup `json:"groups"`
	Fields []jointField  `json:"fields"`
}

type jointGroup struct {
	// Encoded sequence of names in the first message, beginning with its count. It is usually equal
	// in all messages.
	Block []byte `json:"names"`
	// number of columns; without names, the number of values in the first message
	Width   int `json:"width"`
	names   []string
	repeats bool // a name occurs twice: every message is matched by name
	columns map[string]int
	has     [3]bool  // position, velocity, effort
	partial [3]int64 // messages without a value for some joint
}

type jointField struct {
	Group int `json:"group"`
	Part  int `json:"part"` // index in jointParts
}

var jointParts = [3]string{"position", "velocity", "effort"}

const maxJointGroups = 64

// jointMessage is a parsed JointState.
type jointMessage struct {
	timestamp int64
	block     []byte // encoded names with their count
	names     int
	data      [3][]byte
	group     int
	same      bool // whether the names are those of the group, in its order
}

func (j *joints) parseJoints(msg []byte, m *jointMessage) error {
	c := newCursor(msg)
	m.timestamp, _ = c.header()
	start := (c.off + 3) &^ 3
	big := c.big
	if big { // the names are swapped before they are compared
		for range c.count(4) {
			c.str()
		}
		c.off, c.big = min(start, len(c.b)), false
	}
	m.group, m.same = -1, false
	for k, g := range j.Groups {
		if !c.short && !g.repeats && len(c.b)-start >= len(g.Block) &&
			bytes.Equal(c.b[start:start+len(g.Block)], g.Block) {
			m.group, m.same, m.names, m.block = k, true, len(g.names), g.Block
			c.off = start + len(g.Block)
			break
		}
	}
	if !m.same {
		m.names = c.count(4)
		for range m.names {
			c.str()
		}
		if c.short {
			return c.finish("name")
		}
		m.block = c.b[start:c.off]
	}
	c.big = big
	for k := range m.data {
		m.data[k] = c.elements(c.count(8), 8)
		if c.short {
			return c.finish(jointParts[k])
		}
	}
	return nil
}

// eachName calls fn for every name in a message.
func (m *jointMessage) eachName(fn func(k int, name []byte)) {
	c := cursor{b: m.block, wide: 8}
	c.u32()
	for k := range m.names {
		fn(k, c.str())
	}
}

// findGroup returns the group of a message, or -1 if the message has no joint of any group.
func (j *joints) findGroup(m *jointMessage) int {
	if m.group >= 0 {
		return m.group
	}
	return slices.IndexFunc(j.Groups, func(g *jointGroup) bool {
		ours := m.names == 0 && len(g.names) == 0
		m.eachName(func(_ int, name []byte) {
			_, ok := g.columns[string(name)]
			ours = ours || ok
		})
		return ours
	})
}

func (j *joints) hasManyRows() bool { return true }

func (j *joints) scanMessage(msg []byte, row rowFunc) error {
	var m jointMessage
	err := j.parseJoints(msg, &m)
	group := 0
	if err == nil {
		switch group = j.findGroup(&m); {
		case group < 0 && j.restored:
			return j.unknownJoints(&m)
		case group < 0:
			if len(j.Groups) == maxJointGroups {
				group, err = 0, robocache.ResourceLimit(
					"cdr",
					nil,
					"messages with more than %d different sets of joints",
					maxJointGroups,
				)
			} else {
				group = j.addGroup(&m)
			}
		}
	}
	if row != nil {
		row(group, 0, m.timestamp, err == nil || m.timestamp != 0)
	}
	if err != nil || j.restored {
		return err
	}
	g := j.Groups[group]
	for k := range g.has {
		if !g.has[k] && len(m.data[k]) > 0 {
			g.has[k] = true
			j.Fields = append(j.Fields, jointField{group, k})
		}
	}
	var columns [3]bool
	if m.same {
		for k := range columns {
			columns[k] = len(m.data[k]) == 8*g.Width
		}
	} else {
		columns = j.completeParts(g, &m)
		if row != nil {
			j.reordered++
		}
	}
	for k, ok := range columns {
		if !ok && row != nil {
			g.partial[k]++
		}
	}
	return nil
}

// completeParts reports for each part whether the message has a value for every column. It also
// counts joints that the group does not have.
func (j *joints) completeParts(g *jointGroup, m *jointMessage) (out [3]bool) {
	seen := make([]bool, len(g.names))
	var have [3]int
	m.eachName(func(k int, name []byte) {
		col, ok := g.columns[string(name)]
		if !ok {
			j.unknown++
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

func (j *joints) addGroup(m *jointMessage) int {
	g := &jointGroup{Block: bytes.Clone(m.block)}
	g.setNames(m)
	if g.Width = len(g.names); m.names == 0 {
		g.Width = len(m.data[0]) / 8
	}
	j.Groups = append(j.Groups, g)
	return len(j.Groups) - 1
}

// setNames sets the columns of a group to the names in a message.
func (g *jointGroup) setNames(m *jointMessage) {
	g.columns = map[string]int{}
	m.eachName(func(_ int, name []byte) {
		if _, twice := g.columns[string(name)]; twice {
			g.repeats = true
			return
		}
		g.columns[string(name)] = len(g.names)
		g.names = append(g.names, string(name))
	})
}

func (j *joints) learnedState() any { return &j.jointLayout }

func (j *joints) restoreState(fixed bool) error {
	j.restored = fixed
	for _, g := range j.Groups {
		if g == nil {
			return layoutError("groups", "groups of joints", "null")
		}
		c := cursor{b: g.Block, wide: 8}
		m := jointMessage{block: g.Block, names: c.count(4)}
		for range m.names {
			c.str()
		}
		if c.short {
			return c.finish("groups")
		}
		g.setNames(&m)
		if g.Width < 0 || m.names > 0 && g.Width != len(g.names) {
			return layoutError("groups", "a column for each name", strconv.Itoa(g.Width))
		}
	}
	for _, f := range j.Fields {
		if f.Group < 0 || f.Group >= len(j.Groups) || f.Part < 0 || f.Part >= len(jointParts) {
			return layoutError("fields", "parts of a group", "another part")
		}
		j.Groups[f.Group].has[f.Part] = true
	}
	return nil
}

// unknownJoints returns the error of a message with no joint of the recording.
func (j *joints) unknownJoints(m *jointMessage) error {
	var want []string
	for _, g := range j.Groups {
		want = append(want, string(encodeNames(g.names)))
	}
	return layoutError("name", "joints of "+strings.Join(want, " or "), m.describeNames())
}

// describeNames returns the names in a message, and how many values it has of each part.
func (m *jointMessage) describeNames() string {
	var names []string
	m.eachName(func(_ int, name []byte) {
		names = append(names, strings.ToValidUTF8(string(name), "?"))
	})
	out := clipText(strings.ToValidUTF8(strings.Join(names, ", "), "?"))
	for k, part := range jointParts {
		out += "; " + strconv.Itoa(len(m.data[k])/8) + " of " + part
	}
	return out
}

func (j *joints) streamLayout(key string) ([]Field, []string) {
	clocks := []string{key}
	prefix := []string{""}
	for k := 1; k < len(j.Groups); k++ {
		prefix = append(prefix, "."+strconv.Itoa(k+1))
		clocks = append(clocks, key+prefix[k])
	}
	var out []Field
	for _, f := range j.Fields {
		g := j.Groups[f.Group]
		out = append(
			out,
			Field{
				Suffix:  prefix[f.Group] + "." + jointParts[f.Part],
				Clock:   f.Group,
				Partial: true,
				Feature: robocache.Feature{
					Kind:  robocache.KindNumeric,
					DType: robocache.Float64,
					Shape: []int{
						g.Width,
					},
					Names:  encodeNames(g.names),
					Masked: g.partial[f.Part] > 0,
				},
			},
		)
	}
	return out, clocks
}

// writeColumns writes one part of a message to the columns of its group. It returns false if a
// value is missing.
func (j *joints) writeColumns(m *jointMessage, f jointField, dst []byte) bool {
	g := j.Groups[f.Group]
	src := m.data[f.Part]
	if m.same && m.group == f.Group || len(g.names) == 0 && m.names == 0 {
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
	done := few[:] // a duplicate name counts once
	if left > len(few) {
		done = make([]bool, left)
	}
	m.eachName(func(k int, name []byte) {
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

func (j *joints) decodeRow(msg []byte, _ int, fields []int, to rows) error {
	var m jointMessage
	if err := j.parseJoints(msg, &m); err != nil {
		return err
	}
	for i, k := range fields {
		f := j.Fields[k]
		to.setValid(i, j.writeColumns(&m, f, to.rowOf(i, 8*j.Groups[f.Group].Width)))
	}
	return nil
}

func (j *joints) scanFindings() []robocache.Finding {
	out := append(
		countedFinding(
			j.reordered,
			robocache.Finding{
				Severity: robocache.SeverityInfo,
				Code:     "joint-names-changed",
				Message: "messages name other joints than the first one, or in another " +
					"order: columns go by name",
			},
		),
		countedFinding(
			j.unknown,
			robocache.Finding{
				Severity: robocache.SeverityWarning,
				Code:     "joint-unknown",
				Message: "messages hold joints that the first one does not have: they are " +
					"left out",
			},
		)...)
	for _, g := range j.Groups {
		for p, n := range g.partial {
			if g.has[p] {
				out = append(
					out,
					countedFinding(
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

func encodeNames(names []string) json.RawMessage {
	if len(names) == 0 {
		return nil
	}
	b, _ := json.Marshal(names) // texts can always be marshaled
	return b
}
