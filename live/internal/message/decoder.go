package message

import (
	"slices"
	"strconv"
	"strings"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/ros2"
	"github.com/goatnote-inc/robocache/internal/crash"
	"github.com/goatnote-inc/robocache/live/transport"
	"github.com/goatnote-inc/robocache/video"
)

// KeyedSource is a stream and the messages from which it is read.
type KeyedSource struct {
	Key    string
	Source *robocache.MessageSource
}

// Row is one row of a stream. Its bytes and images may alias the payload or memory of the decoder:
// they are valid until emit returns.
type Row struct {
	Stream int // index of the source that New received
	Key    string
	Time   int64 // ns, by the clock of the source
	// Valid reports whether the row holds a value. If it is false, Data is zeros.
	Valid  bool
	Data   []byte             // numbers, little-endian
	Count  int                // entries of a ragged row
	Frame  robocache.FrameRef // still image; Missing if the message has none
	Packet []byte             // packet of video; empty if the message has none
	Codec  video.Codec
	Text   string
}

// Decoder decodes the messages of some topics.
type Decoder struct {
	topics  map[string]*topicDecoder
	streams []*stream // by index of their sources
}

// New returns the decoder of some streams. Sources of one topic must be from one recording.
func New(sources []KeyedSource) (_ *Decoder, err error) {
	defer crash.Recover("messages", &err)
	d := &Decoder{topics: map[string]*topicDecoder{}}
	for i, s := range sources {
		where := robocache.Where{"stream": s.Key}
		if s.Source == nil {
			return nil, robocache.Misuse("messages", where, "the stream comes from no message")
		}
		where["topic"] = s.Source.Topic
		t := d.topics[s.Source.Topic]
		if t == nil {
			if t, err = newTopicDecoder(s.Source); err != nil {
				return nil, robocache.At(err, where)
			}
			d.topics[s.Source.Topic] = t
		}
		added, err := t.addStream(i, s.Key, s.Source)
		if err != nil {
			return nil, robocache.At(err, where)
		}
		d.streams = append(d.streams, added)
	}
	return d, nil
}

// Feature returns the description of a stream's rows. The decoder owns it.
func (d *Decoder) Feature(stream int) *robocache.Feature { return &d.streams[stream].feature }

// Colour returns the color properties of a stream of video that its packets do not contain, or nil.
func (d *Decoder) Colour(stream int) *video.Colour {
	return d.streams[stream].topic.topic.Stated().Colour
}

// topicOf returns the decoder of a topic.
func (d *Decoder) topicOf(name string) (*topicDecoder, error) {
	if t := d.topics[name]; t != nil {
		return t, nil
	}
	return nil, robocache.NotFound("messages", robocache.Where{"topic": clip(name)},
		"no stream comes from this topic")
}

// CheckChannel returns an error if the messages that a publisher announces are not those of the
// recording: another type, encoding or definition. A channel without a definition is accepted by
// its names.
func (d *Decoder) CheckChannel(c *transport.Channel) (err error) {
	defer crash.Recover("messages", &err)
	t, err := d.topicOf(c.Topic)
	if err != nil {
		return err
	}
	where := robocache.Where{"topic": c.Topic}
	if c.Encoding != t.source.Encoding {
		return robocache.Unsupported("messages", where, "encoding").
			Expected(t.source.Encoding, strconv.Quote(clip(c.Encoding)))
	}
	want := t.topic.Schema()
	mismatch := func(got string) error {
		return robocache.Malformed("messages", where, "").
			Expected("messages of type "+want.Name+" as in the recording", got)
	}
	encoding, text := c.SchemaEncoding, c.Schema
	if text == "" {
		encoding, text = want.Source()
	}
	got, err := ros2.LoadSchema(encoding, c.Type, text)
	switch {
	case err != nil && c.Schema == "":
		return mismatch(strconv.Quote(clip(c.Type)))
	case err != nil:
		return robocache.At(err, where)
	case got.Name != want.Name:
		return mismatch(got.Name)
	case !got.Equal(want):
		return mismatch("another definition of that type")
	}
	return nil
}

// Decode decodes a message and calls emit for each row of its streams. arrival is the time in ns
// at which the message arrived. emit must not call Decode. If a stream does not fit, Decode emits
// the others and returns the first error.
func (d *Decoder) Decode(
	topic string,
	payload []byte,
	arrival int64,
	emit func(Row),
) (err error) {
	t, err := d.topicOf(topic)
	if err != nil {
		return err
	}
	defer crash.Recover("messages", &err)
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.decode(payload, arrival, emit); err != nil {
		return robocache.At(err, robocache.Where{"topic": topic})
	}
	return nil
}

// newTopicDecoder restores the topic of a source.
func newTopicDecoder(s *robocache.MessageSource) (*topicDecoder, error) {
	if s.Encoding != "cdr" {
		return nil, robocache.Unsupported("messages", nil, "encoding").
			Expected("cdr", strconv.Quote(clip(s.Encoding)))
	}
	switch s.Clock {
	case "header", "log":
	default:
		return nil, robocache.Unsupported("messages", nil, "clock").
			Expected("header or log, which a live program knows", strconv.Quote(clip(s.Clock))).
			WithHint("Open the recording with %s.", robocache.Option("options", "clock", "log"))
	}
	schema, err := ros2.LoadSchema(s.SchemaEncoding, s.Type, s.Schema)
	if err != nil {
		return nil, err
	}
	t := &topicDecoder{source: s}
	if t.topic, err = ros2.RestoreTopic(s.Topic, schema, s.Layout); err != nil {
		return nil, err
	}
	t.fields = t.topic.Fields()
	t.clocks = make([]clockRows, len(t.topic.Clocks()))
	t.collect = t.collectRow
	return t, nil
}

// isSameTopic reports whether two sources describe their topic in the same way.
func isSameTopic(a, b *robocache.MessageSource) bool {
	return a.Type == b.Type && a.Encoding == b.Encoding && a.Clock == b.Clock &&
		a.SchemaEncoding == b.SchemaEncoding && a.Schema == b.Schema && a.Latched == b.Latched &&
		slices.Equal(a.Layout, b.Layout)
}

// fieldNamed returns the field with a suffix.
func (t *topicDecoder) fieldNamed(suffix string) (int, error) {
	i := slices.IndexFunc(t.fields, func(f ros2.Field) bool { return f.Suffix == suffix })
	if i < 0 {
		var known []string
		for _, f := range t.fields {
			known = append(known, strconv.Quote(f.Suffix))
		}
		return 0, robocache.Malformed("messages", nil, "field").
			Expected("one of "+clip(strings.Join(known, ", ")), strconv.Quote(clip(suffix)))
	}
	return i, nil
}

// clip shortens a text of a peer for an error.
func clip(s string) string {
	return strings.ToValidUTF8(s[:min(len(s), 120)], "?")
}
