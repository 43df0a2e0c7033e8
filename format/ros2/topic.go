package ros2

import (
	"errors"
	"strings"
	"sync"

	"github.com/goatnote-inc/robocache"
)

// Field is one stream of a topic.
type Field struct {
	Suffix  string // appended to the topic's key: "", ".position"
	Feature robocache.Feature
	Clock   int // index in Topic.Clocks
	// Partial reports whether a later message may have no value for its row, because Scan has not
	// seen every message. Callers that skip Scan mark such features as Masked.
	Partial bool
}

// Topic decodes the messages of one topic into streams.
//
// NewTopic determines the columns from the first messages. Calling Scan for every message completes
// them: it finds later transforms, arrays of varying length and missing joints. Fields then
// describes the whole recording. Scan must be called from one goroutine. After scanning, all other
// methods are safe for concurrent use.
type Topic struct {
	name       string
	key        string
	schema     *Schema
	head       *generic // decodes the header
	decoder    decoder
	foundEarly []robocache.Finding // findings of NewTopic
	misfit     bool                // the first messages do not fit the schema
	restored   *Layout             // set by RestoreTopic: fields and clocks do not change

	mu     sync.Mutex
	stale  bool // whether Scan may have changed fields and clocks
	fields []Field
	clocks []string
}

// rowFunc receives a row of a message.
type rowFunc func(clock, entry int, timestamp int64, stamped bool)

// decoder decodes one type. entry is the number of the row within the message, which is 0 for most
// types.
type decoder interface {
	// scanMessage updates the columns. With a nil row it is a first look and counts nothing for
	// findings.
	scanMessage(msg []byte, row rowFunc) error
	// hasManyRows reports whether a message may hold any number of rows on several clocks. scanMessage
	// passes them to row. Otherwise a message holds one row, which scanMessage does not pass to
	// row.
	hasManyRows() bool
	// streamLayout returns the streams and clocks that are known so far.
	streamLayout(key string) ([]Field, []string)
	// decodeRow writes the row of each field to its destination.
	decodeRow(msg []byte, entry int, fields []int, to rows) error
	// appendRagged appends the row of a ragged field to dst and returns the number of its entries.
	appendRagged(msg []byte, field, entry int, dst []byte) ([]byte, int, error)
	// decodeFrame returns the image of a row. Its bytes may alias msg.
	decodeFrame(msg []byte, field, entry int) (robocache.FrameRef, error)
	// decodeText returns a row of a text field.
	decodeText(msg []byte, field, entry int) (string, error)
	// scanFindings returns the problems that scanning found.
	scanFindings() []robocache.Finding
	// learnedState returns a pointer to what scanning determines, which is encoded as JSON. It is
	// nil if the schema determines everything.
	learnedState() any
	// restoreState completes the decoder after its learned state was set. It returns an error if
	// that state is not consistent. If fixed is true, a message that does not fit the state is an
	// error from now on, and scanMessage changes nothing.
	restoreState(fixed bool) error
}

// rows is the destination of a message's row of each field: row k of n in dst, and 1 or 0 in valid.
// valid and each of its vectors may be nil.
type rows struct {
	dst   [][]byte
	valid [][]uint8
	k, n  int
}

// rowOf returns the row of the j-th field, which has w bytes.
func (r *rows) rowOf(j, w int) []byte { return r.dst[j][r.k*w : (r.k+1)*w] }

// rowWidth returns the size of a row of the j-th field.
func (r *rows) rowWidth(j int) int { return len(r.dst[j]) / r.n }

// setValid stores whether the row of the j-th field holds a value.
func (r *rows) setValid(j int, ok bool) {
	if r.valid == nil || r.valid[j] == nil {
		return
	}
	r.valid[j][r.k] = 0
	if ok {
		r.valid[j][r.k] = 1
	}
}

// onlyType is embedded by decoders. Its methods return errors for abilities that the type does not
// have.
type onlyType string

func (n onlyType) unsupportedError(what string) error {
	return robocache.Misuse("ros2", nil, "%s has no %s", string(n), what)
}

func (n onlyType) decodeRow([]byte, int, []int, rows) error {
	return n.unsupportedError("fixed numeric fields")
}

func (n onlyType) appendRagged([]byte, int, int, []byte) ([]byte, int, error) {
	return nil, 0, n.unsupportedError("ragged fields")
}

func (n onlyType) decodeFrame([]byte, int, int) (robocache.FrameRef, error) {
	return robocache.FrameRef{}, n.unsupportedError("images")
}

