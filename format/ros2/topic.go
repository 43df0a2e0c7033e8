package ros2

import (
	"errors"
	"strings"
	"sync"

	"github.com/goatnote-inc/robocache"
)

// Field is one stream of a topic.
type Field struct {
	Suffix  string // of the topic's key: "", ".position"
	Feature robocache.Feature
	Clock   int // index in Topic.Clocks
	// Partial says that a message may turn out to hold no value for the row, because Scan has not
	// seen every message: who skips Scan marks such features as Masked.
	Partial bool
}

// Topic decodes the messages of one topic into streams.
//
// NewTopic settles columns by the first messages. Scan of every message settles them for good: it
// meets the transforms that come later, arrays whose lengths vary, joints that are missing; after
// it Fields is what the whole recording holds. Scan is called from one goroutine; all else may be
// called from many, once scanning is over.
type Topic struct {
	name   string
	key    string
	schema *Schema
	head   *generic // knows where the header is
	dec    decoder
	found  []robocache.Finding // by NewTopic

	mu     sync.Mutex
	stale  bool // Scan has seen more than fields and clocks say
	fields []Field
	clocks []string
}

// rowFunc is told a row of a message.
type rowFunc func(clock, entry int, timestamp int64, stamped bool)

// decoder is one way to decode a type. Methods that take entry: the number of the row within the
// message (0 for most types).
type decoder interface {
	// scan reads what settles the columns. A nil row: a first look, which counts nothing
	// for findings.
	scan(msg []byte, row rowFunc) error
	// several says that a message may hold any number of rows, on several clocks, which scan tells;
	// else it holds one, which scan does not tell.
	several() bool
	// layout gives the streams and clocks as they are known.
	layout(key string) ([]Field, []string)
	row(msg []byte, entry int, fields []int, to rows) error
	ragged(msg []byte, field, entry int, dst []byte) ([]byte, int, error)
	frame(msg []byte, field, entry int) (robocache.FrameRef, error)
	text(msg []byte, field, entry int) (string, error)
	findings() []robocache.Finding
}

// rows is where a message's row of each field goes: place k of n in dst, and 1 or 0 in valid, which
// may be nil, as may each of its vectors.
type rows struct {
	dst   [][]byte
	valid [][]uint8
	k, n  int
}

// at is the row of the j-th field, of w bytes.
func (r *rows) at(j, w int) []byte { return r.dst[j][r.k*w : (r.k+1)*w] }

// width is how long a row of the j-th field is.
func (r *rows) width(j int) int { return len(r.dst[j]) / r.n }

// mark says whether it holds a value.
func (r *rows) mark(j int, ok bool) {
	if r.valid == nil || r.valid[j] == nil {
		return
	}
	r.valid[j][r.k] = 0
	if ok {
		r.valid[j][r.k] = 1
	}
}

// onlyType is embedded by decoders for what a type does not have.
type onlyType string

func (n onlyType) noSuch(what string) error {
	return robocache.Misuse("ros2", nil, "%s has no %s", string(n), what)
}
func (n onlyType) row([]byte, int, []int, rows) error { return n.noSuch("fixed numeric fields") }
func (n onlyType) ragged([]byte, int, int, []byte) ([]byte, int, error) {
	return nil, 0, n.noSuch("ragged fields")
}

func (n onlyType) frame([]byte, int, int) (robocache.FrameRef, error) {
	return robocache.FrameRef{}, n.noSuch("images")
}
func (n onlyType) text([]byte, int, int) (string, error) { return "", n.noSuch("texts") }
func (n onlyType) several() bool                         { return false }
func (n onlyType) findings() []robocache.Finding         { return nil }

// counted is a finding of what was met n times; none of what never was.
func counted(n int64, f robocache.Finding) []robocache.Finding {
	if f.Count = n; n == 0 {
		return nil
	}
	return []robocache.Finding{f}
}

// Key is the topic's name as a stream's key: without the leading "/", every other "/" a ".".
func Key(topic string) string {
	return strings.ReplaceAll(strings.TrimPrefix(topic, "/"), "/", ".")
}

