package foxglove

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/live/transport"
	"github.com/goatnote-inc/robocache/live/transport/transporttest"
)

const (
	info      = `{"op":"serverInfo","name":"test","capabilities":[]}`
	advertise = `{"op":"advertise","channels":[{"id":7,"topic":"/a","encoding":"json",` +
		`"schemaName":"T","schema":"{}"}]}`
)

// run runs a transport of an address until receive or an error ends it. It returns the error that
// Run reported last.
func run(
	t *testing.T,
	address string,
	configure func(*Transport),
	receive func(*transport.Message),
	until func(reported error) bool,
) {
	t.Helper()
	opened, err := Open("foxglove://" + address)
	if err != nil {
		t.Fatal(err)
	}
	tr := opened.(*Transport)
	if configure != nil {
		configure(tr)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	var last error
	tr.OnError(func(err error) {
		if last = err; until(err) {
			cancel()
		}
	})
	err = tr.Run(ctx, []string{"/a"}, func(m *transport.Message) {
		if receive != nil {
			receive(m)
			if until(nil) {
				cancel()
			}
		}
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("Run returned %v; the last reported error is %v", err, last)
	}
}

// TestHostileServer sends frames that break the protocol on the first connection. The error must
// have its class, and the next connection must work.
func TestHostileServer(t *testing.T) {
	text := func(lines ...string) func(context.Context, *websocket.Conn) {
		return func(ctx context.Context, conn *websocket.Conn) {
			for _, line := range lines {
				conn.Write(ctx, websocket.MessageText, []byte(line))
			}
			<-ctx.Done()
		}
	}
	binaryFrame := func(frame []byte) func(context.Context, *websocket.Conn) {
		return func(ctx context.Context, conn *websocket.Conn) {
			conn.Write(ctx, websocket.MessageText, []byte(info))
			conn.Write(ctx, websocket.MessageText, []byte(advertise))
			conn.Write(ctx, websocket.MessageBinary, frame)
			<-ctx.Done()
		}
	}
	channels := func(n int, topic string) string {
		list := make([]string, n)
		for i := range list {
			list[i] = fmt.Sprintf(`{"id":%d,"topic":%q,"schema":%q}`, i, topic,
				strings.Repeat("x", 100))
		}
		return `{"op":"advertise","channels":[` + strings.Join(list, ",") + `]}`
	}
	small := limits{message: 100_000, text: 50_000, channels: 100, schemas: 5000}
	for name, test := range map[string]struct {
		handle func(context.Context, *websocket.Conn)
		want   error
	}{
		"damaged JSON":     {text(info, `{"op":"advertise","channels":[`), robocache.ErrMalformed},
		"no object":        {text(`[]`), robocache.ErrMalformed},
		"no op":            {text(`{}`), robocache.ErrMalformed},
		"wrong types":      {text(`{"op":"advertise","channels":7}`), robocache.ErrMalformed},
		"negative channel": {text(`{"op":"unadvertise","channelIds":[-1]}`), robocache.ErrMalformed},
		"huge number":      {text(`{"op":"unadvertise","channelIds":[1e30]}`), robocache.ErrMalformed},
		"duplicate id": {
			text(advertise, strings.Replace(advertise, `"{}"`, `"{} "`, 1)),
			robocache.ErrMalformed,
		},
		"duplicate id of another topic": {
			text(advertise, strings.Replace(advertise, `/a`, `/b`, 1)),
			robocache.ErrMalformed,
		},
		"damaged base64": {
			text(`{"op":"advertise","channels":[{"id":1,"topic":"/a","encoding":"protobuf",` +
				`"schema":"%"}]}`),
			robocache.ErrMalformed,
		},
		"long list": {
			text(`{"op":"unadvertise","channelIds":[` + strings.Repeat("0,", maxListed) + `0]}`),
			robocache.ErrResourceLimit,
		},
		"many channels":        {text(channels(101, "/b")), robocache.ErrResourceLimit},
		"large schemas":        {text(channels(50, "/a")), robocache.ErrResourceLimit},
		"large text":           {text(strings.Repeat(" ", 50_001)), robocache.ErrResourceLimit},
		"oversized frame":      {binaryFrame(make([]byte, 100_001)), robocache.ErrResourceLimit},
		"empty frame":          {binaryFrame(nil), robocache.ErrMalformed},
		"short message":        {binaryFrame([]byte{opMessage, 0, 0, 0, 0}), robocache.ErrMalformed},
		"short time":           {binaryFrame([]byte{opTime, 0}), robocache.ErrMalformed},
		"unknown subscription": {binaryFrame(messageFrame(1, 0, nil)), robocache.ErrMalformed},
		"negative time":        {binaryFrame(messageFrame(0, -1, nil)), robocache.ErrMalformed},
		"error of the server": {
			text(`{"op":"status","level":2,"message":"bad"}`),
			robocache.ErrTemporary,
		},
		"closed": {
			func(_ context.Context, conn *websocket.Conn) {
				conn.Close(websocket.StatusGoingAway, "restart")
			},
			robocache.ErrTemporary,
		},
		"endless frame": {
			func(ctx context.Context, conn *websocket.Conn) {
				w, _ := conn.Writer(ctx, websocket.MessageBinary)
				block := make([]byte, 4096)
				for range 1000 {
					if _, err := w.Write(block); err != nil {
						break
					}
				}
				<-ctx.Done()
			},
			robocache.ErrResourceLimit,
		},
	} {
		t.Run(name, func(t *testing.T) {
			address := freeAddress(t)
			var connections atomic.Int32
			stop, err := serveFunc(address, subprotocols[0],
				func(ctx context.Context, conn *websocket.Conn) {
					if connections.Add(1) == 1 {
						test.handle(drain(ctx, conn), conn)
						return
					}
					conn.Write(ctx, websocket.MessageText, []byte(info))
					conn.Write(ctx, websocket.MessageText, []byte(advertise))
					_, _, _ = conn.Read(ctx) // subscribe
					conn.Write(ctx, websocket.MessageBinary, messageFrame(0, 5, []byte("x")))
					<-drain(ctx, conn).Done()
				})
			if err != nil {
				t.Fatal(err)
			}
			defer stop()
			var reported error
			run(t, address,
				func(tr *Transport) { tr.limits = small },
				func(m *transport.Message) {
					if string(m.Data) != "x" || m.Log != 5 ||
						m.Channel.SchemaEncoding != "jsonschema" {
						t.Errorf("got %+v of %+v", m, m.Channel)
					}
				},
				func(err error) bool {
					if err != nil && reported == nil {
						reported = err
					}
					if err == nil || connections.Load() == 1 && name == "error of the server" {
						return true // a message, or a report without a new connection
					}
					return false
				})
			if !errors.Is(reported, test.want) {
				t.Errorf("reported %v, want %v", reported, test.want)
			}
			if !strings.Contains(fmt.Sprint(reported), address) {
				if name != "error of the server" {
					t.Errorf("%v does not name the server", reported)
				}
			}
		})
	}
}

// TestNoProtocol connects to servers that speak another protocol, or none.
func TestNoProtocol(t *testing.T) {
	address := freeAddress(t)
	var ended atomic.Int32
	stop, err := serveFunc(address, "other", func(ctx context.Context, conn *websocket.Conn) {
		if <-drain(ctx, conn).Done(); ctx.Err() == nil {
			ended.Add(1)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	var reported error
	keep := func(err error) bool { reported = err; return true }
	run(t, address, nil, nil, keep)
	for deadline := time.Now().Add(5 * time.Second); ended.Load() == 0; {
		if time.Now().After(deadline) {
			t.Fatal("the connection stays open")
		}
		time.Sleep(time.Millisecond)
	}
	stop()
	if !errors.Is(reported, robocache.ErrUnsupported) {
		t.Errorf("reported %v", reported)
	}
	for _, answer := range []string{
		"",
		"HTTP/1.1 404 Not Found\r\n\r\n",
		"HTTP/1.1 301 Moved\r\nLocation: ws://127.0.0.1:1/\r\n\r\n",
		"SSH-2.0-OpenSSH\r\n",
	} {
		listener, err := net.Listen("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			for {
				conn, err := listener.Accept()
				if err != nil {
					return
				}
				io.WriteString(conn, answer)
				conn.Close()
			}
		}()
		run(t, address, nil, nil, keep)
		listener.Close()
		if !errors.Is(reported, robocache.ErrTemporary) {
			t.Errorf("%q: reported %v", answer, reported)
		}
	}
}

// TestSilentServer checks that a connection ends if the server does not answer pings, and that it
// does not end if the server answers them.
func TestSilentServer(t *testing.T) {
	address := freeAddress(t)
	var connections atomic.Int32
	stop, err := serveFunc(address, subprotocols[0],
		func(ctx context.Context, conn *websocket.Conn) {
			if connections.Add(1) == 1 {
				<-ctx.Done() // does not read, so pings are not answered
				return
			}
			<-drain(ctx, conn).Done()
		})
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	start := time.Now()
	run(t, address, func(tr *Transport) { tr.silence = 50 * time.Millisecond }, nil,
		func(error) bool { return true })
	if passed := time.Since(start); connections.Load() != 1 || passed > 5*time.Second {
		t.Errorf("%d connections, the error came after %v", connections.Load(), passed)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	tr, _ := Open("foxglove://" + address)
	tr.(*Transport).silence = 20 * time.Millisecond
	tr.(*Transport).OnError(func(err error) { t.Error(err) })
	tr.Run(ctx, []string{"/a"}, nil)
	if n := connections.Load(); n != 2 {
		t.Errorf("%d connections, want 2", n)
	}
}

// TestChannelReturns checks that messages of a removed channel are ignored, and that the channel
// is received again when it returns.
func TestChannelReturns(t *testing.T) {
	var got []string
	s := newSession(defaultLimits, []string{"/a"}, func(m *transport.Message) {
		got = append(got, fmt.Sprint(m.Channel.Topic, m.Log, string(m.Data)))
	}, nil)
	text := func(line, want string) {
		t.Helper()
		reply, err := s.handleText([]byte(line))
		if err != nil || string(reply) != want {
			t.Errorf("%s: got %s, %v, want %s", line, reply, err, want)
		}
	}
	frame := func(number uint32, log int64) {
		t.Helper()
		if err := s.handleBinary(messageFrame(number, log, []byte("x")), 0); err != nil {
			t.Error(err)
		}
	}
	text(info, "")
	text(`{"op":"parameterValues","parameters":[],"channels":"of another type"}`, "")
	text(advertise, `{"op":"subscribe","subscriptions":[{"id":0,"channelId":7}]}`)
	text(advertise, "") // the same channel again
	frame(0, 1)
	text(`{"op":"unadvertise","channelIds":[7,8]}`, "")
	frame(0, 2)
	text(advertise, `{"op":"subscribe","subscriptions":[{"id":1,"channelId":7}]}`)
	frame(0, 3)
	frame(1, 4)
	if err := s.handleBinary([]byte{opTime, 1, 2, 3, 4, 5, 6, 7, 8}, 0); err != nil {
		t.Error(err)
	}
	if err := s.handleBinary([]byte{99}, 0); err != nil {
		t.Error(err) // an opcode of a later version
	}
	if want := "[/a1x /a4x]"; fmt.Sprint(got) != want {
		t.Errorf("got %v, want %s", got, want)
	}
	if s.described != len("/a")+len("T")+len("json")+len("jsonschema")+len("{}") {
		t.Errorf("%d bytes of descriptions", s.described)
	}
	s.next = math.MaxUint32
	text(`{"op":"unadvertise","channelIds":[7]}`, "")
	if _, err := s.handleText([]byte(advertise)); !errors.Is(err, robocache.ErrResourceLimit) {
		t.Errorf("the numbers of subscriptions wrapped around: %v", err)
	}
}

func TestBinarySchema(t *testing.T) {
	s := newSession(defaultLimits, []string{"/p"}, nil, nil)
	_, err := s.handleText([]byte(`{"op":"advertise","channels":[{"id":1,"topic":"/p",` +
		`"encoding":"protobuf","schemaName":"a.B","schema":"AAEC/w=="}]}`))
	if err != nil {
		t.Fatal(err)
	}
	want := transport.Channel{
		Topic: "/p", Type: "a.B", Encoding: "protobuf", SchemaEncoding: "protobuf",
		Schema: "\x00\x01\x02\xff",
	}
	if got := s.advertised[1].channel; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestURIs(t *testing.T) {
	for uri, want := range map[string]string{
		"foxglove://robot":          "ws://robot:8765",
		"foxglove://robot:9000/a":   "ws://robot:9000/a",
		"foxgloves://robot":         "wss://robot:8765",
		"foxglove://[fe80::1]:9000": "ws://[fe80::1]:9000",
	} {
		tr, err := transport.Open(uri)
		if err != nil {
			t.Error(err)
		} else if got := tr.(*Transport).url; got != want {
			t.Errorf("%s: got %s, want %s", uri, got, want)
		}
	}
	for _, uri := range []string{
		"foxglove://", "foxglove://user:secret@robot", "foxglove://robot?x=1", "foxglove://robot:x",
	} {
		_, err := transport.Open(uri)
		if !errors.Is(err, robocache.ErrMisuse) || strings.Contains(fmt.Sprint(err), "secret") {
			t.Errorf("%s: %v", uri, err)
		}
	}
}

// TestTLS receives from the SDK over TLS. A certificate that this host does not trust is an error.
func TestTLS(t *testing.T) {
	rec := transporttest.Synthetic(t)
	dir := t.TempDir()
	certificate, key := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	writeCertificate(t, certificate, key)
	server := sdkServer(t, rec, "foxgloves", certificate, key)
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	defer server.Stop()
	opened, err := transport.Open(server.URI())
	if err != nil {
		t.Fatal(err)
	}
	tr := opened.(*Transport)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	var reported error
	tr.OnError(func(err error) {
		reported = err
		pem, _ := os.ReadFile(certificate)
		tr.tls = &tls.Config{ServerName: "127.0.0.1", RootCAs: x509.NewCertPool()}
		tr.tls.RootCAs.AppendCertsFromPEM(pem)
	})
	ticker := time.AfterFunc(0, func() {
		for ctx.Err() == nil {
			server.Publish(0)
			time.Sleep(50 * time.Millisecond)
		}
	})
	defer ticker.Stop()
	count := 0
	err = tr.Run(ctx, []string{rec.Messages[0].Channel.Topic}, func(m *transport.Message) {
		if count++; !bytes.Equal(m.Data, rec.Messages[0].Data) {
			t.Errorf("got %q", m.Data)
		}
		cancel()
	})
	if !errors.Is(err, context.Canceled) || count == 0 {
		t.Errorf("%d messages, %v", count, err)
	}
	var unknown x509.UnknownAuthorityError
	if !errors.As(reported, &unknown) {
		t.Errorf("reported %v, want %T", reported, unknown)
	}
}

// FuzzSession passes frames to a session. The first byte of a frame is its kind, and the next two
// are its length.
func FuzzSession(f *testing.F) {
	frames := func(list ...string) (out []byte) {
		for _, frame := range list {
			kind := byte(0)
			if strings.HasPrefix(frame, "{") {
				kind = 1
			}
			out = append(out, kind, byte(len(frame)), byte(len(frame)>>8))
			out = append(out, frame...)
		}
		return out
	}
	f.Add(frames(info, advertise, string(messageFrame(0, 3, []byte("data")))))
	f.Add(frames(advertise, `{"op":"unadvertise","channelIds":[7]}`, advertise,
		string(messageFrame(1, 3, nil)), "\x02\x00\x00\x00\x00\x00\x00\x00\x00"))
	f.Add(frames(`{"op":"status","level":2,"message":"m"}`))
	f.Add(frames(strings.ReplaceAll(advertise, "json", "protobuf")))
	f.Fuzz(func(t *testing.T, b []byte) {
		lim := limits{channels: 3, schemas: 100}
		received := 0
		s := newSession(lim, []string{"/a"}, func(m *transport.Message) {
			if received++; m.Channel.Topic != "/a" || m.Log < 0 {
				t.Errorf("got %+v", m)
			}
		}, func(error) {})
		for len(b) >= 3 {
			kind, n := b[0], min(int(b[1])|int(b[2])<<8, len(b)-3)
			frame := b[3 : 3+n]
			b = b[3+n:]
			var err error
			if kind == 1 {
				_, err = s.handleText(frame)
			} else {
				err = s.handleBinary(frame, 1)
			}
			if err != nil {
				var typed *robocache.Error
				if !errors.As(err, &typed) || errors.Is(err, robocache.ErrInternal) {
					t.Fatalf("%q: %v", frame, err)
				}
				return // the connection ends
			}
			if len(s.advertised) > lim.channels || s.described > lim.schemas ||
				len(s.subscriptions) > len(s.advertised) {
				t.Fatalf("%d channels, %d subscriptions, %d bytes", len(s.advertised),
					len(s.subscriptions), s.described)
			}
		}
	})
}
