package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/lerobot"
	"github.com/goatnote-inc/robocache/internal/tests/realdata"
	"github.com/goatnote-inc/robocache/loader"
	"github.com/goatnote-inc/robocache/store"
	"github.com/goatnote-inc/robocache/store/tests/storetest"
	"github.com/goatnote-inc/robocache/synth"
)

// serve serves a folder like an ordinary web server.
func serve(t testing.TB, dir string) string {
	t.Helper()
	srv := httptest.NewServer(http.FileServer(http.Dir(dir)))
	t.Cleanup(srv.Close)
	return srv.URL
}

// e2e.C1: samples, their order, and pixels are the same as from disk.
func TestHTTPEqualsDisk(t *testing.T) {
	decoders(t)
	for _, c := range []struct {
		name string
		cfg  loader.Config
	}{
		{
			"g1_h264_v30_bigdrift",
			loader.Config{Order: loader.Order{BatchSize: 32, Shuffle: loader.Global, Seed: 5}},
		},
		{
			"g1_h264_v30",
			loader.Config{
				Order: loader.Order{
					BatchSize: 32,
					Shuffle:   loader.Global,
					Seed:      6,
					Episodes:  []int{1, 4},
				},
				Runtime: loader.Runtime{Prefetch: 8},
			},
		},
		{
			"g1_v30_exact",
			loader.Config{
				Order: loader.Order{
					BatchSize: 32,
					Shuffle:   loader.Global,
					Seed:      7,
					Episodes:  []int{0},
				},
			},
		},
		{"g1_v30_drift", loader.Config{Order: loader.Order{BatchSize: 16, Episodes: []int{8}}}},
		{
			"g1_v21",
			loader.Config{
				Order: loader.Order{
					BatchSize: 32,
					Shuffle:   loader.Global,
					Seed:      8,
					Episodes:  []int{3},
				},
			},
		},
		{
			"gr00t_picknplace_v20",
			loader.Config{
				Order:   loader.Order{BatchSize: 64, Seed: 9, Episodes: []int{1, 4}},
				Runtime: loader.Runtime{Prefetch: 8},
			},
		},
		{
			"g1_v30_exact",
			loader.Config{
				Order: loader.Order{
					BatchSize: 32,
					Shuffle:   loader.Pool,
					Seed:      7,
					Episodes:  []int{0, 3},
					DropTail:  100,
				},
			},
		},
		{
			"g1_h264_v30",
			loader.Config{
				Order: loader.Order{
					BatchSize: 32,
					Shuffle:   loader.Global,
					Seed:      7,
					Episodes:  []int{0, 3},
					DropTail:  100,
				},
				CacheOptions: loader.CacheOptions{Cache: "ram", CacheBudget: 20 << 20},
			},
		},
		{
			"g1_h264_v30",
			loader.Config{
				Order: loader.Order{
					BatchSize: 32,
					Shuffle:   loader.Pool,
					Seed:      7,
					Episodes:  []int{0, 3},
					DropTail:  100,
				},
				CacheOptions: loader.CacheOptions{Cache: t.TempDir(), CacheFormat: "encoded"},
			},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if testing.Short() && c.name != small {
				t.Skip("short")
			}
			dir := realdata.Path(t, c.name)
			local := open(t, dir)
			wantSum, n, err := digest(t.Context(), local, c.cfg)
			if err != nil {
				t.Fatal(err)
			}
			remote := open(t, serve(t, dir))
			c.cfg.Threads = 3
			got, m, err := digest(t.Context(), remote, c.cfg)
			if err != nil {
				t.Fatal(err)
			}
			if got != wantSum || n != m || n == 0 {
				t.Errorf("%d samples from disk hash to %s, %d over http to %s", n, wantSum, m, got)
			}
			a, b := local.Info(), remote.Info()
			if a.Episodes != b.Episodes || a.Frames != b.Frames ||
				fmt.Sprint(a.Tasks, a.Splits, a.FPS) != fmt.Sprint(b.Tasks, b.Splits, b.FPS) {
				t.Error("Info differs")
			}
		})
	}
}

