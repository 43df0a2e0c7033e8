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

// Options are the manners of a Server. The zero value is a server as fast as it can be.
type Options struct {
	Latency        time.Duration // before each answer
	BytesPerSecond int64         // of all bodies together; 0 = no bound
	// Strike answers in place of the server where it returns true; n counts requests from 1. nil =
	// never.
	Strike func(n int64, w http.ResponseWriter, r *http.Request) bool
}

// Server serves a folder until Close.
type Server struct {
	URL string // http://127.0.0.1:PORT

	opt             Options
	root            *os.Root
	srv             *http.Server
	stop            context.CancelFunc
	served          chan struct{}
	requests, bytes atomic.Int64
	now, most       atomic.Int64 // requests under way
	pace            pace

	mu       sync.Mutex
	closed   bool
	handlers sync.WaitGroup
}

// Serve starts a server over dir.
func Serve(dir string, opt Options) (*Server, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, robocache.NewError(robocache.Classify(err), "serve", robocache.Where{"dir": dir}, "").
			WithCause(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		root.Close()
		return nil, robocache.NewError(robocache.Classify(err), "serve", nil, "").WithCause(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	s := &Server{
		URL:    "http://" + l.Addr().String(),
		opt:    opt,
		root:   root,
		stop:   stop,
		served: make(chan struct{}),
		pace:   pace{rate: opt.BytesPerSecond},
	}
	s.srv = &http.Server{
		Handler:           s,
		ReadHeaderTimeout: time.Minute,
		BaseContext:       func(net.Listener) context.Context { return ctx },
	}
	go func() {
		defer close(s.served)
		_ = s.srv.Serve(l) // ends with ErrServerClosed
	}()
	return s, nil
}

// Requests is the number of requests so far.
func (s *Server) Requests() int64 { return s.requests.Load() }

// MostAtOnce is the largest number of requests that were under way at the same time since it was
// last asked.
func (s *Server) MostAtOnce() int64 { return s.most.Swap(0) }

// Bytes is the number of body bytes sent so far.
func (s *Server) Bytes() int64 { return s.bytes.Load() }

// Close ends the server. Requests that wait are cut off.
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

// ServeHTTP answers one request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		panic(http.ErrAbortHandler) // no answer, not an empty one
	}
	s.handlers.Add(1)
	s.mu.Unlock()
	defer s.handlers.Done()
	n := s.requests.Add(1)
	now := s.now.Add(1)
	defer s.now.Add(-1)
	for most := s.most.Load(); now > most && !s.most.CompareAndSwap(most, now); most = s.most.Load() {
	}
	if !sleep(r.Context(), s.opt.Latency) {
		panic(http.ErrAbortHandler)
	}
	if s.opt.Strike != nil && s.opt.Strike(n, w, r) {
		return
	}
	out := &body{ResponseWriter: w, s: s, ctx: r.Context()}
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
	// or net/http reads the file's head to guess one
	h.Set("Content-Type", "application/octet-stream")
	http.ServeContent(out, r, "", info.ModTime(), f)
}

// body counts and paces what goes out.
type body struct {
	http.ResponseWriter
	s   *Server
	ctx context.Context
}

// grain is how much goes out at a time where the bandwidth is bounded.
const grain = 16 << 10

func (b *body) Write(p []byte) (done int, err error) {
	for len(p) > 0 && err == nil {
		n := len(p)
		if b.s.opt.BytesPerSecond > 0 {
			n = min(n, grain)
			if !b.s.pace.take(b.ctx, n) {
				return done, b.ctx.Err()
			}
		}
		var k int
		b.s.bytes.Add(int64(n)) // before: who has the last byte may look at the count at once
		k, err = b.ResponseWriter.Write(p[:n])
		b.s.bytes.Add(int64(k - n))
		done, p = done+k, p[k:]
	}
	return done, err
}

// ReadFrom lets the kernel copy from file to socket where nothing has to be paced: the server
// shares the machine with what it measures.
func (b *body) ReadFrom(r io.Reader) (int64, error) {
	direct, ok := b.ResponseWriter.(io.ReaderFrom)
	if !ok || b.s.opt.BytesPerSecond > 0 {
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

// Unwrap gives http.ResponseController the writer below.
func (b *body) Unwrap() http.ResponseWriter { return b.ResponseWriter }

// pace hands out a stream of bytes at a rate: each taker waits until the bytes before its own have
// had their time.
type pace struct {
	rate int64
	mu   sync.Mutex
	free time.Time // when the line is free
}

func (p *pace) take(ctx context.Context, n int) bool {
	p.mu.Lock()
	now := time.Now()
	if p.free.Before(now) {
		p.free = now
	}
	p.free = p.free.Add(time.Duration(float64(n) / float64(p.rate) * float64(time.Second)))
	wait := p.free.Sub(now)
	p.mu.Unlock()
	return sleep(ctx, wait)
}

func sleep(ctx context.Context, d time.Duration) bool {
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
