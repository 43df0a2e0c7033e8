package ros2

import (
	"bytes"
	"encoding/binary"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/goatnote-inc/robocache"
)

// cloud decodes sensor_msgs/PointCloud2 by the fields in the message: any offset, padding, datatype
// and byte order, and organized clouds. x, y, z and all fields of their type are one stream of
// points. Each other field is a separate stream. Points with non-finite coordinates are omitted
// from all streams.
type cloud struct {
	onlyType
	cloudLayout
	restored bool
	plan     *cloudPlan // of Fields
	dropped  int64
}

type cloudLayout struct {
	Fields []byte `json:"fields,omitempty"` // as encoded in the first cloud that has fields
}

// pointField is one field of a point as the message declares it.
type pointField struct {
	name   string
	offset int
	dtype  robocache.DType
	count  int
}

// cloudPlan holds the positions of the columns of a cloud.
type cloudPlan struct {
	// encoded fields of the message, which are usually equal for all clouds of a topic
	block  []byte
	fields []pointField
	xyz    [3]int // offsets of the coordinates; -1 if the cloud has none
	coord  robocache.DType
	groups [][]pointField // streams; the points are first
}

// cloudMessage is a parsed PointCloud2.
type cloudMessage struct {
	height, width int
	block         []byte
	fields        int
	big           bool // byte order of the points
	point, row    int
	data          []byte
}

const (
	maxPointFields   = 256
	maxPointElements = 8192
)

func parseCloud(msg []byte, m *cloudMessage) error {
	c := newCursor(msg)
	c.header()
	m.height, m.width = int(c.u32()), int(c.u32())
	if err := m.parseFields(&c); err != nil {
		return err
	}
	m.big = c.u8() != 0
	m.point, m.row = int(c.u32()), int(c.u32())
	m.data = c.take(1, c.count(1))
	return c.finish("data")
}

// parseFields finds the encoded fields of a message.
func (m *cloudMessage) parseFields(c *cursor) error {
	start := (c.off + 3) &^ 3
	m.fields = c.count(13)
	for range m.fields {
		c.str()
		c.u32()
		c.u8()
		c.u32()
	}
	if !c.short {
		m.block = c.b[start:c.off]
	}
	return c.finish("fields")
}

func (d *cloud) learnedState() any { return &d.cloudLayout }

func (d *cloud) restoreState(fixed bool) (err error) {
	d.restored = fixed
	if d.Fields == nil {
		return nil
	}
	var m cloudMessage
	if err = m.parseFields(&cursor{b: d.Fields, wide: 8}); err == nil {
		d.plan, err = newCloudPlan(&m)
	}
	return err
}

// countPoints checks the sizes of a cloud against its bytes and fields, and returns the number of
// points.
func (m *cloudMessage) countPoints(p *cloudPlan) (int, error) {
	if m.height == 0 || m.width == 0 {
		return 0, nil
	}
	if m.height > len(m.data) || m.width > len(m.data) {
		return 0, layoutError(
			"data",
			strconv.Itoa(m.height)+" × "+strconv.Itoa(m.width)+" points",
			strconv.Itoa(len(m.data))+" bytes",
		)
	}
	n := int64(m.height) * int64(m.width)
	if m.point == 0 || n > int64(len(m.data))/int64(m.point) {
		return 0, layoutError(
			"data",
			strconv.FormatInt(n, 10)+" points of "+strconv.Itoa(m.point)+" bytes",
			strconv.Itoa(len(m.data))+" bytes",
		)
	}
	row := int64(m.width) * int64(m.point)
	if m.height > 1 && int64(m.row) < row ||
		int64(m.height-1)*int64(m.row)+row > int64(len(m.data)) {
		return 0, layoutError("row_step", "at least "+strconv.FormatInt(row, 10)+" and "+
			strconv.Itoa(m.height)+" rows inside the data", strconv.Itoa(m.row)+" of "+
			strconv.Itoa(len(m.data))+" bytes")
	}
	for k := range p.fields {
		f := &p.fields[k]
		if int64(f.offset)+int64(f.dtype.Size())*int64(f.count) > int64(m.point) {
			return 0, layoutError(
				"fields."+f.name,
				"a field inside a point of "+strconv.Itoa(m.point)+" bytes",
				"offset "+strconv.Itoa(f.offset),
			)
		}
	}
	return int(n), nil
}

