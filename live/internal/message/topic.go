package message

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"sync"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/ros2"
	"github.com/goatnote-inc/robocache/mapping"
)

// maxRows limits the rows of a message. Transforms are the only messages with several.
const maxRows = 4096

// topicDecoder decodes the messages of one topic.
type topicDecoder struct {
	source *robocache.MessageSource
	topic  *ros2.Topic
	fields []ros2.Field
	mu     sync.Mutex // guards all below
	clocks []clockRows
	found  []foundRow // rows of the current message
	excess bool       // the current message has more than maxRows rows
	// collect is collectRow as a value: making it for each message would allocate.
	collect func(clock, entry int, timestamp int64, stamped bool)
}

// foundRow is a row of a message by one clock.
type foundRow struct {
	clock, entry int
	timestamp    int64
	stamped      bool
}

// clockRows are the streams on one clock of a topic, and a row of each numeric field that they
// need.
type clockRows struct {
	streams []*stream
	fields  []int
	data    [][]byte
	valid   [][]uint8
	held    [][]byte // last values of a latched topic; nil before the first one
}

// stream is one stream of a topic.
type stream struct {
	topic    *topicDecoder
	index    int
	key      string
	feature  robocache.Feature
	field    int   // the only field of a stream that is not numeric
	parts    []int // indexes in clockRows.fields, of a numeric stream
	mapped   *mapping.Stream
	stampAt  int // index in clockRows.fields of the timestamps, or -1
	finite   bool
	joined   [][]byte // rows of the parts
	buffer   []byte
	elements []float64
}

// addStream adds the stream of a source to the topic.
func (t *topicDecoder) addStream(
	index int,
	key string,
	source *robocache.MessageSource,
) (_ *stream, err error) {
	if !isSameTopic(t.source, source) {
		return nil, robocache.Malformed("messages", nil,
			"the streams of this topic are from different recordings")
	}
	s := &stream{topic: t, index: index, key: key, stampAt: -1, finite: source.FiniteOnly}
	from := []string{source.Field}
	stamp := ""
	if m := source.Mapping; m != nil {
		features := make([]robocache.Feature, len(t.fields))
		for i := range t.fields {
			features[i] = t.fields[i].Feature
			features[i].Key = t.fields[i].Suffix
		}
		if s.mapped, err = mapping.NewStream(m, features); err != nil {
			return nil, err
		}
		from, stamp = m.From, s.mapped.Timestamps()
	}
	if s.field, err = t.fieldNamed(from[0]); err != nil {
		return nil, err
	}
	clock := &t.clocks[t.fields[s.field].Clock]
	for _, suffix := range from {
		part, err := t.addField(clock, suffix)
		if err != nil {
			return nil, err
		}
		s.parts = append(s.parts, part)
	}
	if s.feature = t.fields[s.field].Feature; s.mapped != nil {
		s.feature = *s.mapped.Feature()
	}
	s.feature.Key, s.feature.Masked = key, s.feature.Masked || s.finite
	if s.feature.Ragged() && s.feature.Elements()*s.feature.DType.Size() == 0 {
		return nil, robocache.Malformed("messages", nil, "entries without elements")
	}
	s.buffer = make([]byte, s.feature.RowBytes())
	s.joined = make([][]byte, len(s.parts))
	if stamp != "" {
		if s.stampAt, err = t.addField(clock, stamp); err != nil {
			return nil, err
		}
	}
	clock.streams = append(clock.streams, s)
	return s, nil
}

// addField adds a numeric field to the rows of its clock and returns its index there. Fields
// without numbers have the index -1.
func (t *topicDecoder) addField(c *clockRows, suffix string) (int, error) {
	field, err := t.fieldNamed(suffix)
	if err != nil {
		return 0, err
	}
	i, size := slices.Index(c.fields, field), t.fields[field].Feature.RowBytes()
	if i < 0 && size > 0 {
		i = len(c.fields)
		c.fields = append(c.fields, field)
		c.data = append(c.data, make([]byte, size))
		c.valid = append(c.valid, make([]uint8, 1))
		c.held = append(c.held, nil)
	}
	return i, nil
}

// collectRow appends a row of the current message if a stream needs it. The limit includes other
// rows, because finding a row in a message takes time in proportion to its number.
func (t *topicDecoder) collectRow(clock, entry int, timestamp int64, stamped bool) {
	if entry >= maxRows {
		t.excess = true
	} else if len(t.clocks[clock].streams) > 0 {
		t.found = append(t.found, foundRow{clock, entry, timestamp, stamped})
	}
}

