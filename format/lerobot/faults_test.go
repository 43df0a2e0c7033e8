package lerobot

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/tests/hostile"
	"github.com/goatnote-inc/robocache/store"
	"github.com/goatnote-inc/robocache/store/tests/storetest"
)

func openStore(t testing.TB, dir string) store.Store {
	t.Helper()
	s, err := store.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// readAll reads some of all content and returns it as bytes.
func readAll(ctx context.Context, s store.Store) (out []byte, err error) {
	d, err := OpenStore(ctx, s, robocache.OpenOptions{})
	if err != nil {
		return nil, err
	}
	defer d.Close()
	for e := range d.Info().Episodes {
		rows := rowsOf(d, e)
		rows = rows[:min(3, len(rows))]
		for _, f := range d.Info().Features {
			switch f.Kind {
			case robocache.KindNumeric:
				b := make([]byte, len(rows)*f.RowBytes())
				if err := d.Gather(ctx, f.Key, rows, b); err != nil {
					return nil, err
				}
				out = append(out, b...)
			case robocache.KindVideo:
				refs := make([]robocache.FrameRef, len(rows))
				if err := d.Frames(ctx, f.Key, rows, refs); err != nil {
					return nil, err
				}
				out = fmt.Append(out, refs)
			}
		}
		ep, err := d.Episode(ctx, e)
		if err != nil {
			return nil, err
		}
		text, err := d.Text(ctx, "task", rows)
		if err != nil {
			return nil, err
		}
		times, err := d.Times(ctx, e, "")
		if err != nil {
			return nil, err
		}
		out = fmt.Append(out, ep, text, times[:min(3, len(times))])
	}
	st, err := d.Stats(ctx)
	if err != nil {
		return nil, err
	}
	return fmt.Append(out, len(st), codes(d)), nil
}

// TestFaults injects a fault at every operation in turn. The result must be correct or a typed
// error, and no file may stay open.
func TestFaults(t *testing.T) {
	for _, name := range []string{"g1_v30_exact", "gr00t_picknplace_v20"} {
		dir := realData(t, name)
		want, err := readAll(t.Context(), openStore(t, dir))
		if err != nil {
			t.Fatal(err)
		}
		for _, fault := range []storetest.Fault{
			storetest.FaultFail,
			storetest.FaultShort,
			storetest.FaultCorrupt,
			storetest.FaultChanged,
		} {
			t.Run(fmt.Sprint(name, " ", fault), func(t *testing.T) {
				silent := 0
				for n := int64(1); ; n++ {
					plan := &storetest.Plan{Nth: n, Fault: fault}
					counter := storetest.Counting(storetest.Faulty(openStore(t, dir), plan))
					got, err := readAll(t.Context(), counter)
					if !plan.Struck() {
						if n < 10 || err != nil {
							t.Fatalf("%d operations, %v", n, err)
						}
						t.Logf(
							"%d operations; %d flipped bits changed values without an error: "+
								"the files carry no checksums",
							n-1,
							silent,
						)
						break
					}
					hostile.Typed(t, robocache.At(err, robocache.Where{"operation": n}))
					switch {
					case err == nil && !bytes.Equal(got, want):
						if fault != storetest.FaultCorrupt {
							t.Fatalf("operation %d: another result without an error", n)
						}
						silent++
					}
					if c := counter.Counts(); c.OpenFiles != 0 {
						t.Fatalf("operation %d: %d files left open", n, c.OpenFiles)
					}
				}
			})
		}
	}
}

// noList is a store that cannot list, like http.
type noList struct{ store.Store }

func (noList) List(context.Context, string) ([]store.Entry, error) {
	return nil, &robocache.Error{
		Class: robocache.ErrUnsupported,
		Op:    "list",
		Msg:   "this store cannot list",
	}
}

// TestNoListing opens datasets in a store that cannot list.
func TestNoListing(t *testing.T) {
	for _, name := range realSets {
		dir := realData(t, name)
		want, err := readAll(t.Context(), openStore(t, dir))
		if err != nil {
			t.Fatal(err)
		}
		got, err := readAll(t.Context(), noList{openStore(t, dir)})
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: another result, %v", name, err)
		}
	}
	// A real http server, which has no listing.
	dir := realData(t, "g1_v30_exact")
	srv := httptest.NewServer(http.FileServer(http.Dir(dir)))
	defer srv.Close()
	want, err := readAll(t.Context(), openStore(t, dir))
	if err != nil {
		t.Fatal(err)
	}
	counter := storetest.Counting(openStore(t, srv.URL+"/"))
	if got, err := readAll(t.Context(), counter); err != nil || !bytes.Equal(got, want) {
		t.Error("another result over http", err)
	}
	t.Logf("%+v", counter.Counts())
	s := newSynth(2, 2)
	dir = s.write(t)
	writeRows(t, filepath.Join(dir, "meta/episodes/chunk-000/file-000.parquet"), s.episodes[:1], 10)
	writeRows(t, filepath.Join(dir, "meta/episodes/chunk-001/file-000.parquet"), s.episodes[1:], 10)
	d, err := OpenStore(t.Context(), noList{openStore(t, dir)}, robocache.OpenOptions{})
	if err != nil || d.Info().Episodes != 2 {
		t.Fatal(err)
	}
	d.Close()
}