// newCloudPlan parses the fields of a message.
func newCloudPlan(m *cloudMessage) (*cloudPlan, error) {
	if m.fields > maxPointFields {
		return nil, robocache.ResourceLimit("cdr", nil, "a cloud of %d fields", m.fields)
	}
	p := &cloudPlan{block: bytes.Clone(m.block), xyz: [3]int{-1, -1, -1}}
	c := cursor{b: m.block, wide: 8}
	c.u32()
	var of [3]robocache.DType
	var elements int64
	for range m.fields {
		f := pointField{name: string(c.str()), offset: int(c.u32())}
		number := c.u8()
		f.count = int(c.u32())
		if int(number) >= len(pointTypes) || number == 0 {
			return nil, robocache.Unsupported(
				"cdr",
				robocache.Where{"field": "fields." + f.name},
				"datatype %d of a point's field is none of 1 to 8",
				int(number),
			)
		}
		f.dtype = pointTypes[number]
		f.count = max(f.count, 1) // some writers leave it 0
		// An empty cloud has no points whose size would limit the fields.
		if elements += int64(f.count); elements > maxPointElements {
			return nil, layoutError(
				"fields."+f.name,
				"at most "+strconv.Itoa(maxPointElements)+" elements a point",
				strconv.FormatInt(elements, 10),
			)
		}
		if slices.ContainsFunc(p.fields, func(o pointField) bool { return o.name == f.name }) {
			if f.name == "" {
				continue // padding
			}
			return nil, layoutError(
				"fields",
				"names that differ",
				strconv.Quote(clipText(f.name))+" twice",
			)
		}
		p.fields = append(p.fields, f)
		if k := slices.Index(xyz, f.name); k >= 0 && f.count == 1 {
			p.xyz[k], of[k] = f.offset, f.dtype
		}
	}
	p.fields = slices.DeleteFunc(p.fields, func(f pointField) bool { return f.name == "" })
	if p.xyz[0] >= 0 && p.xyz[1] >= 0 && p.xyz[2] >= 0 && of[0] == of[1] && of[0] == of[2] {
		p.coord = of[0]
	} else {
		p.xyz = [3]int{-1, -1, -1}
	}
	p.groupFields()
	return p, nil
}

// groupFields assigns fields to streams: x, y, z and the fields of their type, then each other
// field. Without coordinates of one type, each field is a stream.
func (p *cloudPlan) groupFields() {
	var main []pointField
	if p.coord != robocache.InvalidDType {
		for _, n := range xyz {
			main = append(
				main,
				p.fields[slices.IndexFunc(p.fields, func(f pointField) bool {
					return f.name == n
				})],
			)
		}
		for _, f := range p.fields {
			if f.dtype == p.coord && !slices.Contains(xyz, f.name) {
				main = append(main, f)
			}
		}
		p.groups = append(p.groups, main)
	}
	for _, f := range p.fields {
		if p.coord == robocache.InvalidDType || f.dtype != p.coord {
			p.groups = append(p.groups, []pointField{f})
		}
	}
}

// describeFields returns the types and names of the fields, for messages.
func (p *cloudPlan) describeFields() string {
	names := make([]string, len(p.fields))
	for k, f := range p.fields {
		names[k] = f.dtype.String() + " " + f.name
		if f.count > 1 {
			names[k] += "[" + strconv.Itoa(f.count) + "]"
		}
	}
	return clipText(strings.ToValidUTF8(strings.Join(names, ", "), "?"))
}

func (d *cloud) scanMessage(msg []byte, row rowFunc) error {
	m, p, n, err := d.readCloud(msg)
	if err != nil {
		return err
	}
	if d.plan == nil && m.fields > 0 {
		d.plan, d.Fields = p, p.block
	}
	if row != nil {
		d.dropped += int64(n - m.countFinite(p, n))
	}
	return nil
}

// readCloud parses a message. n is the number of its points.
func (d *cloud) readCloud(msg []byte) (m cloudMessage, p *cloudPlan, n int, err error) {
	if err = parseCloud(msg, &m); err == nil {
		p, err = d.planFor(&m)
	}
	if err == nil {
		n, err = m.countPoints(p)
	}
	return m, p, n, err
}

// planFor returns the topic's plan. If the fields of the message have other offsets, it returns a
// new plan with the same streams.
func (d *cloud) planFor(m *cloudMessage) (*cloudPlan, error) {
	if d.plan != nil && bytes.Equal(d.plan.block, m.block) {
		return d.plan, nil
	}
	p, err := newCloudPlan(m)
	if err != nil || d.plan == nil && (!d.restored || m.fields == 0) {
		return p, err
	}
	if d.plan == nil {
		return nil, layoutError("fields", "none, as in the recording", p.describeFields())
	}
	if (m.height == 0 || m.width == 0) && m.fields == 0 {
		return d.plan, nil // an empty cloud without fields
	}
	same := len(p.groups) == len(d.plan.groups)
	for k := 0; same && k < len(p.groups); k++ {
		same = slices.EqualFunc(
			p.groups[k],
			d.plan.groups[k],
			func(a, b pointField) bool {
				return a.name == b.name && a.dtype == b.dtype && a.count == b.count
			},
		)
	}
	if !same {
		return nil, layoutError("fields", d.plan.describeFields(), p.describeFields())
	}
	return p, nil
}

