package foxglove

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/live/transport"
)

// limits limits the memory that a server may require.
type limits struct {
	message  int64 // bytes of a frame
	text     int64 // bytes of a text frame, which is parsed as JSON
	channels int   // number of channels
	schemas  int   // bytes of the descriptions of requested channels
}

var defaultLimits = limits{
	message:  64 << 20, // an uncompressed image of 4K has 25 MB
	text:     32 << 20,
	channels: maxListed,
	schemas:  64 << 20,
}

// maxListed is the maximum length of a list in a text frame.
const maxListed = 1 << 14

// Opcodes of binary frames from the server. Others answer requests that are not sent.
const (
	opMessage  = 1
	opTime     = 2
	messageFix = 1 + 4 + 8 // opcode, subscription, log time
	timeSize   = 1 + 8
)

// Levels of status messages.
const statusWarning = 1

// session is the state of one connection. It handles the frames of the server.
type session struct {
	limits  limits
	topics  map[string]bool
	receive func(*transport.Message)
	report  func(error) // of problems that the server states

	advertised    map[uint64]*subscription // by channel; nil for other topics
	subscriptions map[uint32]*subscription
	next          uint32 // number of the next subscription
	described     int    // bytes of the descriptions of subscribed channels
	message       transport.Message
}

// subscription is a subscribed channel.
type subscription struct {
	number  uint32
	channel transport.Channel
}

// size returns the bytes of the description of the channel.
func (s *subscription) size() int {
	c := &s.channel
	return len(c.Topic) + len(c.Type) + len(c.Encoding) + len(c.SchemaEncoding) + len(c.Schema)
}

func newSession(
	lim limits,
	topics []string,
	receive func(*transport.Message),
	report func(error),
) *session {
	s := &session{
		limits:        lim,
		topics:        map[string]bool{},
		receive:       receive,
		report:        report,
		advertised:    map[uint64]*subscription{},
		subscriptions: map[uint32]*subscription{},
	}
	for _, topic := range topics {
		s.topics[topic] = true
	}
	return s
}

func malformed(format string, args ...any) *robocache.Error {
	return robocache.Malformed("live foxglove", nil, format, args...)
}

func tooLarge(what string, limit int64) error {
	return robocache.ResourceLimit("live foxglove", nil, "size of %s", what).
		Expected(fmt.Sprintf("at most %d", limit), "more")
}

// boundedList is a JSON array of at most maxListed values. The limit is checked before the list
// grows.
type boundedList[T any] []T

// UnmarshalJSON implements json.Unmarshaler.
func (l *boundedList[T]) UnmarshalJSON(b []byte) error {
	list := json.NewDecoder(bytes.NewReader(b))
	if start, err := list.Token(); err != nil || start != json.Delim('[') {
		return malformed("expected a list, found %.40q", b)
	}
	for *l = nil; list.More(); {
		if len(*l) == maxListed {
			return tooLarge("a list", maxListed)
		}
		var v T
		if err := list.Decode(&v); err != nil {
			return err
		}
		*l = append(*l, v)
	}
	return nil
}

// advertisedChannel is a channel as the server describes it.
type advertisedChannel struct {
	ID             uint64 `json:"id"`
	Topic          string `json:"topic"`
	Encoding       string `json:"encoding"`
	SchemaName     string `json:"schemaName"`
	Schema         string `json:"schema"`
	SchemaEncoding string `json:"schemaEncoding"`
}

// requestedSubscription is an entry of a subscribe message.
type requestedSubscription struct {
	ID      uint32 `json:"id"`
	Channel uint64 `json:"channelId"`
}

// handleText handles a text frame. It returns the message that must be sent to the server, or nil.
func (s *session) handleText(b []byte) (reply []byte, err error) {
	var head struct {
		Op string `json:"op"`
	}
	if err := decodeJSON(b, &head); err != nil {
		return nil, err
	}
	switch head.Op {
	case "status":
		var status struct {
			Level   int    `json:"level"`
			Message string `json:"message"`
		}
		if err := decodeJSON(b, &status); err != nil {
			return nil, err
		}
		if status.Level >= statusWarning {
			s.report(robocache.Temporary(
				"live foxglove", nil, "the server reports: %.200s", status.Message))
		}
	case "advertise":
		var m struct {
			Channels boundedList[advertisedChannel] `json:"channels"`
		}
		if err := decodeJSON(b, &m); err != nil {
			return nil, err
		}
		return s.addChannels(m.Channels)
	case "unadvertise":
		var m struct {
			Channels boundedList[uint64] `json:"channelIds"`
		}
		if err := decodeJSON(b, &m); err != nil {
			return nil, err
		}
		for _, id := range m.Channels {
			s.removeChannel(id)
		}
	case "":
		return nil, malformed("a text frame without op")
	}
	return nil, nil // serverInfo, and replies to requests that are not sent
}

