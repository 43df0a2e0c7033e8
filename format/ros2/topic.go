package ros2

import (
	"sync"

	"github.com/goatnote-inc/robocache"
)

// Field is one stream of a topic.
type Field struct {
	Suffix  string // of the topic's key: "", ".position"
	Feature robocache.Feature
	Clock   int // place in Topic.Clocks
	// Partial says that a message may turn out to hold no value for the row, because Scan has not seen every message: whoever
	// skips Scan marks such features as Masked.
	Partial bool
}

// Topic decodes the messages of one topic into streams.
//
// NewTopic settles columns by the first messages. Scan of every message settles them for good: it meets the transforms that come later,
// arrays whose lengths vary, joints that are missing; after it Fields is what the whole recording holds. Scan is called from one
// goroutine; all else may be called from many, once scanning is over.
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

// decoder is one way to decode a type. Methods that take entry: the number of the row within the message (0 for most types).
type decoder interface {
	// scan reads what settles the columns, and tells the rows that the message holds. A nil row: a first look, which counts nothing
	// for findings.
	scan(msg []byte, row func(clock, entry int, timestamp int64, stamped bool)) error
	// layout gives the streams and clocks as they are known.
	layout(key string) ([]Field, []string)
	numeric(msg []byte, field, entry int, dst []byte) (bool, error)
	columns(msgs [][]byte, entries []int32, fields []int, dst [][]byte, valid [][]uint8) (int, error)
	ragged(msg []byte, field, entry int, dst []byte) ([]byte, int, error)
	pic(msg []byte, field, entry int) (robocache.FrameRef, error)
	text(msg []byte, field, entry int) (string, error)
	findings() []robocache.Finding
}

// Key is the topic's name as a stream's key: without the leading "/", every other "/" a ".".
func Key(topic string) string { return key(topic) }

// NewTopic makes the decoder of a topic. first are its first messages, at least one where it has any: they settle names of joints, the
// encoding of images, the fields of clouds, and which arrays have one length.
func NewTopic(topic string, s *Schema, first [][]byte) (*Topic, error) {
	return newTopic(topic, s, first)
}

// Key is the topic's key; the key of a stream is Key + Field.Suffix.
func (t *Topic) Key() string { return t.key }

// Type is the message type, "pkg/msg/Type".
func (t *Topic) Type() string { return t.schema.Name }

// Fields lists the streams; their order does not change, Scan may add some at the end.
func (t *Topic) Fields() []Field {
	f, _ := t.settled()
	return f
}

// Clocks lists the clocks of the streams (Feature.Clock). Most topics have one, their key, and one row a message; a TFMessage has one
// for each pair of frames, and as many rows as transforms.
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

// Scan reads one message, calls row for each row that it holds, and settles the columns (see Topic). timestamp is the row's own: its
// header's, where timestamped. Rows come in the message's order; a decoder of one clock gives exactly one row, also for a message that is
// wrong inside: then the error says so, and the row holds no value.
func (t *Topic) Scan(msg []byte, row func(clock, entry int, timestamp int64, stamped bool)) error {
	t.stale = true
	return t.dec.scan(msg, row)
}

// Timestamp is header.stamp of a message in ns; !ok where the type has none.
func (t *Topic) Timestamp(msg []byte) (ns int64, ok bool, err error) { return t.head.timestampOf(msg) }

// FrameID is header.frame_id of a message; "" where the type has none.
func (t *Topic) FrameID(msg []byte) (string, error) { return t.frameID(msg) }

// Numeric writes a row of a numeric field to dst (RowBytes). A row without value is zeros and !valid.
func (t *Topic) Numeric(msg []byte, field, entry int, dst []byte) (valid bool, err error) {
	return t.dec.numeric(msg, field, entry, dst)
}

// Columns decodes many messages at once: row k of fields[j] goes to dst[j][k*RowBytes:], and valid[j][k] is 1 where it holds a value.
// entries are the rows' numbers within their messages; nil = all 0. valid may be nil, and so may each of its vectors. The first message
// that fails ends it: bad is its number, else -1; the rows before it are there.
func (t *Topic) Columns(msgs [][]byte, entries []int32, fields []int, dst [][]byte, valid [][]uint8) (bad int, err error) {
	return t.dec.columns(msgs, entries, fields, dst, valid)
}

// Row decodes one message: its row of fields[j] goes to place k of dst[j] and valid[j], all fields in one walk.
func (t *Topic) Row(msg []byte, entry int, fields []int, dst [][]byte, valid [][]uint8, k int) error {
	if d, ok := t.dec.(rowDecoder); ok {
		return d.row(msg, fields, dst, valid, k)
	}
	s := scratches.Get().(*scratch)
	defer scratches.Put(s)
	s.msgs[0], s.entries[0] = msg, int32(entry)
	s.dst, s.valid = s.dst[:0], s.valid[:0]
	for j := range fields {
		w := len(dst[j]) / len(valid[j])
		s.dst, s.valid = append(s.dst, dst[j][k*w:(k+1)*w]), append(s.valid, valid[j][k:k+1])
	}
	_, err := t.dec.columns(s.msgs[:], s.entries[:], fields, s.dst, s.valid)
	return err
}

// rowDecoder is a decoder of one row a message that writes it where it belongs.
type rowDecoder interface {
	row(msg []byte, fields []int, dst [][]byte, valid [][]uint8, k int) error
}

// scratch is what columns wants of one message.
type scratch struct {
	msgs    [1][]byte
	entries [1]int32
	dst     [][]byte
	valid   [][]uint8
}

var scratches = sync.Pool{New: func() any { return new(scratch) }}

// Ragged appends the row of a ragged field to dst; count is the number of its entries (points, elements).
func (t *Topic) Ragged(msg []byte, field, entry int, dst []byte) (out []byte, count int, err error) {
	return t.dec.ragged(msg, field, entry, dst)
}

// Image gives the image of a message. Its bytes may be those of msg.
func (t *Topic) Image(msg []byte, field, entry int) (robocache.FrameRef, error) {
	return t.dec.pic(msg, field, entry)
}

// Text gives a row of a text field.
func (t *Topic) Text(msg []byte, field, entry int) (string, error) {
	return t.dec.text(msg, field, entry)
}

// Findings are what scanning noticed: parts not given, joints that change, a camera's calibration that changes.
func (t *Topic) Findings() []robocache.Finding {
	return append(t.found[:len(t.found):len(t.found)], t.dec.findings()...)
}
