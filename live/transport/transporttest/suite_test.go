package transporttest

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/goatnote-inc/robocache/live/transport"
)

// hub is a server and a correct transport in this process. If the suite fails with it, the suite is
// wrong.
type hub struct {
	rec         *Recording
	lock        sync.Mutex
	isRunning   bool
	subscribers map[chan int]bool
}

func (h *hub) URI() string { return "hub://" }

func (h *hub) Start() error {
	h.lock.Lock()
	defer h.lock.Unlock()
	h.isRunning, h.subscribers = true, map[chan int]bool{}
	return nil
}

func (h *hub) Publish(i int) error {
	h.lock.Lock()
	defer h.lock.Unlock()
	for s := range h.subscribers {
		s <- i
	}
	return nil
}

func (h *hub) Stop() error {
	h.lock.Lock()
	defer h.lock.Unlock()
	for s := range h.subscribers {
		close(s)
	}
	h.isRunning, h.subscribers = false, nil
	return nil
}

// subscribe returns the messages until the server stops, or nil if it is not running.
func (h *hub) subscribe() chan int {
	h.lock.Lock()
	defer h.lock.Unlock()
	if !h.isRunning {
		return nil
	}
	s := make(chan int, 4096)
	h.subscribers[s] = true
	return s
}

func (h *hub) Run(ctx context.Context, topics []string, receive func(*transport.Message)) error {
	for ctx.Err() == nil {
		subscribed := h.subscribe()
		if subscribed == nil {
			time.Sleep(time.Millisecond)
			continue
		}
		h.deliver(ctx, subscribed, topics, receive)
		h.lock.Lock()
		delete(h.subscribers, subscribed)
		h.lock.Unlock()
	}
	return ctx.Err()
}

func (h *hub) deliver(
	ctx context.Context,
	subscribed chan int,
	topics []string,
	receive func(*transport.Message),
) {
	for {
		select {
		case <-ctx.Done():
			return
		case i, ok := <-subscribed:
			if !ok {
				return
			}
			m := h.rec.Messages[i]
			m.Arrival = time.Now().UnixNano()
			for _, topic := range topics {
				if topic == m.Channel.Topic {
					receive(&m)
				}
			}
		}
	}
}

func TestSuiteAcceptsCorrectTransport(t *testing.T) {
	Run(t, func(_ *testing.T, rec *Recording) Server {
		h := &hub{rec: rec}
		transport.Register("hub", func(string) (transport.Transport, error) { return h, nil })
		return h
	}, Options{LogTimes: true})
}

func TestComparisonFindsFaults(t *testing.T) {
	a, b, c := item{hash: 1}, item{hash: 2}, item{hash: 3}
	sent := []item{a, a, b, c}
	for name, got := range map[string][]item{
		"lost":       {a, b},
		"lost first": {c},
		"duplicate":  {a, b, b, c},
		"reordered":  {a, c, b},
		"changed":    {a, b, {hash: 4}},
		"log time":   {a, b, {hash: 3, log: 1}},
		"too many":   {a, a, a, b, c},
	} {
		if matchSuffix(sent, got, 2) == nil {
			t.Errorf("%s: matchSuffix accepts %v for %v", name, got, sent)
		}
	}
	if err := matchSuffix(sent, []item{a, b, c}, 2); err != nil {
		t.Error(err)
	}
	for name, got := range map[string][]item{
		"duplicate": {b, b},
		"reordered": {c, b},
		"unknown":   {{hash: 4}},
	} {
		if _, err := matchSubsequence(sent, got); err == nil {
			t.Errorf("%s: matchSubsequence accepts %v for %v", name, got, sent)
		}
	}
	if n, err := matchSubsequence(sent, []item{a, c}); n != 2 || err != nil {
		t.Errorf("got %d, %v", n, err)
	}
}