// TestOwnBytes checks that reading an episode that has its own row group reads no bytes of other
// episodes.
func TestOwnBytes(t *testing.T) {
	counter := storetest.Counting(openStore(t, realData(t, "g1_v30_exact")))
	d, err := OpenStore(t.Context(), counter, robocache.OpenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if d.Info().Episodes != 5 {
		t.Fatal(d.Info().Episodes)
	}
	before := counter.Counts()
	gather(t, d, "action", rowsOf(d, 1))
	after := counter.Counts()
	f, err := d.tables.footer(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	var own int64
	for _, key := range []string{"action", "episode_index", "index"} {
		k, _ := f.pq.Chunk(1, f.pq.Column(key).OnlyLeaf())
		own += k.Size
	}
	if got := after.BytesRead - before.BytesRead; got != own {
		t.Errorf("read %d bytes, its own are %d", got, own)
	}
	t.Logf(
		"opening: %d requests, %d bytes; an episode's column: %d requests, %d bytes of a file "+
			"of %d",
		before.Requests(),
		before.BytesRead,
		after.Requests()-before.Requests(),
		own,
		f.pq.Size,
	)
}

// TestConcurrent checks that concurrent readers share one decode, also with a budget that holds
// almost nothing.
func TestConcurrent(t *testing.T) {
	dir := realData(t, "g1_v30_drift")
	for _, budget := range []int64{0, 1} {
		d, err := Open(t.Context(), dir, robocache.OpenOptions{MemoryBudget: budget})
		if err != nil {
			t.Fatal(err)
		}
		rows := rowsOf(d, 0, d.Info().Episodes-1, 3)
		want := gather(t, d, "action", rows)
		var wg sync.WaitGroup
		for range 16 {
			wg.Go(func() {
				b := make([]byte, len(want))
				if err := d.Gather(t.Context(), "action", rows, b); err != nil ||
					!bytes.Equal(b, want) {
					t.Error("another result", err)
				}
				if _, err := d.Times(t.Context(), 1, ""); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		s := d.cacheStats()
		if s.Bytes > s.Budget || budget == 0 && s.Loads > 40 {
			t.Errorf("%+v", s)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := d.Gather(ctx, "observation.state", rowsOf(d, 2),
			make([]byte, d.Len(2)*104)); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestMisuse checks that errors name the wrong argument.
func TestMisuse(t *testing.T) {
	d := openReal(t, "g1_v30_exact")
	ctx := t.Context()
	wantError(
		t,
		d.Gather(ctx, "acton", nil, nil),
		robocache.ErrMisuse,
		"acton",
		"observation.state",
	)
	wantError(
		t,
		d.Gather(ctx, "action", rowsOf(d, 0)[:1], make([]byte, 5)),
		robocache.ErrMisuse,
		"104",
	)
	wantError(
		t,
		d.Gather(ctx, "action", []robocache.Row{{Episode: 99}}, make([]byte, 104)),
		robocache.ErrMisuse,
		"episode",
	)
	wantError(
		t,
		d.Gather(ctx, "action", []robocache.Row{{Episode: 0, Index: 221}}, make([]byte, 104)),
		robocache.ErrMisuse,
		"row",
	)
	wantError(
		t,
		d.Gather(ctx, "action", []robocache.Row{{Episode: 0, Index: -1}}, make([]byte, 104)),
		robocache.ErrMisuse,
		"row",
	)
	_, err := d.Text(ctx, "action", nil)
	wantError(t, err, robocache.ErrMisuse, "action")
	wantError(t, d.Frames(ctx, "action", nil, nil), robocache.ErrMisuse, "action")
	_, err = d.Times(ctx, 0, "nope")
	wantError(t, err, robocache.ErrMisuse, "nope")
	_, err = Open(ctx, filepath.Join(t.TempDir(), "nothing"), robocache.OpenOptions{})
	wantError(t, err, robocache.ErrNotFound)
	_, err = Open(ctx, t.TempDir(), robocache.OpenOptions{})
	wantError(t, err, robocache.ErrNotFound, infoPath)
	if ok, err := Detect(ctx, t.TempDir(), robocache.OpenOptions{}); ok || err != nil {
		t.Error(ok, err)
	}
	if ok, err := Detect(ctx, realData(t, "g1_v21"), robocache.OpenOptions{}); !ok || err != nil {
		t.Error(ok, err)
	}
	dir := t.TempDir()
	os.Symlink("/etc", filepath.Join(dir, "meta"))
	if _, err := Open(ctx, dir, robocache.OpenOptions{}); err == nil {
		t.Error("a link out of the root was followed")
	}
}
