// Package transport receives the messages of a running robot.
//
// # Contract
//
//	transport.T1  Run delivers the messages of one channel in the order in which they were sent,
//	              each at most once, with the bytes that were sent.
//	transport.T2  Run calls receive from one goroutine at a time. receive does not block.
//	transport.T3  If the connection is lost, Run connects again until ctx is canceled. Messages that
//	              were sent in between may be lost. A restarted publisher is no error.
//	transport.T4  What a peer sends is never trusted: sizes are checked against a limit before
//	              memory is allocated. A message that breaks the protocol ends the connection, and
//	              Run connects again.
//	transport.T5  Run returns ctx's error after cancellation, and no goroutine outlives it. It
//	              returns another error only if no further attempt can succeed.
package transport

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/goatnote-inc/robocache"
)

// Channel describes a topic as its publisher announces it.
type Channel struct {
	Topic          string // for example "/joint_states"
	Type           string // for example "sensor_msgs/msg/JointState"
	Encoding       string // of messages: "cdr", "json"
	SchemaEncoding string // "ros2msg", "ros2idl"; "" if the publisher announces no schema
	Schema         string
}

// Message is one message as received. The receiver must copy what it keeps: the message and its
// data are valid until the receiver returns.
type Message struct {
	Channel *Channel // the same pointer for all messages of a channel until it is announced again
	Data    []byte
	Log     int64 // ns; when the sender or a bridge logged the message; 0 if it states no time
	Arrival int64 // ns since the Unix epoch; when this process received the message
}

// Transport receives messages.
type Transport interface {
	// Run receives the messages of topics and calls receive for each. It blocks until ctx is
	// canceled, or until no further attempt can succeed. A topic need not exist yet.
	Run(ctx context.Context, topics []string, receive func(*Message)) error
}

// Reporter is an optional interface of transports.
type Reporter interface {
	// OnError sets a function that Run calls with each error from which it recovers, for example a
	// lost connection. fn must not block. OnError must be called before Run.
	OnError(fn func(error))
}

// Errors implements Reporter for a transport that embeds it.
type Errors struct {
	report func(error)
	last   string
}

// OnError implements Reporter.
func (e *Errors) OnError(fn func(error)) { e.report = fn }

// Recovered reports an error from which Run recovers. It omits an error with the text of the
// previous one. nil means that the transport works again.
func (e *Errors) Recovered(err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	if text != e.last && text != "" && e.report != nil {
		e.report(err)
	}
	e.last = text
}

var (
	registryLock sync.Mutex
	registry     = map[string]func(uri string) (Transport, error){}
)

// Register adds a transport for URIs that begin with scheme://. Packages of transports call it when
// they are imported.
func Register(scheme string, open func(uri string) (Transport, error)) {
	registryLock.Lock()
	defer registryLock.Unlock()
	registry[scheme] = open
}

// Open returns the transport of a URI. It connects to nothing.
func Open(uri string) (Transport, error) {
	scheme, _, _ := strings.Cut(uri, "://")
	registryLock.Lock()
	open := registry[scheme]
	known := slices.Sorted(maps.Keys(registry))
	registryLock.Unlock()
	if open == nil {
		return nil, robocache.Misuse("live", nil, "no transport has the scheme of %s",
			robocache.Redact(uri)).Expected(strings.Join(known, "://, ")+"://", "")
	}
	return open(uri)
}
