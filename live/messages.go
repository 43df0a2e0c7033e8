package live

import (
	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/live/transport"
)

// messageDecoder decodes messages into samples.
type messageDecoder struct{}

func newMessageDecoder(*Live) (*messageDecoder, error) { return nil, nil }

func (m *messageDecoder) reset() {}
func (m *messageDecoder) close() {}

func (l *Live) PushMessage(topic string, payload []byte, stamp, arrival int64) error {
	return robocache.Unsupported("live", nil, "messages")
}

func (l *Live) Topics() []string { return nil }

func (l *Live) rejectMessage(string) {}

func (m *messageDecoder) checkChannel(*transport.Channel) error { return nil }
