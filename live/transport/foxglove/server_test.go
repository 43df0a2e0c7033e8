package foxglove

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/binary"
	"encoding/json"
	"encoding/pem"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/goatnote-inc/robocache/internal/tests/realdata"
	"github.com/goatnote-inc/robocache/live/livetest"
	"github.com/goatnote-inc/robocache/live/transport/transporttest"
)

// freeAddress returns an address of this host that nothing listens on.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// serveFunc serves WebSocket connections at an address until stop is called. stop waits for the
// handlers, whose contexts are canceled.
func serveFunc(
	address string,
	subprotocol string,
	handle func(ctx context.Context, conn *websocket.Conn),
) (stop func(), err error) {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	var handlers sync.WaitGroup
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, err := websocket.Accept(w, r, &websocket.AcceptOptions{
			Subprotocols: []string{subprotocol},
		})
		if err != nil {
			return
		}
		handlers.Add(1)
		defer handlers.Done()
		defer conn.CloseNow()
		handle(ctx, conn)
	})}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		server.Serve(listener)
	}()
	return func() {
		cancel()
		server.Close()
		<-ended
		handlers.Wait()
	}, nil
}

// drain reads until the connection ends, which cancels the returned context.
func drain(ctx context.Context, conn *websocket.Conn) context.Context {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		defer cancel()
		for {
			if _, _, err := conn.Read(ctx); err != nil {
				return
			}
		}
	}()
	return ctx
}

// publisher is a server in this process.
type publisher struct {
	rec     *transporttest.Recording
	address string
	stop    func()

	lock    sync.Mutex
	clients map[*client]bool
}

// client is a connection to a publisher.
type client struct {
	frames        chan []byte
	subscriptions map[uint64]uint32 // by channel
}

func (p *publisher) URI() string { return "foxglove://" + p.address }

func (p *publisher) Start() (err error) {
	p.clients = map[*client]bool{}
	p.stop, err = serveFunc(p.address, subprotocols[1], p.handle)
	return err
}

func (p *publisher) Stop() error {
	if p.stop != nil {
		p.stop()
		p.stop = nil
	}
	return nil
}

// advertisement returns the message that advertises all channels.
func (p *publisher) advertisement() []byte {
	var list []advertisedChannel
	for i, c := range p.rec.Channels {
		list = append(list, advertisedChannel{
			ID:             uint64(i) + 100,
			Topic:          c.Topic,
			Encoding:       c.Encoding,
			SchemaName:     c.Type,
			Schema:         c.Schema,
			SchemaEncoding: c.SchemaEncoding,
		})
	}
	text, _ := json.Marshal(map[string]any{"op": "advertise", "channels": list})
	return text
}

func (p *publisher) handle(ctx context.Context, conn *websocket.Conn) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	c := &client{frames: make(chan []byte, 100_000), subscriptions: map[uint64]uint32{}}
	p.lock.Lock()
	p.clients[c] = true
	p.lock.Unlock()
	defer func() {
		p.lock.Lock()
		defer p.lock.Unlock()
		delete(p.clients, c)
	}()
	conn.Write(ctx, websocket.MessageText, []byte(`{"op":"serverInfo","capabilities":["time"]}`))
	conn.Write(ctx, websocket.MessageText, p.advertisement())
	var writer sync.WaitGroup
	defer writer.Wait()
	defer cancel()
	writer.Go(func() {
		for {
			select {
			case <-ctx.Done():
				return
			case frame := <-c.frames:
				if conn.Write(ctx, websocket.MessageBinary, frame) != nil {
					return
				}
			}
		}
	})
	for {
		_, text, err := conn.Read(ctx)
		if err != nil {
			return
		}
		var request struct{ Subscriptions []requestedSubscription }
		if json.Unmarshal(text, &request) != nil {
			return
		}
		p.lock.Lock()
		for _, s := range request.Subscriptions {
			c.subscriptions[s.Channel] = s.ID
		}
		p.lock.Unlock()
	}
}

func (p *publisher) Publish(i int) error {
	m := &p.rec.Messages[i]
	p.lock.Lock()
	defer p.lock.Unlock()
	for c := range p.clients {
		for k, channel := range p.rec.Channels {
			if number, ok := c.subscriptions[uint64(k)+100]; ok && channel == m.Channel {
				c.frames <- messageFrame(number, m.Log, m.Data)
			}
		}
	}
	return nil
}

// messageFrame returns a message frame.
func messageFrame(number uint32, log int64, data []byte) []byte {
	frame := binary.LittleEndian.AppendUint32([]byte{opMessage}, number)
	frame = binary.LittleEndian.AppendUint64(frame, uint64(log))
	return append(frame, data...)
}

func TestConformance(t *testing.T) {
	transporttest.Run(t, func(t *testing.T, rec *transporttest.Recording) transporttest.Server {
		return &publisher{rec: rec, address: freeAddress(t)}
	}, transporttest.Options{LogTimes: true})
}

// TestLiveObservations compares observations behind the transport with those of a Loader.
func TestLiveObservations(t *testing.T) {
	livetest.Run(t, func(t *testing.T, rec *transporttest.Recording) transporttest.Server {
		return &publisher{rec: rec, address: freeAddress(t)}
	})
}

// sdkServer returns a server of the Foxglove SDK. It skips the test if the SDK is not installed.
func sdkServer(
	t *testing.T,
	rec *transporttest.Recording,
	scheme string,
	extra ...string,
) transporttest.Server {
	t.Helper()
	python := filepath.Join(realdata.Root(t), ".venv", "bin", "python")
	if exec.Command(python, "-c", "import foxglove, mcap").Run() != nil {
		t.Skip("the Python packages foxglove-sdk and mcap are not installed (make prepare)")
	}
	_, port, _ := net.SplitHostPort(freeAddress(t))
	uri := scheme + "://127.0.0.1:" + port
	return transporttest.NewProcess(t, uri, func() *exec.Cmd {
		return exec.Command(
			python,
			append([]string{"testdata/server.py", rec.Path, port}, extra...)...)
	})
}

// TestSDK receives from the server of the Foxglove SDK, in another process.
func TestSDK(t *testing.T) {
	transporttest.Run(t, func(t *testing.T, rec *transporttest.Recording) transporttest.Server {
		return sdkServer(t, rec, "foxglove")
	}, transporttest.Options{LogTimes: true})
}

// writeCertificate writes a certificate of 127.0.0.1 that signs itself, and its key.
func writeCertificate(t *testing.T, certificate, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		NotAfter:              time.Now().Add(time.Hour),
		IPAddresses:           []net.IP{net.IPv4(127, 0, 0, 1)},
		IsCA:                  true,
		BasicConstraintsValid: true,
	}
	signed, err := x509.CreateCertificate(
		rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	encoded, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	for name, block := range map[string]*pem.Block{
		certificate: {Type: "CERTIFICATE", Bytes: signed},
		key:         {Type: "PRIVATE KEY", Bytes: encoded},
	} {
		if err := os.WriteFile(name, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}
