// Package foxglove receives the messages of a server of the Foxglove WebSocket protocol, such as
// foxglove_bridge on a ROS 2 robot, or a program with the Foxglove SDK.
//
// The URI is foxglove://host:port, or foxgloves://host:port over TLS. The default port is 8765. If
// several channels have a requested topic, all of them are received.
//
// A server drops messages if the network or this process is too slow. If a connection is lost, or
// the server does not answer a ping, Run connects again, after 100 ms at first and at most after
// about 2 s. Services, parameters and assets of the protocol are not used. The time that a server
// with simulated time announces is ignored: messages carry their log time.
package foxglove

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/crash"
	"github.com/goatnote-inc/robocache/live/transport"
)

const (
	defaultPort  = "8765"
	firstDelay   = 100 * time.Millisecond // before the second attempt to connect
	longestDelay = 2 * time.Second
	// A connection that lasted for stableTime resets the delay.
	stableTime = 5 * time.Second
	closeLimit = 100 * time.Millisecond // for the closing handshake
)

// subprotocols lists the supported versions of the protocol, the preferred one first. They have the
// same messages.
var subprotocols = []string{"foxglove.sdk.v1", "foxglove.websocket.v1"}

func init() {
	transport.Register("foxglove", Open)
	transport.Register("foxgloves", Open)
}

// Open returns the transport of a server.
func Open(uri string) (transport.Transport, error) {
	u, err := url.Parse(uri)
	if err != nil || u.Hostname() == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return nil, robocache.Misuse("live", nil, "").
			Expected("foxglove://host:port", robocache.Redact(uri))
	}
	t := &Transport{
		uri:     robocache.Redact(uri),
		address: net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), defaultPort)),
		limits:  defaultLimits,
		silence: 5 * time.Second,
	}
	target := url.URL{Scheme: "ws", Host: t.address, Path: u.Path}
	if u.Scheme == "foxgloves" {
		target.Scheme = "wss"
		t.tls = &tls.Config{ServerName: u.Hostname()}
	}
	t.url = target.String()
	return t, nil
}

// Transport receives the messages of a server.
type Transport struct {
	transport.Errors
	uri, url, address string
	tls               *tls.Config // nil without TLS
	limits            limits
	// After silence without data, the server is pinged. Twice this time later, the connection ends.
	silence time.Duration
}

// Run implements transport.Transport.
func (t *Transport) Run(
	ctx context.Context,
	topics []string,
	receive func(*transport.Message),
) (err error) {
	defer crash.Recover("live foxglove", &err)
	for delay := firstDelay; ; delay = min(2*delay, longestDelay) {
		start := time.Now()
		err := t.runConnection(ctx, newSession(t.limits, topics, receive, t.Recovered))
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if errors.Is(err, robocache.ErrInternal) {
			return err
		}
		if time.Since(start) > stableTime {
			delay = firstDelay
			t.Recovered(nil)
		}
		t.Recovered(robocache.At(err, robocache.Where{"server": t.uri}))
		select {
		case <-ctx.Done():
		case <-time.After(delay/2 + rand.N(delay)):
		}
	}
}

// runConnection runs one connection until it is lost or ctx is canceled.
func (t *Transport) runConnection(ctx context.Context, s *session) error {
	tcp, conn, err := t.dialServer(ctx)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	var watch sync.WaitGroup
	defer watch.Wait()
	defer cancel()
	received := &countingReader{}
	watch.Go(func() {
		t.waitForSilence(ctx, conn, &received.count)
		// Closing says goodbye to the server, which may not answer.
		tcp.SetDeadline(time.Now().Add(closeLimit))
		conn.Close(websocket.StatusNormalClosure, "")
		tcp.Close()
	})
	var buffer []byte
	for {
		// The goroutine above ends the read if ctx is canceled. A context here would allocate
		// for each frame.
		kind, r, err := conn.Reader(context.Background())
		if err != nil {
			return connectionLost(err)
		}
		limit := t.limits.message
		if kind == websocket.MessageText {
			limit = t.limits.text
		}
		received.source = r
		buffer, err = readFrame(received, buffer, limit)
		if err != nil {
			return err
		}
		if kind == websocket.MessageBinary {
			err = s.handleBinary(buffer, time.Now().UnixNano())
		} else {
			var reply []byte
			if reply, err = s.handleText(buffer); err == nil && reply != nil {
				err = t.sendText(ctx, conn, reply)
			}
		}
		if err != nil {
			return err
		}
	}
}

