package store_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/goatnote-inc/robocache/store"
	"github.com/goatnote-inc/robocache/store/tests/storetest"
)

// TestCopiesTakeTime checks that a server that copies an object may be silent for the time that its
// bytes take.
func TestCopiesTakeTime(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(
		func(http.ResponseWriter, *http.Request) { time.Sleep(500 * time.Millisecond) },
	))
	defer srv.Close()
	h, err := store.NewHTTP(
		srv.URL,
		store.HTTPOptions{Attempts: 1, Stall: 50 * time.Millisecond, MinRate: 1 << 10},
	)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	u, _ := url.Parse(srv.URL)
	for copies, good := range map[int64]bool{0: false, 1 << 20: true} {
		_, err := h.Do(
			t.Context(),
			"move",
			"a",
			store.Request{Method: http.MethodPut, URL: u, Copies: copies},
		)
		if (err == nil) != good {
			t.Errorf("%d: %v", copies, err)
		}
	}
}

// TestKeep checks that a store with a cache requests each byte once, stays at the version that was
// read first, never mixes versions, and does not rely on listings.
func TestKeep(t *testing.T) {
	var mu sync.Mutex
	files := map[string][]byte{"d/a": storetest.Bytes(300<<10, 1), "d/b": storetest.Bytes(5000, 2)}
	etag := func(b []byte) string { return fmt.Sprintf(`"%x"`, sha256.Sum256(b)) }
	var requests atomic.Int64
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		mu.Lock()
		b := files[strings.TrimPrefix(r.URL.Path, "/")]
		mu.Unlock()
		w.Header().Set("ETag", etag(b))
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(b))
	}))
	defer srv.Close()
	var listed []store.Entry
	opened := func() *store.HTTP {
		h, err := store.NewHTTP(srv.URL, store.HTTPOptions{
			Attempts: 2,
			Backoff:  time.Millisecond,
			Versions: func(context.Context, string) ([]store.Entry, error) {
				return listed, nil
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { h.Close() })
		return h
	}
	asked := func(what string, want int64) {
		t.Helper()
		if n := requests.Swap(0); n != want {
			t.Errorf("%s: %d requests, want %d", what, n, want)
		}
	}
	whole := func(h *store.HTTP, name string, want []byte) {
		t.Helper()
		got, err := store.ReadFile(t.Context(), h, name, 1<<20)
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: %d bytes, %v", name, len(got), err)
		}
	}
	part := func(h *store.HTTP, off int64, n int) ([]byte, error) {
		f, err := h.Open(t.Context(), "d/a")
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		p := make([]byte, n)
		return p, f.ReadAt(t.Context(), p, off)
	}
	old := files["d/a"]
	kept := newShelf()
	h := opened()
	end := store.Keep(h, kept, 64<<10)
	whole(h, "d/b", files["d/b"])
	if _, err := part(h, 70<<10, 100); err != nil {
		t.Fatal(err)
	}
	asked("first", 3)
	whole(h, "d/b", files["d/b"])
	if p, err := part(h, 100<<10, 1000); err != nil || !bytes.Equal(p, old[100<<10:][:1000]) {
		t.Error(err)
	}
	asked("again", 0)
	mu.Lock()
	files["d/a"] = storetest.Bytes(300<<10, 3)
	mu.Unlock()
	if p, err := part(h, 70<<10, 100); err != nil || !bytes.Equal(p, old[70<<10:][:100]) {
		t.Errorf("what was read before the change: %v", err)
	}
	_, err := part(h, 100<<10, 100<<10)
	if err == nil || !strings.Contains(err.Error(), "changed") {
		t.Errorf("a part that was not read before the change: %v", err)
	}
	end()
	whole(h, "d/a", files["d/a"])
	// Another process uses the same cache: versions are requested again, or listed.
	listed = []store.Entry{
		{Name: "d/a", Size: 300 << 10, Version: etag(files["d/a"])},
		{Name: "d/b", Size: 5000, Version: etag(files["d/b"])},
	}
	h = opened()
	defer store.Keep(h, kept, 64<<10)()
	requests.Store(0)
	whole(h, "d/b", files["d/b"])
	asked("listed", 0)
	whole(h, "d/a", files["d/a"])
	for _, size := range []int64{-1, 0, 1, 5001, 1 << 62} {
		listed = []store.Entry{{Name: "d/b", Size: size, Version: etag(files["d/b"])}}
		h := opened()
		end := store.Keep(h, kept, 64<<10)
		whole(h, "d/b", files["d/b"])
		end()
	}
	if kept.held.Load() != 0 {
		t.Error("blocks are not given back")
	}
}