// e2e.C1: opening and one batch read what they need, but no whole table and no whole video.
func TestHTTPReadsLittle(t *testing.T) {
	decoders(t)
	for _, name := range []string{"g1_v30_exact", "g1_v21"} {
		t.Run(name, func(t *testing.T) {
			dir := realdata.Path(t, name)
			var total int64
			filepath.Walk(
				filepath.Join(dir, "videos"),
				func(_ string, i os.FileInfo, err error) error {
					if err == nil && !i.IsDir() {
						total += i.Size()
					}
					return nil
				},
			)
			var sent, requests atomic.Int64
			files := http.FileServer(http.Dir(dir))
			srv := httptest.NewServer(
				http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					requests.Add(1)
					files.ServeHTTP(&meter{ResponseWriter: w, n: &sent}, r)
				}),
			)
			defer srv.Close()
			s, err := store.Open(srv.URL)
			if err != nil {
				t.Fatal(err)
			}
			counter := storetest.Counting(s)
			ds, err := lerobot.OpenStore(t.Context(), counter, robocache.OpenOptions{})
			if err != nil {
				t.Fatal(err)
			}
			defer ds.Close()
			opened, openedSent, openedRequests := counter.Counts(), sent.Load(), requests.Load()
			if opened.BytesRead > 200<<10 || openedSent > 250<<10 {
				t.Errorf(
					"opening read %d bytes in %d requests; the server sent %d",
					opened.BytesRead,
					openedRequests,
					openedSent,
				)
			}
			// 8 rows of one episode need its row group or file, and 8 groups of frames.
			l, err := loader.New(
				t.Context(),
				ds,
				loader.Config{
					Order:   loader.Order{BatchSize: 8, Episodes: []int{1}, Shuffle: loader.Global},
					Runtime: loader.Runtime{Prefetch: 1, Threads: 2},
				},
			)
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			b, err := l.Next(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			b.Release()
			l.Close()
			read := counter.Counts().BytesRead - opened.BytesRead
			if read > total/5 {
				t.Errorf("one batch of 8 read %d bytes, of %d bytes of video", read, total)
			}
			if got := sent.Load() - openedSent; got > total/4 {
				t.Errorf(
					"one batch of 8: the server sent %d bytes, of %d bytes of video",
					got,
					total,
				)
			}
			// Numbers alone read no video.
			before := counter.Counts()
			cfg := loader.Config{
				Order:   loader.Order{BatchSize: 64},
				Windows: loader.Windows{Keys: []string{"observation.state"}},
			}
			if _, n, err := digest(t.Context(), ds, cfg); err != nil ||
				int64(n) != ds.Info().Frames {
				t.Fatal(n, err)
			}
			after := counter.Counts()
			if n := after.BytesRead - before.BytesRead; n > 400<<10 {
				t.Errorf("an epoch of states read %d bytes", n)
			}
			t.Logf(
				"opening: %d requests, %d bytes (sent %d); a batch of 8: %d bytes of %d of "+
					"video; an epoch of states: %d bytes",
				openedRequests,
				opened.BytesRead,
				openedSent,
				read,
				total,
				after.BytesRead-before.BytesRead,
			)
		})
	}
}

type meter struct {
	http.ResponseWriter
	n *atomic.Int64
}

func (m *meter) Write(p []byte) (int, error) {
	n, err := m.ResponseWriter.Write(p)
	m.n.Add(int64(n))
	return n, err
}

// e2e.C2: if a file is replaced on the server while it is read, old and new bytes are never mixed.
func TestHTTPReplacedWhileReading(t *testing.T) {
	decoders(t)
	dir := load(t, small).disk(t)
	ds := open(t, serve(t, dir))
	l, err := loader.New(
		t.Context(),
		ds,
		loader.Config{
			Order:   loader.Order{BatchSize: 19},
			Runtime: loader.Runtime{Prefetch: 1, Threads: 1},
		},
	)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	b, err := l.Next(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	b.Release()
	p := filepath.Join(dir, mp4)
	data, err := os.ReadFile(p)
	if err != nil {
		t.Fatal(err)
	}
	// the same length, other bytes, another time
	if err := os.WriteFile(p+".new", bytes.Repeat([]byte{7}, len(data)), 0o644); err != nil {
		t.Fatal(err)
	}
	later := time.Now().Add(time.Hour)
	if err := os.Chtimes(p+".new", later, later); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(p+".new", p); err != nil {
		t.Fatal(err)
	}
	for {
		b, err := l.Next(t.Context())
		if err == io.EOF {
			t.Fatal("the epoch went on over a replaced file")
		}
		if err != nil {
			sound(t, err)
			if !errors.Is(err, store.ErrChanged) {
				t.Errorf("ErrChanged wanted, got %v", err)
			}
			return
		}
		b.Release()
	}
}

// e2e.C2, with SQLite's method: the n-th operation of the store fails, until a run has fewer
// operations.
func TestNthOperationFails(t *testing.T) {
	decoders(t)
	dir := realdata.Path(t, small)
	cfg := loader.Config{
		Order: loader.Order{
			BatchSize: 10,
			Shuffle:   loader.Global,
			Seed:      2,
			Episodes:  []int{0, 30, 65},
		},
		Runtime: loader.Runtime{Prefetch: 2, Threads: 2},
	}
	wantSum, _, err := digest(t.Context(), open(t, dir), cfg)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name  string
		fault storetest.Fault
		err   error
		again bool
	}{
		{"fail once", storetest.FaultFail, nil, false},
		{"fail for ever", storetest.FaultFail, nil, true},
		{"short", storetest.FaultShort, nil, false},
		{"changed", storetest.FaultChanged, nil, true},
		{
			"gone",
			storetest.FaultFail,
			&robocache.Error{Class: robocache.ErrNotFound, Op: "faulty", Msg: "gone"},
			true,
		},
		{"EIO", storetest.FaultFail, &os.PathError{Op: "read", Path: "f", Err: errno5}, true},
		{"corrupt", storetest.FaultCorrupt, nil, false},
		{"delay", storetest.FaultDelay, nil, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			goroutines := 0
			failed := 0
			for n := int64(1); ; n++ {
				plan := &storetest.Plan{
					Nth:    n,
					Fault:  c.fault,
					Err:    c.err,
					Repeat: c.again,
					Delay:  2 * time.Millisecond,
				}
				s, err := store.Open(dir)
				if err != nil {
					t.Fatal(err)
				}
				counter := storetest.Counting(storetest.Faulty(s, plan))
				ctx, cancel := context.WithTimeout(t.Context(), hangs)
				ds, err := lerobot.OpenStore(ctx, counter, robocache.OpenOptions{})
				sum := ""
				if err == nil {
					if n%2 == 0 {
						err = readEpisodes(ctx, ds, 0, 30)
					}
					if err == nil {
						sum, _, err = digest(ctx, ds, cfg)
					}
					if cerr := ds.Close(); cerr != nil && err == nil {
						t.Errorf("operation %d: close: %v", n, cerr)
					}
				} else {
					store.Close(s)
				}
				cancel()
				sound(t, err)
				if err != nil {
					failed++
					if errors.Is(err, context.DeadlineExceeded) {
						t.Fatalf("operation %d hangs", n)
					}
					if c.fault == storetest.FaultDelay {
						t.Errorf("operation %d: a delay became %v", n, err)
					}
				}
				if err == nil && sum != wantSum && c.fault != storetest.FaultCorrupt {
					t.Fatalf("operation %d: other data without an error", n)
				}
				if open := counter.Counts().OpenFiles; open != 0 {
					t.Fatalf("operation %d: %d files left open after: %v", n, open, err)
				}
				if !plan.Struck() {
					if n < 20 || err != nil {
						t.Fatal("a run without a fault:", n, err)
					}
					t.Logf("%d operations, %d runs ended with a typed error", n-1, failed)
					break
				}
				switch {
				case testing.Short():
					n += 6
				case c.name != "fail once":
					n += 2
				}
				if goroutines == 0 && n >= 5 {
					goroutines = numGoroutine()
				}
			}
			if n := steadied(numGoroutine, goroutines); n > goroutines {
				t.Errorf("%d goroutines, there were %d", n, goroutines)
			}
		})
	}
}