func (n onlyType) decodeText([]byte, int, int) (string, error) {
	return "", n.unsupportedError("texts")
}
func (n onlyType) hasManyRows() bool                 { return false }
func (n onlyType) scanFindings() []robocache.Finding { return nil }
func (n onlyType) learnedState() any                 { return nil }
func (n onlyType) restoreState(bool) error           { return nil }

// countedFinding returns a finding with a count, or none if n is 0.
func countedFinding(n int64, f robocache.Finding) []robocache.Finding {
	if f.Count = n; n == 0 {
		return nil
	}
	return []robocache.Finding{f}
}

// Key returns the topic's name as a stream's key. It removes the leading "/" and replaces every
// other "/" by ".".
func Key(topic string) string {
	return strings.ReplaceAll(strings.TrimPrefix(topic, "/"), "/", ".")
}

// fastDecoder returns the hand-written decoder of a type by short name, or nil. It is used only if
// the schema is the known one (ros2.R5).
func fastDecoder(short string) decoder {
	if b, ok := blockTypes[short]; ok {
		return newBlockDecoder(short, b)
	}
	if d, ok := multiArrayElement(short); ok {
		return newMultiArray(short, d)
	}
	switch short {
	case "sensor_msgs/JointState":
		return &joints{onlyType: "sensor_msgs/JointState"}
	case "tf2_msgs/TFMessage":
		return newTransforms()
	case "sensor_msgs/Image":
		return &rawImages{onlyType: "sensor_msgs/Image"}
	case "sensor_msgs/CompressedImage", foxgloveVideo:
		return &compressed{onlyType: onlyType(short)}
	case "sensor_msgs/PointCloud2":
		return &cloud{onlyType: "sensor_msgs/PointCloud2"}
	}
	return nil
}

// NewTopic returns the decoder of a topic. first holds its first messages, at least one if there
// are any. They determine joint names, the encoding of images, the fields of clouds, and the arrays
// of fixed length.
func NewTopic(topic string, s *Schema, first [][]byte) (*Topic, error) {
	t := &Topic{name: topic, key: Key(topic), schema: s}
	where := robocache.Where{"topic": topic, "schema": s.Name}
	g, err := newGeneric(s)
	if err != nil {
		return nil, robocache.At(err, where)
	}
	// If the schema is not that of the messages (an empty definition, another version), decoding
	// would return wrong values.
	if len(first) > 0 && !g.fitsMessages(first) {
		note := "its schema does not fit the messages: they are longer, or end early"
		if k, ok := KnownSchema(s.Name); ok && k.sign != s.sign {
			if kg, err := newGeneric(k); err == nil && kg.fitsMessages(first) {
				g, t.schema = kg, k
				note = "the schema in the recording does not fit the messages: the common " +
					"type of that name does, and is taken"
			}
		}
		t.misfit = t.schema == s
		t.foundEarly = append(
			t.foundEarly,
			robocache.Finding{
				Severity: robocache.SeverityWarning,
				Code:     "schema-does-not-fit",
				Where:    robocache.Where{"topic": topic},
				Message:  topic + " (" + s.Name + "): " + note,
			},
		)
	}
	t.head = g
	t.chooseDecoder()
	// A damaged message is skipped here and reported when it is read. If all of them are damaged,
	// the topic is not readable.
	var failed error
	good := 0
	for k, msg := range first {
		if err := t.decoder.scanMessage(msg, nil); err != nil {
			if failed == nil || errors.Is(err, robocache.ErrUnsupported) {
				failed = robocache.At(err, robocache.Where{"index": k})
			}
			continue
		}
		good++
	}
	if failed != nil &&
		(good == 0 || t.Codec() != "" && errors.Is(failed, robocache.ErrUnsupported)) {
		return nil, robocache.At(failed, where)
	}
	t.updateLayout()
	return t, nil
}

// chooseDecoder sets the decoder of the topic's schema.
func (t *Topic) chooseDecoder() {
	t.decoder = t.head
	if d := fastDecoder(shortKey(t.schema.Name)); d != nil && t.schema.isKnown() {
		t.decoder = d
	}
}

// Schema returns the schema that decodes the messages. It is another one than the recording's if
// the recording's does not fit the messages.
func (t *Topic) Schema() *Schema { return t.schema }

// Key returns the topic's key. The key of a stream is Key + Field.Suffix.
func (t *Topic) Key() string { return t.key }

// Fields returns the streams. Their order does not change; Scan may append streams.
func (t *Topic) Fields() []Field {
	f, _ := t.currentLayout()
	return f
}