// isFinite reports whether the coordinates of a point are finite.
func (p *cloudPlan) isFinite(pt []byte, big bool) bool {
	switch {
	case p.coord == robocache.Float32 && !big && p.xyz[1] == p.xyz[0]+4 && p.xyz[2] == p.xyz[0]+8:
		q := pt[p.xyz[0] : p.xyz[0]+12]
		const inf = 0x7f800000
		return binary.LittleEndian.Uint32(q)&inf != inf &&
			binary.LittleEndian.Uint32(q[4:])&inf != inf &&
			binary.LittleEndian.Uint32(q[8:])&inf != inf
	case p.coord == robocache.Float32:
		for _, o := range p.xyz {
			v := binary.LittleEndian.Uint32(pt[o:])
			if big {
				v = binary.BigEndian.Uint32(pt[o:])
			}
			if v&0x7f800000 == 0x7f800000 {
				return false
			}
		}
	case p.coord == robocache.Float64:
		for _, o := range p.xyz {
			v := binary.LittleEndian.Uint64(pt[o:])
			if big {
				v = binary.BigEndian.Uint64(pt[o:])
			}
			if v&math.Float64bits(math.Inf(1)) == math.Float64bits(math.Inf(1)) {
				return false
			}
		}
	}
	return true
}

// countFinite returns the number of points with finite coordinates.
func (m *cloudMessage) countFinite(p *cloudPlan, n int) int {
	if n == 0 || !p.coord.Float() {
		return n
	}
	kept := 0
	for y := range m.height {
		line := m.data[y*m.row:]
		for x := range m.width {
			if p.isFinite(line[x*m.point:], m.big) {
				kept++
			}
		}
	}
	return kept
}

func (d *cloud) streamLayout(key string) ([]Field, []string) {
	if d.plan == nil {
		points := robocache.Feature{
			Kind:  robocache.KindPointCloud,
			DType: robocache.Float32,
			Shape: []int{-1, 3},
			Names: encodeNames(xyz),
		}
		return []Field{{Feature: points}}, []string{key}
	}
	var out []Field
	for k, g := range d.plan.groups {
		f := Field{Feature: robocache.Feature{Kind: robocache.KindNumeric, DType: g[0].dtype}}
		var names []string
		for _, c := range g {
			if c.count == 1 {
				names = append(names, c.name)
				continue
			}
			for i := range c.count {
				names = append(names, c.name+"["+strconv.Itoa(i)+"]")
			}
		}
		f.Feature.Shape, f.Feature.Names = []int{-1, len(names)}, encodeNames(names)
		if k == 0 && d.plan.coord != robocache.InvalidDType {
			f.Feature.Kind = robocache.KindPointCloud
		} else {
			f.Suffix = "." + g[0].name
			// Values such as rings, labels and times of points must not be interpolated.
			f.Feature.Interpolation = "nearest"
			if len(names) == 1 {
				f.Feature.Shape = []int{-1}
			}
		}
		out = append(out, f)
	}
	return out, []string{key}
}

func (d *cloud) appendRagged(msg []byte, field, _ int, dst []byte) ([]byte, int, error) {
	m, p, n, err := d.readCloud(msg)
	if err != nil || n == 0 {
		return dst, 0, err
	}
	if field >= len(p.groups) {
		return dst, 0, d.unsupportedError("such field")
	}
	g := p.groups[field]
	size := g[0].dtype.Size()
	width, run := 0, true // run reports whether the columns are contiguous
	for _, f := range g {
		run = run && f.offset == g[0].offset+width
		width += size * f.count
	}
	at := len(dst)
	dst = slices.Grow(dst, n*width)
	out := dst[at : at+n*width]
	kept := 0
	test := p.coord.Float()
	// If message rows equal stream rows, the ranges between omitted points are copied at once.
	packed := run && !m.big && width == m.point
	for y := range m.height {
		line := m.data[y*m.row : y*m.row+m.width*m.point]
		if packed {
			for x := 0; x < m.width; {
				from := x
				for x < m.width && (!test || p.isFinite(line[x*m.point:], false)) {
					x++
				}
				kept += copy(out[kept*width:], line[from*m.point:x*m.point]) / width
				x++ // skip the omitted point
			}
			continue
		}
		for x := range m.width {
			pt := line[x*m.point : x*m.point+m.point]
			if test && !p.isFinite(pt, m.big) {
				continue
			}
			o := out[kept*width : (kept+1)*width]
			kept++
			if run && !m.big {
				copy(o, pt[g[0].offset:])
				continue
			}
			for k := range g {
				f := &g[k]
				b := size * f.count
				copy(o[:b], pt[f.offset:f.offset+b])
				if m.big {
					swapBytes(o[:b], o[:b], size)
				}
				o = o[b:]
			}
		}
	}
	return dst[:at+kept*width], kept, nil
}

func (d *cloud) scanFindings() []robocache.Finding {
	return countedFinding(
		d.dropped,
		robocache.Finding{
			Severity: robocache.SeverityInfo,
			Code:     "points-not-finite",
			Message:  "points without finite coordinates are left out",
		},
	)
}