// fast makes the decoders that are written by hand, by the type's short name. One is taken where
// the schema is the known one (R5).
func fast(short string) decoder {
	if b, ok := blockTypes[short]; ok {
		return newBlock(short, b)
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

// NewTopic makes the decoder of a topic. first are its first messages, at least one where it has
// any: they settle names of joints, the encoding of images, the fields of clouds, and which arrays
// have one length.
func NewTopic(topic string, s *Schema, first [][]byte) (*Topic, error) {
	t := &Topic{name: topic, key: Key(topic), schema: s}
	where := robocache.Where{"topic": topic, "schema": s.Name}
	g, err := newGeneric(s)
	if err != nil {
		return nil, robocache.At(err, where)
	}
	// A recording whose schema is not that of its messages (an empty definition, another version)
	// would give values that nobody wrote.
	if len(first) > 0 && !g.fits(first) {
		note := "its schema does not fit the messages: they are longer, or end early"
		if k, ok := KnownSchema(s.Name); ok && k.sign != s.sign {
			if kg, err := newGeneric(k); err == nil && kg.fits(first) {
				g, s, t.schema = kg, k, k
				note = "the schema in the recording does not fit the messages: the common type of that name does, and is taken"
			}
		}
		t.found = append(
			t.found,
			robocache.Finding{
				Severity: robocache.SeverityWarning,
				Code:     "schema-does-not-fit",
				Where:    robocache.Where{"topic": topic},
				Message:  topic + " (" + s.Name + "): " + note,
			},
		)
	}
	t.head, t.dec = g, g
	if d := fast(shortKey(s.Name)); d != nil {
		if k, ok := KnownSchema(s.Name); ok && k.sign == s.sign {
			t.dec = d
		}
	}
	// A damaged message is passed over here, and counted by who reads it; where all of them fail,
	// it is the topic that is not readable.
	var failed error
	good := 0
	for k, msg := range first {
		if err := t.dec.scan(msg, nil); err != nil {
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
	t.settle()
	return t, nil
}

// Key is the topic's key; the key of a stream is Key + Field.Suffix.
func (t *Topic) Key() string { return t.key }

// Fields lists the streams; their order does not change, Scan may add some at the end.
func (t *Topic) Fields() []Field {
	f, _ := t.settled()
	return f
}

// Clocks lists the clocks of the streams (Feature.Clock). Most topics have one, their key, and one
// row a message; a TFMessage has one for each pair of frames, and as many rows as transforms.
func (t *Topic) Clocks() []string {
	_, c := t.settled()
	return c
}

func (t *Topic) settled() ([]Field, []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.stale {
		t.settle()
	}
	return t.fields, t.clocks
}

// settle takes the streams as the decoder knows them, and gives them their keys and clocks.
func (t *Topic) settle() {
	t.fields, t.clocks = t.dec.layout(t.key)
	for k := range t.fields {
		f := &t.fields[k]
		f.Feature.Key = t.key + f.Suffix
		f.Feature.Clock = t.clocks[f.Clock]
	}
	t.stale = false
}

// Scan reads one message, calls row for each row that it holds, and settles the columns (see
// Topic). timestamp is the row's own: its header's, where timestamped. Rows come in the message's
// order; a decoder of one clock gives exactly one row, also for a message that is wrong inside:
// then the error says so, and the row holds no value.
func (t *Topic) Scan(msg []byte, row func(clock, entry int, timestamp int64, stamped bool)) error {
	t.stale = true
	if row != nil && !t.dec.several() {
		timestamp, ok, _ := t.head.timestampOf(msg)
		row(0, 0, timestamp, ok)
	}
	return t.dec.scan(msg, row)
}

// Timestamp is header.stamp of a message in ns; !ok where the type has none.
func (t *Topic) Timestamp(
	msg []byte,
) (ns int64, ok bool, err error) {
	return t.head.timestampOf(msg)
}

// Numeric writes a row of a numeric field to dst (RowBytes). A row without value is zeros and
// !valid.
func (t *Topic) Numeric(msg []byte, field, entry int, dst []byte) (valid bool, err error) {
	var ok [1]uint8
	err = t.dec.row(msg, entry, []int{field}, rows{[][]byte{dst}, [][]uint8{ok[:]}, 0, 1})
	return ok[0] != 0, err
}

// Columns decodes many messages at once: row k of fields[j] goes to dst[j][k*RowBytes:], and
// valid[j][k] is 1 where it holds a value. entries are the rows' numbers within their messages; nil
// = all 0. valid may be nil, and so may each of its vectors. The first message that fails ends it:
// bad is its number, else -1; the rows before it are there.
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
		if err := t.dec.row(msg, entry, fields, rows{dst, valid, k, len(msgs)}); err != nil {
			return k, err
		}
	}
	return -1, nil
}

// Row decodes one message: its row of fields[j] goes to place k of dst[j] and valid[j], all fields
// in one walk.
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
	return t.dec.row(msg, entry, fields, rows{dst, valid, k, len(valid[0])})
}

// Ragged appends the row of a ragged field to dst; count is the number of its entries (points,
// elements).
func (t *Topic) Ragged(
	msg []byte,
	field, entry int,
	dst []byte,
) (out []byte, count int, err error) {
	return t.dec.ragged(msg, field, entry, dst)
}

// Image gives the image of a message. Its bytes may be those of msg.
func (t *Topic) Image(msg []byte, field, entry int) (robocache.FrameRef, error) {
	return t.dec.frame(msg, field, entry)
}

// Text gives a row of a text field.
func (t *Topic) Text(msg []byte, field, entry int) (string, error) {
	return t.dec.text(msg, field, entry)
}

// Findings are what scanning noticed: parts not given, joints that change, a camera's calibration
// that changes.
func (t *Topic) Findings() []robocache.Finding {
	return append(t.found[:len(t.found):len(t.found)], t.dec.findings()...)
}