// decode emits the rows of a message. Caller must hold t.mu.
func (t *topicDecoder) decode(payload []byte, arrival int64, emit func(Row)) error {
	if err := t.topic.CheckSize(payload); err != nil {
		return err
	}
	t.found, t.excess = t.found[:0], false
	if err := t.topic.Scan(payload, t.collect); err != nil {
		return err
	}
	if t.excess {
		return robocache.ResourceLimit("messages", nil, "rows of a message").
			Expected("at most "+strconv.Itoa(maxRows), "more")
	}
	var first error
	for _, r := range t.found {
		first = cmp.Or(first, t.decodeRow(payload, r, arrival, emit))
	}
	return first
}

// decodeRow emits a row of each stream on one clock.
func (t *topicDecoder) decodeRow(
	payload []byte,
	r foundRow,
	arrival int64,
	emit func(Row),
) (first error) {
	at := arrival
	if t.source.Clock == "header" {
		if at = r.timestamp; !r.stamped {
			return robocache.Malformed("messages", nil, "a message without a timestamp")
		}
	}
	c := &t.clocks[r.clock]
	if len(c.fields) > 0 {
		if err := t.topic.Row(payload, r.entry, c.fields, c.data, c.valid, 0); err != nil {
			return err
		}
	}
	if t.source.Latched {
		c.holdValues()
	}
	for _, s := range c.streams {
		row := Row{Stream: s.index, Key: s.key, Time: at, Valid: true}
		err := s.decodeValue(payload, r.entry, c, &row)
		if err == nil && s.mapped != nil {
			row.Time, err = s.timeOf(at, c)
		}
		if err != nil {
			first = cmp.Or(first, robocache.At(err, robocache.Where{"stream": s.key}))
			continue
		}
		emit(row)
	}
	return first
}

// holdValues replaces absent values by the last ones.
func (c *clockRows) holdValues() {
	for i, data := range c.data {
		if c.valid[i][0] != 0 {
			c.held[i] = append(c.held[i][:0], data...)
		} else if c.held[i] != nil {
			copy(data, c.held[i])
			c.valid[i][0] = 1
		}
	}
}

// timeOf returns the time of a row of a mapped stream.
func (s *stream) timeOf(at int64, c *clockRows) (int64, error) {
	var stamp []byte
	if s.stampAt >= 0 {
		if c.valid[s.stampAt][0] == 0 {
			return 0, robocache.Malformed("messages", nil, "a message without a timestamp")
		}
		stamp = c.data[s.stampAt]
	}
	return s.mapped.Time(at, stamp)
}

// decodeValue sets the value of a row.
func (s *stream) decodeValue(payload []byte, entry int, c *clockRows, row *Row) (err error) {
	topic := s.topic.topic
	switch s.feature.Kind {
	case robocache.KindImage:
		row.Frame, err = topic.Image(payload, s.field, entry)
	case robocache.KindVideo:
		row.Packet, row.Codec, err = topic.Packet(payload)
	case robocache.KindText, robocache.KindEvent:
		row.Text, err = topic.Text(payload, s.field, entry)
	default:
		if s.feature.Ragged() {
			return s.decodeRagged(payload, entry, row)
		}
		return s.decodeNumbers(payload, c, row)
	}
	return err
}

func (s *stream) decodeRagged(payload []byte, entry int, row *Row) (err error) {
	s.buffer, _, err = s.topic.topic.Ragged(payload, s.field, entry, s.buffer[:0])
	if err != nil {
		return err
	}
	size := s.feature.Elements() * s.feature.DType.Size()
	if len(s.buffer)%size != 0 {
		return robocache.Malformed("messages", nil, "").
			Expected("entries of "+strconv.Itoa(size)+" bytes",
				strconv.Itoa(len(s.buffer))+" bytes")
	}
	row.Data, row.Count = s.buffer, len(s.buffer)/size
	return nil
}

func (s *stream) decodeNumbers(payload []byte, c *clockRows, row *Row) error {
	for i, part := range s.parts {
		if part < 0 { // an array without elements
			continue
		}
		field := c.fields[part]
		s.joined[i] = c.data[part]
		if c.valid[part][0] != 0 {
			continue
		}
		if row.Valid = false; !s.topic.fields[field].Feature.Masked {
			return s.topic.topic.ExplainMissing(payload, field)
		}
	}
	row.Data = s.joined[0]
	if s.mapped != nil {
		row.Data = s.buffer
		if err := s.mapped.Join(row.Data, s.joined); err != nil {
			return err
		}
	}
	if s.finite && !s.isFinite(row.Data) {
		row.Data, row.Valid = s.buffer, false
		clear(row.Data)
	}
	return nil
}

// isFinite reports whether a row has neither NaN nor infinity.
func (s *stream) isFinite(row []byte) bool {
	s.elements = robocache.Float64s(s.elements[:0], s.feature.DType, row)
	return !slices.ContainsFunc(s.elements, func(v float64) bool { return math.IsNaN(v - v) })
}
