package loopback

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/goatnote-inc/robocache"
)

// Options configures a Server. The zero value is a server without delays.
type Options struct {
	Latency        time.Duration // before each response
	BytesPerSecond int64         // of all bodies together; 0 means unlimited
	// Strike may respond in place of the server, for example with an error. It returns true if it
	// did. n is the number of the request, from 1. It may be nil.
	Strike func(n int64, w http.ResponseWriter, r *http.Request) bool
}

// Server serves a folder until Close.
type Server struct {
	URL string // http://127.0.0.1:PORT

	options                    Options
	root                       *os.Root
	srv                        *http.Server
	stop                       context.CancelFunc
	served                     chan struct{}
	requests, bytes            atomic.Int64
	inProgress, mostInProgress atomic.Int64 // requests in progress
	pace                       pace

	mu       sync.Mutex
	closed   bool
	handlers sync.WaitGroup
}

// Serve starts a server for dir.
func Serve(dir string, opt Options) (*Server, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, robocache.NewError(robocache.Classify(err), "serve", robocache.Where{
			"dir": dir,
		}, "").
			WithCause(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		root.Close()
		return nil, robocache.NewError(robocache.Classify(err), "serve", nil, "").WithCause(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	s := &Server{
		URL:     "http://" + l.Addr().String(),
		options: opt,
		root:    root,
		stop:    stop,
		served:  make(chan struct{}),
		pace:    pace{rate: opt.BytesPerSecond},
	}
	s.srv = &http.Server{
		Handler:           s,
		ReadHeaderTimeout: time.Minute,
		BaseContext:       func(net.Listener) context.Context { return ctx },
	}
	go func() {
		defer close(s.served)
		_ = s.srv.Serve(l) // returns ErrServerClosed after Close
	}()
	return s, nil
}

// Requests returns the number of requests so far.
func (s *Server) Requests() int64 { return s.requests.Load() }

// MostAtOnce returns the largest number of concurrent requests since its last call.
func (s *Server) MostAtOnce() int64 { return s.mostInProgress.Swap(0) }

// Bytes returns the number of body bytes sent so far.
func (s *Server) Bytes() int64 { return s.bytes.Load() }

// Close stops the server. Waiting requests are canceled.
func (s *Server) Close() error {
	s.stop()
	err := s.srv.Close()
	<-s.served
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.handlers.Wait()
	s.root.Close()
	return err
}

// ServeHTTP handles one request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		panic(http.ErrAbortHandler) // sends no response instead of an empty one
	}
	s.handlers.Add(1)
	s.mu.Unlock()
	defer s.handlers.Done()
	n := s.requests.Add(1)
	now := s.inProgress.Add(1)
	defer s.inProgress.Add(-1)
	for { // raise the maximum to now
		most := s.mostInProgress.Load()
		if now <= most || s.mostInProgress.CompareAndSwap(most, now) {
			break
		}
	}
	if !sleepFor(r.Context(), s.options.Latency) {
		panic(http.ErrAbortHandler)
	}
	if s.options.Strike != nil && s.options.Strike(n, w, r) {
		return
	}
	out := &countedBody{ResponseWriter: w, s: s, ctx: r.Context()}
	f, err := s.root.Open(strings.TrimPrefix(r.URL.Path, "/"))
	if err != nil {
		http.NotFound(out, r)
		return
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		http.NotFound(out, r)
		return
	}
	h := w.Header()
	h.Set("ETag", fmt.Sprintf(`"%x-%x"`, info.ModTime().UnixNano(), info.Size()))
	// Without it, net/http would read the beginning of the file to guess the type.
	h.Set("Content-Type", "application/octet-stream")
	http.ServeContent(out, r, "", info.ModTime(), f)
}

// countedBody counts and delays the bytes of a response.
type countedBody struct {
	http.ResponseWriter
	s   *Server
	ctx context.Context
}

// writeGrain is the number of bytes per write if the bandwidth is limited.
const writeGrain = 16 << 10

func (b *countedBody) Write(p []byte) (done int, err error) {
	for len(p) > 0 && err == nil {
		n := len(p)
		if b.s.options.BytesPerSecond > 0 {
			n = min(n, writeGrain)
			if !b.s.pace.waitForTurn(b.ctx, n) {
				return done, b.ctx.Err()
			}
		}
		var k int
		// before Write, because a client may check the count as soon as it has the last byte
		b.s.bytes.Add(int64(n))
		k, err = b.ResponseWriter.Write(p[:n])
		b.s.bytes.Add(int64(k - n))
		done += k
		p = p[k:]
	}
	return done, err
}

// ReadFrom lets the kernel copy from the file to the socket if the bandwidth is unlimited, because
// the server shares the machine with the code that it measures.
func (b *countedBody) ReadFrom(r io.Reader) (int64, error) {
	direct, ok := b.ResponseWriter.(io.ReaderFrom)
	if !ok || b.s.options.BytesPerSecond > 0 {
		return io.Copy(struct{ io.Writer }{b}, r)
	}
	var all int64
	if l, ok := r.(*io.LimitedReader); ok {
		all = l.N
	}
	b.s.bytes.Add(all)
	n, err := direct.ReadFrom(r)
	b.s.bytes.Add(n - all)
	return n, err
}

// Unwrap returns the wrapped writer to http.ResponseController.
func (b *countedBody) Unwrap() http.ResponseWriter { return b.ResponseWriter }

// pace limits a stream of bytes to a rate. Each caller waits until the bytes before its own have
// been sent.
type pace struct {
	rate int64
	mu   sync.Mutex
	free time.Time // end of the time that is reserved
}

// waitForTurn reserves the time of n bytes and blocks until it has passed. It returns false if ctx
// ends first.
func (p *pace) waitForTurn(ctx context.Context, n int) bool {
	p.mu.Lock()
	now := time.Now()
	if p.free.Before(now) {
		p.free = now
	}
	p.free = p.free.Add(time.Duration(float64(n) / float64(p.rate) * float64(time.Second)))
	wait := p.free.Sub(now)
	p.mu.Unlock()
	return sleepFor(ctx, wait)
}

// sleepFor sleeps for d. It returns false if ctx ends first.
func sleepFor(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
