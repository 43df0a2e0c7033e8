package loopback_test

import (
	"bytes"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/goatnote-inc/robocache/store"
	"github.com/goatnote-inc/robocache/store/loopback"
	"github.com/goatnote-inc/robocache/store/tests/storetest"
)

func serve(t testing.TB, files map[string][]byte, opt loopback.Options) (*loopback.Server, string) {
	t.Helper()
	dir := t.TempDir()
	for name, data := range files {
		p := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(p), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, data, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	s, err := loopback.Serve(dir, opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s, dir
}

// TestStoreSuite runs the store suite: ranges, versions, names and missing files (loopback.S1,
// loopback.S4).
func TestStoreSuite(t *testing.T) {
	storetest.Run(t, func(t testing.TB, files map[string][]byte) storetest.Fixture {
		s, dir := serve(t, files, loopback.Options{})
		h, err := store.NewHTTP(s.URL, store.HTTPOptions{Backoff: time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { h.Close() })
		return storetest.Fixture{Store: h, Change: func(t testing.TB, name string, data []byte) {
			time.Sleep(12 * time.Millisecond) // resolution of mtime
			err := os.WriteFile(filepath.Join(dir, filepath.FromSlash(name)), data, 0o666)
			if err != nil {
				t.Fatal(err)
			}
		}}
	})
}

func get(t testing.TB, url, span string) (int, []byte) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	if span != "" {
		req.Header.Set("Range", span)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Error(err)
		return 0, nil
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Error(err)
	}
	return resp.StatusCode, b
}

// TestLatencyAndCounts checks that each response waits and that all wait concurrently
// (loopback.S2), that requests and bytes are counted (loopback.S5), and that no outside file is
// served (loopback.S1).
func TestLatencyAndCounts(t *testing.T) {
	data := storetest.Bytes(300_000, 1)
	s, dir := serve(
		t,
		map[string][]byte{"in/a": data},
		loopback.Options{Latency: 60 * time.Millisecond},
	)
	begin := time.Now()
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			code, b := get(t, s.URL+"/in/a", "bytes=1000-1999")
			if code != http.StatusPartialContent || !bytes.Equal(b, data[1000:2000]) {
				t.Errorf("status %d, %d bytes", code, len(b))
			}
		})
	}
	wg.Wait()
	if d := time.Since(begin); d < 60*time.Millisecond {
		t.Errorf("16 requests at once took %v", d)
	}
	if s.Requests() != 16 || s.Bytes() != 16_000 {
		t.Errorf("%d requests, %d bytes", s.Requests(), s.Bytes())
	}
	if err := os.Symlink("/etc/hostname", filepath.Join(dir, "out")); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"/none", "/in", "/out", "/../x", "/"} {
		if code, _ := get(t, s.URL+name, ""); code != http.StatusNotFound {
			t.Errorf("%s: status %d", name, code)
		}
	}
}

// TestAllAtOnce checks that no request waits for another (loopback.S2): each would take an hour.
func TestAllAtOnce(t *testing.T) {
	s, _ := serve(t, map[string][]byte{"a": {1}}, loopback.Options{Latency: time.Hour})
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			resp, err := http.Get(s.URL + "/a") //nolint:noctx // the server ends it
			if err == nil {
				resp.Body.Close()
				t.Error("an answer within the hour")
			}
		})
	}
	for most := int64(0); most < 16; most = max(most, s.MostAtOnce()) {
		time.Sleep(time.Millisecond)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	wg.Wait()
}

// TestOneByOne checks that a request with a complete response no longer counts as in progress.
func TestOneByOne(t *testing.T) {
	s, _ := serve(t, map[string][]byte{"a": {1}}, loopback.Options{})
	const n = 100
	for range n {
		get(t, s.URL+"/a", "")
	}
	// A client may send the next request before the handler has returned.
	if most := s.MostAtOnce(); most < 1 || most > n/2 {
		t.Errorf("%d of %d requests at once, each after the other", most, n)
	}
}

// TestBandwidth checks that all bodies share the bandwidth (loopback.S3).
func TestBandwidth(t *testing.T) {
	data := storetest.Bytes(100_000, 2)
	s, _ := serve(t, map[string][]byte{"a": data}, loopback.Options{BytesPerSecond: 1_000_000})
	begin := time.Now()
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			if _, b := get(t, s.URL+"/a", ""); !bytes.Equal(b, data) {
				t.Errorf("%d bytes", len(b))
			}
		})
	}
	wg.Wait()
	if d := time.Since(begin); d < 290*time.Millisecond {
		t.Errorf("300,000 bytes at 1,000,000 a second took %v", d)
	}
	if s.Bytes() != 300_000 {
		t.Errorf("%d bytes", s.Bytes())
	}
}

// TestClose checks that Close cancels waiting requests and leaves no goroutine (loopback.S6), and
// that Strike replaces the server's response.
func TestClose(t *testing.T) {
	before := runtime.NumGoroutine()
	s, _ := serve(t, map[string][]byte{"a": {1}}, loopback.Options{Latency: time.Hour})
	ended := make(chan error, 1)
	go func() {
		resp, err := http.Get(s.URL + "/a") //nolint:noctx // the server ends it
		if err == nil {
			resp.Body.Close()
		}
		ended <- err
	}()
	for s.Requests() == 0 {
		time.Sleep(time.Millisecond)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if err := <-ended; err == nil {
		t.Error("an answer after Close")
	}
	http.DefaultClient.CloseIdleConnections()
	for start := time.Now(); runtime.NumGoroutine() > before && time.Since(start) < time.Minute; {
		time.Sleep(10 * time.Millisecond)
	}
	if n := runtime.NumGoroutine(); n > before {
		t.Errorf("%d goroutines, there were %d", n, before)
	}
	struck, _ := serve(
		t,
		map[string][]byte{"a": {1}},
		loopback.Options{Strike: func(n int64, w http.ResponseWriter, _ *http.Request) bool {
			if n == 1 {
				w.WriteHeader(http.StatusTeapot)
			}
			return n == 1
		}},
	)
	for want := http.StatusTeapot; ; want = http.StatusOK {
		if code, _ := get(t, struck.URL+"/a", ""); code != want {
			t.Errorf("status %d, want %d", code, want)
		}
		if want == http.StatusOK {
			return
		}
	}
}