func readEpisodes(ctx context.Context, ds robocache.Dataset, episodes ...int) error {
	for _, e := range episodes {
		rows := make([]robocache.Row, ds.Len(e))
		for i := range rows {
			rows[i] = robocache.Row{Episode: e, Index: i}
		}
		f := ds.Info().Feature("action")
		if err := ds.Gather(ctx, "action", rows, make([]byte, len(rows)*f.RowBytes())); err != nil {
			return err
		}
		if err := ds.Frames(ctx, camera, rows, make([]robocache.FrameRef, len(rows))); err != nil {
			return err
		}
		if _, err := ds.Text(ctx, "task", rows); err != nil {
			return err
		}
		if _, err := ds.Times(ctx, e, ""); err != nil {
			return err
		}
	}
	return nil
}

// An epoch of a pool over http makes one request per eight frames (HDF5: three), and a few for
// tables and indexes. Local files use tasks of two frames, which deliver the first batch sooner.
// Over http these would make four times as many requests. One request per chunk would be as many.
func TestPoolAsksLittle(t *testing.T) {
	decoders(t)
	for format, c := range map[string]struct {
		name       string
		perRequest int
	}{"lerobot": {"", 8}, "robomimic": {"set.hdf5", 3}} {
		t.Run(format, func(t *testing.T) {
			dir := t.TempDir()
			if _, err := synth.Write(t.Context(), filepath.Join(dir, c.name),
				synth.Options{
					Format: format, Episodes: 3, Seconds: 4, Width: 160,
					Height: 120, Cameras: 1, Seed: 1,
				}); err != nil {
				t.Fatal(err)
			}
			var requests atomic.Int64
			files := http.FileServer(http.Dir(dir))
			srv := httptest.NewServer(
				http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					requests.Add(1)
					files.ServeHTTP(w, r)
				}),
			)
			defer srv.Close()
			opt := robocache.OpenOptions{}
			if c.name != "" {
				opt.HZ = robocache.Rate{Num: 30, Den: 1}
			}
			ds, err := robocache.Open(t.Context(), srv.URL+"/"+c.name, opt)
			if err != nil {
				t.Fatal(err)
			}
			defer ds.Close()
			opened := requests.Load()
			cfg := loader.Config{
				Order:   loader.Order{BatchSize: 8, Shuffle: loader.Pool, Seed: 1},
				Runtime: loader.Runtime{Threads: 2},
			}
			_, n, err := digest(t.Context(), ds, cfg)
			if err != nil {
				t.Fatal(err)
			}
			const others = 12
			got, most := requests.Load()-opened, int64(n/c.perRequest+others)
			if got > most {
				t.Errorf("%d frames: %d requests, at most %d are planned", n, got, most)
			}
			t.Logf("%d frames: %d requests of %d (%d to open)", n, got, most, opened)
		})
	}
}