// Clocks returns the clocks of the streams (Feature.Clock). Most topics have one clock, named by
// their key, and one row per message. A TFMessage has a clock for each pair of frames and a row for
// each transform.
func (t *Topic) Clocks() []string {
	_, c := t.currentLayout()
	return c
}

func (t *Topic) currentLayout() ([]Field, []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.stale {
		t.updateLayout()
	}
	return t.fields, t.clocks
}

// updateLayout reads the streams from the decoder and sets their keys and clocks.
func (t *Topic) updateLayout() {
	t.fields, t.clocks = t.decoder.streamLayout(t.key)
	for k := range t.fields {
		f := &t.fields[k]
		f.Feature.Key = t.key + f.Suffix
		f.Feature.Clock = t.clocks[f.Clock]
	}
	if t.restored != nil {
		t.restoreFields()
	}
	t.stale = false
}

// Scan reads one message, calls row for each row in it, and updates the columns (see Topic).
// timestamp is the header stamp if stamped is true. Rows are in the order of the message. A decoder
// with one clock always calls row once. If the message is malformed, Scan returns an error, and the
// row holds no value. A restored topic does not change, and is safe for concurrent scanning.
func (t *Topic) Scan(msg []byte, row func(clock, entry int, timestamp int64, stamped bool)) error {
	if row != nil && !t.decoder.hasManyRows() {
		timestamp, ok, _ := t.head.timestampOf(msg)
		row(0, 0, timestamp, ok)
	}
	if t.restored != nil && !t.decoder.hasManyRows() {
		return nil
	}
	t.stale = t.restored == nil
	return t.decoder.scanMessage(msg, row)
}

// Timestamp returns header.stamp of a message in nanoseconds. ok is false if the type has none.
func (t *Topic) Timestamp(
	msg []byte,
) (ns int64, ok bool, err error) {
	return t.head.timestampOf(msg)
}

// Numeric writes a row of a numeric field to dst (RowBytes). A row without a value is zeros and
// invalid.
func (t *Topic) Numeric(msg []byte, field, entry int, dst []byte) (valid bool, err error) {
	var ok [1]uint8
	err = t.decoder.decodeRow(msg, entry, []int{field}, rows{[][]byte{dst}, [][]uint8{ok[:]}, 0, 1})
	return ok[0] != 0, err
}

// Columns decodes many messages. Row k of fields[j] is written to dst[j][k*RowBytes:], and
// valid[j][k] is 1 if it holds a value. entries holds the row numbers within the messages; nil
// means 0 for all. valid and each of its vectors may be nil. Columns stops at the first message
// that fails and returns its number as bad; earlier rows are written. Otherwise bad is -1.
func (t *Topic) Columns(
	msgs [][]byte,
	entries []int32,
	fields []int,
	dst [][]byte,
	valid [][]uint8,
) (bad int, err error) {
	for k, msg := range msgs {
		entry := 0
		if entries != nil {
			entry = int(entries[k])
		}
		if err := t.decoder.decodeRow(msg, entry, fields, rows{dst, valid, k, len(msgs)}); err !=
			nil {
			return k, err
		}
	}
	return -1, nil
}

// Row decodes one message in one pass. The row of fields[j] is written to position k of dst[j] and
// valid[j].
func (t *Topic) Row(
	msg []byte,
	entry int,
	fields []int,
	dst [][]byte,
	valid [][]uint8,
	k int,
) error {
	if len(fields) == 0 {
		return nil
	}
	return t.decoder.decodeRow(msg, entry, fields, rows{dst, valid, k, len(valid[0])})
}

// Ragged appends the row of a ragged field to dst. count is the number of its entries (points,
// elements).
func (t *Topic) Ragged(
	msg []byte,
	field, entry int,
	dst []byte,
) (out []byte, count int, err error) {
	return t.decoder.appendRagged(msg, field, entry, dst)
}

// Image returns the image of a message. Its bytes may alias msg.
func (t *Topic) Image(msg []byte, field, entry int) (robocache.FrameRef, error) {
	return t.decoder.decodeFrame(msg, field, entry)
}

// Text returns a row of a text field.
func (t *Topic) Text(msg []byte, field, entry int) (string, error) {
	return t.decoder.decodeText(msg, field, entry)
}

// Findings returns the problems that scanning found: absent parts, changed joints, a changed camera
// calibration.
func (t *Topic) Findings() []robocache.Finding {
	return append(t.foundEarly[:len(t.foundEarly):len(t.foundEarly)], t.decoder.scanFindings()...)
}
