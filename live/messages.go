package live

import (
	"errors"
	"sync"
	"time"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/live/internal/message"
	"github.com/goatnote-inc/robocache/live/transport"
	"github.com/goatnote-inc/robocache/video"
)

// messageDecoder decodes messages into samples.
type messageDecoder struct {
	decoder *message.Decoder
	streams []*streamBuffer // by index of the decoder's sources
	videos  []*videoTopic   // by that index; nil: no packets so far
	topics  []string
}

// newMessageDecoder returns the decoder of the streams that come from messages, or nil if there are
// none.
func newMessageDecoder(l *Live) (*messageDecoder, error) {
	m := &messageDecoder{}
	var sources []message.KeyedSource
	known := map[string]bool{}
	for _, s := range l.streams {
		if s.Message == nil {
			continue
		}
		sources = append(sources, message.KeyedSource{Key: s.Key, Source: s.Message})
		m.streams = append(m.streams, s)
		if !known[s.Message.Topic] {
			known[s.Message.Topic] = true
			m.topics = append(m.topics, s.Message.Topic)
		}
	}
	if len(sources) == 0 {
		return nil, nil
	}
	var err error
	if m.decoder, err = message.New(sources); err != nil {
		return nil, err
	}
	m.videos = make([]*videoTopic, len(sources))
	for i := range m.videos {
		m.videos[i] = &videoTopic{colour: m.decoder.Colour(i)}
	}
	return m, nil
}

// Topics returns the topics that the streams of the contract come from.
func (l *Live) Topics() []string {
	if l.messages == nil {
		return nil
	}
	return l.messages.topics
}

// PushMessage adds the samples in a message of a topic. payload is the message in the encoding of
// the contract (CDR). sent is when it was sent and arrival when it arrived, in ns; both may be Now. A
// message that does not fit the contract is an error and changes no observation. Safe for
// concurrent use; messages of one topic are decoded one after the other.
func (l *Live) PushMessage(topic string, payload []byte, sent, arrival int64) error {
	if l.isClosed.Load() {
		return errClosed()
	}
	if l.messages == nil {
		return robocache.Misuse("live", robocache.Where{"topic": topic},
			"no stream of the contract comes from messages").
			WithHint("Push decoded values: live.push(key, value, stamp_ns).")
	}
	if arrival == Now {
		arrival = time.Now().UnixNano()
	}
	if sent == Now {
		sent = arrival
	}
	if r := l.recorder.Load(); r != nil {
		l.recording.RLock()
		defer l.recording.RUnlock()
		if err := r.add(l.messages.channelOf(topic), arrival, sent, payload); err != nil {
			return err
		}
	}
	var failed error
	err := l.messages.decoder.Decode(topic, payload, arrival, func(row message.Row) {
		if err := l.pushRow(&row, arrival); err != nil && failed == nil {
			failed = err
		}
	})
	if err != nil {
		l.rejectMessage(topic)
		return err
	}
	return failed
}

// rejectMessage counts a message that does not fit, for each stream of its topic.
func (l *Live) rejectMessage(topic string) {
	for _, s := range l.messages.streams {
		if s.Message.Topic == topic {
			s.mu.Lock()
			s.counters.Received++
			s.counters.Rejected++
			s.mu.Unlock()
		}
	}
}

// pushRow adds the sample of a row of a message.
func (l *Live) pushRow(row *message.Row, arrival int64) error {
	x := Sample{Stamp: row.Time, Arrival: arrival, isOfMessage: true}
	s := l.messages.streams[row.Stream]
	switch {
	case row.Codec != "":
		return l.messages.videos[row.Stream].pushPacket(l, s, row, arrival)
	case !row.Valid:
		x.IsMissing = true
	case s.Kind == robocache.KindImage || s.Kind == robocache.KindVideo:
		x.Still = &row.Frame
	default:
		x.Data, x.Text = row.Data, row.Text
	}
	return l.Push(row.Key, &x)
}

// channelOf returns the channel of a topic for a recording.
func (m *messageDecoder) channelOf(topic string) transport.Channel {
	for _, s := range m.streams {
		if c := s.Message; c.Topic == topic {
			return transport.Channel{
				Topic: topic, Type: c.Type, Encoding: c.Encoding,
				SchemaEncoding: c.SchemaEncoding, Schema: c.Schema,
			}
		}
	}
	return transport.Channel{Topic: topic}
}

// checkChannel returns an error if the messages that a publisher announces do not fit.
func (m *messageDecoder) checkChannel(
	c *transport.Channel,
) error {
	return m.decoder.CheckChannel(c)
}

// forgetPackets forgets the packets of all videos. Decoding continues at the next key frame.
func (m *messageDecoder) forgetPackets() {
	for _, v := range m.videos {
		v.closeDecoder()
	}
}

// videoTopic decodes the packets of one stream.
type videoTopic struct {
	colour *video.Colour

	mu      sync.Mutex
	codec   video.Codec
	decoder *video.PacketDecoder
	waiting []int64 // timestamps of the packets from first on
	first   int     // number of the packet of waiting[0]
}

// pushPacket decodes a packet and adds its frame. A packet without a frame is a row without a value,
// as in a recording.
func (v *videoTopic) pushPacket(
	l *Live, s *streamBuffer, row *message.Row, arrival int64,
) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if l.isClosed.Load() {
		return errClosed()
	}
	if v.decoder == nil || v.codec != row.Codec {
		if err := v.open(row.Codec); err != nil {
			return robocache.At(err, robocache.Where{"stream": s.Key})
		}
	}
	v.waiting = append(v.waiting, row.Time)
	newest := v.first + len(v.waiting) - 1
	hasFrame := false
	err := v.decoder.Decode(row.Packet, func(number int, f video.Frame) error {
		planar, ok := f.(video.PlanarFrame)
		if !ok {
			return robocache.Unsupported("live", nil, "frames without planes")
		}
		hasFrame = hasFrame || number == newest
		return l.Push(s.Key, &Sample{
			Stamp: v.waiting[number-v.first], Arrival: arrival, Frame: planar, isOfMessage: true,
		})
	})
	if n := len(v.waiting) - maxWaitingPackets; n > 0 {
		v.waiting, v.first = v.waiting[n:], v.first+n
	}
	if !hasFrame {
		s.mu.Lock()
		s.counters.NoFrame++
		s.mu.Unlock()
		x := Sample{Stamp: row.Time, Arrival: arrival, IsMissing: true, isOfMessage: true}
		err = errors.Join(err, l.Push(s.Key, &x))
	}
	return err
}

// maxWaitingPackets is the number of packets whose frames a decoder may return later.
const maxWaitingPackets = 64

// open begins to decode packets of a codec.
func (v *videoTopic) open(codec video.Codec) (err error) {
	if v.decoder != nil {
		v.decoder.Close()
	}
	v.codec, v.waiting, v.first = codec, v.waiting[:0], 0
	v.decoder, err = video.NewPacketDecoder(codec, video.Limits{})
	if err == nil && v.colour != nil {
		v.decoder.SetColour(v.colour)
	}
	return err
}

// closeDecoder forgets all packets and frees the decoder.
func (v *videoTopic) closeDecoder() {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.decoder != nil {
		v.decoder.Close()
		v.decoder = nil
	}
}
