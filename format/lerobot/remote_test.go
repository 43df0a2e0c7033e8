package lerobot

import (
	"bytes"
	"context"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/tests/realdata"
	"github.com/goatnote-inc/robocache/store"
	"github.com/goatnote-inc/robocache/store/loopback"
)

// openRemote opens a dataset over http, and returns the server, which counts requests.
func openRemote(t testing.TB, dir string, latency time.Duration) (*Dataset, *loopback.Server) {
	t.Helper()
	return openServed(t, dir, loopback.Options{Latency: latency}, store.HTTPOptions{})
}

func openServed(
	t testing.TB,
	dir string,
	opt loopback.Options,
	client store.HTTPOptions,
) (*Dataset, *loopback.Server) {
	t.Helper()
	srv, err := loopback.Serve(dir, opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { srv.Close() })
	s, err := store.NewHTTP(srv.URL, client)
	if err != nil {
		t.Fatal(err)
	}
	d, err := OpenStore(t.Context(), s, robocache.OpenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d, srv
}

// TestRemoteRowGroups checks that the small columns of a row group are read by one request, in any
// order of use, and that an episode in the cache needs none. The values equal those from disk.
func TestRemoteRowGroups(t *testing.T) {
	for _, name := range []string{"g1_v30_exact", "g1_v21"} {
		t.Run(name, func(t *testing.T) {
			dir := realdata.Path(t, name)
			local, err := Open(t.Context(), dir, robocache.OpenOptions{})
			if err != nil {
				t.Fatal(err)
			}
			defer local.Close()
			d, srv := openRemote(t, dir, 0)
			opened := srv.Requests()
			if opened > 15 {
				t.Errorf("opening took %d requests", opened)
			}
			var rows []robocache.Row
			for e := range d.Info().Episodes {
				for i := 0; i < d.Len(e); i += 7 {
					rows = append(rows, robocache.Row{Episode: e, Index: i})
				}
			}
			numeric := 0
			for _, f := range slices.Backward(d.Info().Features) {
				if f.Kind != robocache.KindNumeric {
					continue
				}
				numeric++
				want, got := make([]byte, len(rows)*f.RowBytes()),
					make([]byte, len(rows)*f.RowBytes())
				if err := local.Gather(t.Context(), f.Key, rows, want); err != nil {
					t.Fatal(err)
				}
				if err := d.Gather(t.Context(), f.Key, rows, got); err != nil ||
					!bytes.Equal(got, want) {
					t.Errorf("%s: other values over http, or %v", f.Key, err)
				}
			}
			// There are 5 episodes. In v2.1 each has a file (its head at Open, then the whole
			// file). In v3.0 each has a row group, plus the second file's head and footer.
			if n := srv.Requests() - opened; n > 10 || numeric < 6 {
				t.Errorf("%d requests for %d columns of 5 episodes", n, numeric)
			}
			before := srv.Requests()
			if _, err := d.Text(t.Context(), "task", rows); err != nil || srv.Requests() != before {
				t.Errorf("texts took %d requests, %v", srv.Requests()-before, err)
			}
		})
	}
}

// TestRemoteAtOnce checks that the reads of one call are concurrent: rows of all episodes need a
// few round trips, not one per episode.
func TestRemoteAtOnce(t *testing.T) {
	dir := realdata.Path(t, "g1_v21")
	// The server answers only when this many requests are waiting.
	var want atomic.Int64
	var waiting sync.WaitGroup
	come := make(chan struct{}, 1000)
	d, _ := openServed(
		t,
		dir,
		loopback.Options{Strike: func(int64, http.ResponseWriter, *http.Request) bool {
			if want.Load() > 0 {
				come <- struct{}{}
				waiting.Wait()
			}
			return false
			// or when a waiting goroutine asks and counts again
		}},
		store.HTTPOptions{Stall: time.Hour, Timeout: time.Hour},
	)
	rows := make([]robocache.Row, d.Info().Episodes)
	for i := range rows {
		rows[i].Episode = i
	}
	f := d.Info().Feature("action")
	for what, call := range map[string]func() error{
		"Gather": func() error {
			return d.Gather(t.Context(), "action", rows, make([]byte, len(rows)*f.RowBytes()))
		},
		"Frames": func() error {
			return d.Frames(
				t.Context(),
				"observation.images.cam_high",
				rows,
				make([]robocache.FrameRef, len(rows)),
			)
		},
	} {
		for len(come) > 0 {
			<-come
		}
		want.Store(int64(len(rows) - 1))
		waiting.Add(1)
		done := make(chan error, 1)
		go func() { done <- call() }()
		for n := int64(0); n < want.Load(); n++ {
			select {
			case <-come:
			case <-time.After(time.Minute):
				t.Errorf("%s asked for the files of %d episodes, %d at once", what, len(rows), n)
				n = want.Load()
			}
		}
		want.Store(0)
		waiting.Done()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
}

// TestRemoteErrors checks that a truncated or damaged table has the same error over http as from
// disk.
func TestRemoteErrors(t *testing.T) {
	src := realdata.Path(t, "g1_v30_exact")
	dir := t.TempDir()
	if err := os.CopyFS(filepath.Join(dir, "meta"), os.DirFS(filepath.Join(src, "meta"))); err !=
		nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(filepath.Join(dir, "videos"),
		os.DirFS(filepath.Join(src, "videos"))); err != nil {
		t.Fatal(err)
	}
	table := filepath.Join(dir, "data", "chunk-000", "file-000.parquet")
	if err := os.CopyFS(filepath.Join(dir, "data"), os.DirFS(filepath.Join(src, "data"))); err !=
		nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(table)
	if err != nil {
		t.Fatal(err)
	}
	for i := 20_000; i < 45_000; i++ { // the action column of the first row group
		b[i] ^= 0x55
	}
	if err := os.Chmod(table, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(table, b, 0o600); err != nil {
		t.Fatal(err)
	}
	local, err := Open(t.Context(), dir, robocache.OpenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer local.Close()
	d, _ := openRemote(t, dir, 0)
	rows := []robocache.Row{{Episode: 1, Index: 3}, {Episode: 0, Index: 5}, {Episode: 2, Index: 1}}
	for _, key := range []string{"action", "observation.state"} {
		n := len(rows) * d.Info().Feature(key).RowBytes()
		want := local.Gather(context.Background(), key, rows, make([]byte, n))
		got := d.Gather(context.Background(), key, rows, make([]byte, n))
		if (want == nil) != (got == nil) || want != nil && want.Error() != got.Error() {
			t.Errorf("%s: %v over http, %v from disk", key, got, want)
		}
		if key == "action" && want == nil {
			t.Error("the damage is not seen: the test tests nothing")
		}
	}
}