func decodeJSON(b []byte, into any) error {
	err := json.Unmarshal(b, into)
	var typed *robocache.Error
	if err == nil || errors.As(err, &typed) {
		return err
	}
	return malformed("a text frame is not valid").WithCause(err)
}

// addChannels adds channels. It returns a message that subscribes to the requested ones.
func (s *session) addChannels(channels []advertisedChannel) (reply []byte, err error) {
	request := struct {
		Op            string                  `json:"op"`
		Subscriptions []requestedSubscription `json:"subscriptions"`
	}{Op: "subscribe"}
	for _, c := range channels {
		var sub *subscription
		if s.topics[c.Topic] {
			if sub, err = subscribeTo(c); err != nil {
				return nil, err
			}
		}
		if old, twice := s.advertised[c.ID]; twice {
			if (old == nil) != (sub == nil) || old != nil && old.channel != sub.channel {
				return nil, malformed("channel %d is advertised twice with other content", c.ID)
			}
			continue
		}
		if len(s.advertised) == s.limits.channels {
			return nil, tooLarge("the list of channels", int64(s.limits.channels))
		}
		s.advertised[c.ID] = sub
		if sub == nil {
			continue
		}
		if s.described += sub.size(); s.described > s.limits.schemas {
			return nil, tooLarge("all schemas", int64(s.limits.schemas))
		}
		if s.next == math.MaxUint32 {
			return nil, tooLarge("the numbers of subscriptions", math.MaxUint32)
		}
		sub.number = s.next
		s.next++
		s.subscriptions[sub.number] = sub
		request.Subscriptions = append(
			request.Subscriptions,
			requestedSubscription{ID: sub.number, Channel: c.ID},
		)
	}
	if request.Subscriptions == nil {
		return nil, nil
	}
	return json.Marshal(request)
}

// impliedSchemas are the encodings of schemas by the encoding of messages, if the server states
// none.
var impliedSchemas = map[string]string{
	"cdr":        "ros2msg",
	"ros1":       "ros1msg",
	"json":       "jsonschema",
	"protobuf":   "protobuf",
	"flatbuffer": "flatbuffer",
}

// subscribeTo returns the subscription of a channel. The schema of a binary encoding is decoded
// from base64.
func subscribeTo(c advertisedChannel) (*subscription, error) {
	if c.SchemaEncoding == "" && c.Schema != "" {
		c.SchemaEncoding = impliedSchemas[c.Encoding]
	}
	if c.SchemaEncoding == "protobuf" || c.SchemaEncoding == "flatbuffer" {
		text, err := base64.StdEncoding.DecodeString(c.Schema)
		if err != nil {
			return nil, malformed("schema of %.80q", c.Topic).WithCause(err)
		}
		c.Schema = string(text)
	}
	return &subscription{channel: transport.Channel{
		Topic:          c.Topic,
		Type:           c.SchemaName,
		Encoding:       c.Encoding,
		SchemaEncoding: c.SchemaEncoding,
		Schema:         c.Schema,
	}}, nil
}

// removeChannel removes a channel. A channel that is not advertised is ignored.
func (s *session) removeChannel(id uint64) {
	if sub := s.advertised[id]; sub != nil {
		s.described -= sub.size()
		delete(s.subscriptions, sub.number)
	}
	delete(s.advertised, id)
}

// handleBinary handles a binary frame. It passes messages to the receiver.
func (s *session) handleBinary(b []byte, arrival int64) error {
	if len(b) == 0 {
		return malformed("an empty frame")
	}
	switch b[0] {
	case opTime:
		if len(b) != timeSize {
			return malformed("size of a time frame").
				Expected(fmt.Sprint(timeSize), fmt.Sprint(len(b)))
		}
	case opMessage:
		if len(b) < messageFix {
			return malformed("size of a message frame").
				Expected(fmt.Sprintf("%d or more", messageFix), fmt.Sprint(len(b)))
		}
		number := binary.LittleEndian.Uint32(b[1:])
		log := binary.LittleEndian.Uint64(b[5:])
		sub := s.subscriptions[number]
		if sub == nil && number >= s.next {
			return malformed("a message of subscription %d, which does not exist", number)
		}
		if log > math.MaxInt64 {
			return malformed("log time").Expected("at most 2^63-1 ns", fmt.Sprint(log))
		}
		if sub == nil {
			return nil // the channel was removed after the message was sent
		}
		s.message = transport.Message{
			Channel: &sub.channel,
			Data:    b[messageFix:],
			Log:     int64(log),
			Arrival: arrival,
		}
		s.receive(&s.message)
	}
	return nil
}
