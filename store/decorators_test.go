package store_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/store"
	"github.com/goatnote-inc/robocache/store/tests/storetest"
)

func TestMemRegister(t *testing.T) {
	m := storetest.NewMem("reg/ister")
	m.Put("d/a", []byte("x"))
	for uri, name := range map[string]string{
		"mem://reg/ister":    "d/a",
		"mem://reg/ister/":   "d/a",
		"mem://reg/ister/d":  "a",
		"MEM://reg/ister/d/": "a",
	} {
		s, err := store.Open(uri)
		if err != nil {
			t.Fatalf("%s: %v", uri, err)
		}
		if b, err := store.ReadFile(t.Context(), s, name, 10); err != nil || string(b) != "x" {
			t.Errorf("%s: %q, %v", uri, b, err)
		}
		store.Close(s) // as a dataset does; the next Open must still find it
	}
	if _, err := store.Open("mem://reg/ister/../x"); !errors.Is(err, robocache.ErrMalformed) {
		t.Error(err)
	}
	m.Drop()
	if _, err := store.Open("mem://reg/ister"); !errors.Is(err, robocache.ErrNotFound) {
		t.Error(err)
	}
}

func TestCounter(t *testing.T) {
	m := storetest.NewMem(t.Name())
	t.Cleanup(m.Drop)
	m.Put("a", make([]byte, 100))
	c := storetest.Counting(m)
	f, err := c.Open(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	f.ReadAt(t.Context(), make([]byte, 30), 0)
	f.ReadAt(t.Context(), make([]byte, 30), 90) // fails: counts as a request, but reads no bytes
	store.ReadRanges(
		t.Context(),
		f,
		[]store.Span{{Off: 0, P: make([]byte, 5)}, {Off: 50, P: make([]byte, 5)}},
	)
	c.Stat(t.Context(), "a")
	c.List(t.Context(), "")
	w, _ := c.Create(t.Context(), "b")
	w.Write(make([]byte, 7))
	want := storetest.Counts{
		Opens:        1,
		Stats:        1,
		Lists:        1,
		Reads:        4,
		BytesRead:    40,
		Creates:      1,
		Writes:       1,
		BytesWritten: 7,
		OpenFiles:    1,
		UnderWrite:   1,
	}
	if got := c.Counts(); got != want || got.Requests() != 7 {
		t.Errorf("%+v, want %+v", got, want)
	}
	w.Commit()
	w.Abort()
	f.Close()
	f.Close()
	if got := c.Counts(); got.OpenFiles != 0 || got.UnderWrite != 0 || got.Commits != 1 {
		t.Errorf("%+v", got)
	}
	ro := storetest.Counting(serve(t, http.NotFoundHandler(), store.HTTPOptions{}))
	if _, err := ro.Create(t.Context(), "a"); !errors.Is(err, robocache.ErrUnsupported) {
		t.Error(err)
	}
}

func TestFaults(t *testing.T) {
	m := storetest.NewMem(t.Name())
	t.Cleanup(m.Drop)
	data := bytes.Repeat([]byte{1}, 100)
	m.Put("a", data)
	read := func(p *storetest.Plan) ([]byte, error) {
		f, err := storetest.Faulty(m, p).Open(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		b := make([]byte, 100)
		f.ReadAt(t.Context(), b[:10], 0)
		err = f.ReadAt(t.Context(), b, 0)
		if !p.Struck() {
			t.Error("not struck")
		}
		return b, err
	}
	second := func(f storetest.Fault) *storetest.Plan {
		return &storetest.Plan{Nth: 2, Ops: storetest.OpRead, Fault: f}
	}
	if _, err := read(second(storetest.FaultFail)); !errors.Is(err, robocache.ErrTemporary) {
		t.Error(err)
	}
	if b, err := read(second(storetest.FaultShort)); !errors.Is(err, io.ErrUnexpectedEOF) ||
		b[49] != 1 || b[50] != 0 {
		t.Error(b, err)
	}
	if b, err := read(second(storetest.FaultCorrupt)); err != nil || bytes.Equal(b, data) {
		t.Error(b, err)
	}
	if _, err := read(second(storetest.FaultChanged)); !errors.Is(err, store.ErrChanged) {
		t.Error(err)
	}
	slow := second(storetest.FaultDelay)
	slow.Delay = 20 * time.Millisecond
	start := time.Now()
	if b, err := read(slow); err != nil || !bytes.Equal(b, data) || time.Since(start) < slow.Delay {
		t.Error(b, err, time.Since(start))
	}
	slow.Delay, slow.Repeat = time.Hour, true
	f, err := storetest.Faulty(m, slow).Open(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer stop()
	if err := f.ReadAt(ctx, make([]byte, 1), 0); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	_, ok := storetest.Faulty(
		serve(t, http.NotFoundHandler(), store.HTTPOptions{}),
		second(0),
	).(store.Writable)
	if ok {
		t.Error("a read-only store became writable")
	}
}

// TestHTTPS checks that an unknown certificate is not a temporary error, and that a redirect may
// not leave https.
func TestHTTPS(t *testing.T) {
	var plain atomic.Int64
	other := httptest.NewServer(http.HandlerFunc(
		func(w http.ResponseWriter, r *http.Request) { plain.Add(1); sound(w, r) },
	))
	defer other.Close()
	srv := httptest.NewUnstartedServer(
		http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/away" {
				http.Redirect(w, r, other.URL+"/x", http.StatusFound)
				return
			}
			sound(w, r)
		}),
	)
	srv.Config.ErrorLog = nil
	srv.StartTLS()
	defer srv.Close()
	s, err := store.NewHTTP(srv.URL, store.HTTPOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if _, err := s.Open(t.Context(), "a"); !errors.Is(err, robocache.ErrMisuse) {
		t.Errorf("unknown certificate: %v", err)
	}
	s, err = store.NewHTTP(srv.URL, store.HTTPOptions{Transport: srv.Client().Transport})
	if err != nil {
		t.Fatal(err)
	}
	b, err := store.ReadFile(t.Context(), s, "a", 1<<20)
	if err != nil || !bytes.Equal(b, httpData) {
		t.Errorf("https: %v", err)
	}
	_, err = s.Open(t.Context(), "away")
	if !errors.Is(err, robocache.ErrMisuse) || plain.Load() != 0 {
		t.Errorf("redirect to http: %v, %d requests", err, plain.Load())
	}
}

// TestHTTPLeavesNoGoroutine checks that no goroutine is left after success, failure, cancellation
// and Close (store.T12).
func TestHTTPLeavesNoGoroutine(t *testing.T) {
	before := runtime.NumGoroutine()
	func() {
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/stall" {
				<-r.Context().Done()
				return
			}
			sound(w, r)
		}))
		defer srv.Close()
		s, err := store.NewHTTP(srv.URL, store.HTTPOptions{})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		hasty, err := store.NewHTTP(
			srv.URL,
			store.HTTPOptions{Stall: 20 * time.Millisecond, Attempts: 2, Backoff: time.Millisecond},
		)
		if err != nil {
			t.Fatal(err)
		}
		defer hasty.Close()
		f, err := s.Open(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		spans := []store.Span{{Off: 0, P: make([]byte, 10)}, {Off: 390_000, P: make([]byte, 10)}}
		if err := store.ReadRanges(t.Context(), f, spans); err != nil {
			t.Fatal(err)
		}
		if _, err := hasty.Open(t.Context(), "stall"); err == nil {
			t.Fatal("no error")
		}
		ctx, stop := context.WithTimeout(t.Context(), 5*time.Millisecond)
		defer stop()
		if _, err := s.Open(ctx, "stall"); err == nil {
			t.Fatal("no error")
		}
	}()
	for start := time.Now(); time.Since(start) < time.Minute; {
		if runtime.NumGoroutine() <= before {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	buf := make([]byte, 1<<16)
	t.Errorf(
		"%d goroutines, %d before:\n%s",
		runtime.NumGoroutine(),
		before,
		buf[:runtime.Stack(buf, true)],
	)
}

// TestRemote checks that only files of HTTP stores are remote, also through decorators.
func TestRemote(t *testing.T) {
	m := storetest.NewMem(t.Name())
	t.Cleanup(m.Drop)
	m.Put("a", []byte("x"))
	for _, c := range []struct {
		s    store.Store
		want bool
	}{{m, false}, {serve(t, http.HandlerFunc(sound), store.HTTPOptions{}), true}} {
		for _, s := range []store.Store{
			c.s,
			storetest.Counting(c.s),
			storetest.Faulty(storetest.Counting(c.s), &storetest.Plan{}),
		} {
			f, err := s.Open(t.Context(), "a")
			if err != nil {
				t.Fatal(err)
			}
			if store.Remote(f) != c.want {
				t.Errorf("%T says %v", f, !c.want)
			}
			f.Close()
		}
	}
}