// dialServer connects to the server. The caller must close the TCP connection. This ends all
// operations of the WebSocket connection.
func (t *Transport) dialServer(ctx context.Context) (net.Conn, *websocket.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	// net/http would dial in a goroutine that outlives ctx.
	tcp, err := (&net.Dialer{}).DialContext(ctx, "tcp", t.address)
	if err != nil {
		return nil, nil, noConnection(err)
	}
	stream := tcp
	if t.tls != nil {
		secure := tls.Client(tcp, t.tls)
		err = secure.HandshakeContext(ctx)
		stream = secure
	}
	var conn *websocket.Conn
	if err == nil {
		conn, err = t.upgradeStream(ctx, stream)
	}
	if err != nil {
		tcp.Close()
		return nil, nil, noConnection(err)
	}
	if conn.Subprotocol() == "" {
		tcp.Close()
		return nil, nil, robocache.Unsupported("live foxglove", nil, "version of the protocol").
			Expected(subprotocols[0]+" or "+subprotocols[1], "none of them")
	}
	conn.SetReadLimit(-1) // readFrame checks the limit
	return tcp, conn, nil
}

func noConnection(err error) error {
	return robocache.Temporary("live foxglove", nil, "no connection").WithCause(err)
}

// upgradeStream performs the handshake of WebSocket on stream.
func (t *Transport) upgradeStream(ctx context.Context, stream net.Conn) (*websocket.Conn, error) {
	useStream := func(context.Context, string, string) (net.Conn, error) { return stream, nil }
	conn, _, err := websocket.Dial(ctx, t.url, &websocket.DialOptions{
		Subprotocols: subprotocols,
		HTTPClient: &http.Client{
			Transport: &http.Transport{
				DialContext:       useStream,
				DialTLSContext:    useStream,
				DisableKeepAlives: true,
			},
			CheckRedirect: func(*http.Request, []*http.Request) error {
				return http.ErrUseLastResponse // the connection serves one request
			},
		},
	})
	return conn, err
}

// sendText sends a text message. The server must accept it within ten seconds.
func (t *Transport) sendText(ctx context.Context, conn *websocket.Conn, text []byte) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if err := conn.Write(ctx, websocket.MessageText, text); err != nil {
		return connectionLost(err)
	}
	return nil
}

func connectionLost(err error) error {
	return robocache.Temporary("live foxglove", nil, "the connection was lost").WithCause(err)
}

// waitForSilence returns if ctx is canceled, or if the server neither sends data nor answers a ping.
func (t *Transport) waitForSilence(
	ctx context.Context,
	conn *websocket.Conn,
	received *atomic.Int64,
) {
	tick := time.NewTicker(t.silence)
	defer tick.Stop()
	for {
		before := received.Load()
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if received.Load() != before {
			continue
		}
		limited, cancel := context.WithTimeout(ctx, 2*t.silence)
		err := conn.Ping(limited)
		cancel()
		if err != nil && received.Load() == before {
			return
		}
	}
}

// countingReader counts the bytes that are read.
type countingReader struct {
	source io.Reader
	count  atomic.Int64
}

func (r *countingReader) Read(p []byte) (int, error) {
	n, err := r.source.Read(p)
	r.count.Add(int64(n))
	return n, err
}

// readFrame reads a frame into buffer, which grows as the bytes arrive, up to limit.
func readFrame(r io.Reader, buffer []byte, limit int64) ([]byte, error) {
	buffer = buffer[:0]
	for {
		if len(buffer) == cap(buffer) {
			larger := make([]byte, len(buffer), max(64<<10, 2*cap(buffer)))
			copy(larger, buffer)
			buffer = larger
		}
		n, err := r.Read(buffer[len(buffer):cap(buffer)])
		buffer = buffer[:len(buffer)+n]
		if int64(len(buffer)) > limit {
			return buffer, tooLarge("a frame", limit)
		}
		if errors.Is(err, io.EOF) {
			return buffer, nil
		}
		if err != nil {
			return buffer, connectionLost(err)
		}
	}
}
