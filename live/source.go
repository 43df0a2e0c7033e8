package live

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/live/transport"
)

// sources are the transports of a Live.
type sources struct {
	cancel   []context.CancelFunc
	running  sync.WaitGroup
	received atomic.Int64 // messages

	mu   sync.Mutex
	last error // newest error of a transport or a message
}

// Run receives messages from a URI (foxglove://, dds://, mcap://) in the background until ctx is
// canceled or Close is called. The packages of the transports must be imported.
func (l *Live) Run(ctx context.Context, uri string) error {
	t, err := transport.Open(uri)
	if err != nil {
		return err
	}
	if len(l.Topics()) == 0 {
		return robocache.Misuse("live", nil, "no stream of the contract comes from messages").
			WithHint("Push decoded values: live.push(key, value, stamp_ns).")
	}
	if r, ok := t.(transport.Reporter); ok {
		r.OnError(l.sources.note)
	}
	ctx, cancel := context.WithCancel(ctx)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.isClosed.Load() {
		cancel()
		return errClosed()
	}
	l.sources.cancel = append(l.sources.cancel, cancel)
	// The clock of DDS messages is when they were sent. Others state when a bridge or a recorder
	// received them.
	usesLog := !strings.HasPrefix(uri, "dds://") || strings.Contains(uri, "arrival=log")
	checked := map[*transport.Channel]error{}
	l.sources.running.Go(func() {
		err := t.Run(ctx, l.Topics(), func(m *transport.Message) {
			l.receive(m, usesLog, checked)
		})
		if !errors.Is(err, context.Canceled) {
			l.sources.note(err)
		}
	})
	return nil
}

// maxChannels is the number of channels whose check is remembered.
const maxChannels = 4096

// receive adds the samples of a received message. checked holds the channels seen so far, with the
// reason why their messages do not fit, if they do not.
func (l *Live) receive(m *transport.Message, usesLog bool, checked map[*transport.Channel]error) {
	bad, seen := checked[m.Channel]
	if !seen {
		if len(checked) > maxChannels {
			clear(checked) // a publisher announces its channels again and again
		}
		bad = l.messages.checkChannel(m.Channel)
		checked[m.Channel] = bad
	}
	arrival := m.Arrival
	if usesLog && m.Log != 0 {
		arrival = m.Log
	}
	if bad != nil {
		l.rejectMessage(m.Channel.Topic)
	} else {
		bad = l.PushMessage(m.Channel.Topic, m.Data, m.Log, arrival)
	}
	l.sources.note(bad)
	l.sources.received.Add(1)
}

// note keeps an error for Err.
func (s *sources) note(err error) {
	if err == nil {
		return
	}
	s.mu.Lock()
	s.last = err
	s.mu.Unlock()
}

// Err returns the newest error of a transport or of a message that it received, or nil.
func (l *Live) Err() error {
	l.sources.mu.Lock()
	defer l.sources.mu.Unlock()
	return l.sources.last
}

// MessagesReceived returns the number of messages that transports have received.
func (l *Live) MessagesReceived() int64 { return l.sources.received.Load() }
