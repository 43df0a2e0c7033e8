// Package storetest is the test suite for the back ends of package store.
package storetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/store"
)

// Fixture is a store under test.
type Fixture struct {
	Store store.Store
	// Change overwrites a file in place without the store. It must wait until the back end can
	// detect the change. It is nil if files of the back end cannot change.
	Change func(t testing.TB, name string, data []byte)
}

// Opener returns a store that holds exactly the given files.
type Opener func(t testing.TB, files map[string][]byte) Fixture

// Run tests a back end against the contract of package store.
func Run(t *testing.T, open Opener) {
	t.Run("reading", func(t *testing.T) { reading(t, open) })
	t.Run("past the end", func(t *testing.T) { pastEnd(t, open) })
	t.Run("ranges", func(t *testing.T) { ranges(t, open) })
	t.Run("many goroutines", func(t *testing.T) { concurrency(t, open) })
	t.Run("version", func(t *testing.T) { version(t, open) })
	t.Run("names", func(t *testing.T) { names(t, open) })
	t.Run("not found", func(t *testing.T) { notFound(t, open) })
	t.Run("listing", func(t *testing.T) { listing(t, open) })
	t.Run("limit", func(t *testing.T) { limit(t, open) })
	t.Run("cancel", func(t *testing.T) { cancel(t, open) })
	t.Run("after close", func(t *testing.T) { afterClose(t, open) })
	t.Run("writing", func(t *testing.T) {
		s := open(t, nil).Store
		if _, ok := s.(store.Writable); !ok {
			t.Skip("read only")
		}
		writing(t, open)
	})
}

// Bytes returns n random bytes, so that a read at a wrong offset is detected.
func Bytes(n int, seed uint64) []byte {
	rng := rand.New(rand.NewPCG(seed, 7))
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(rng.Uint32())
	}
	return b
}

func reading(t *testing.T, open Opener) {
	files := map[string][]byte{
		"meta/info.json":              []byte(`{"fps": 30}`),
		"empty":                       {},
		"data/chunk-000/file-000.bin": Bytes(300_001, 1),
		"odd/a b?c#d%2e&ü+;=.bin":     Bytes(100, 2),
	}
	s := open(t, files).Store
	if s.URI() == "" {
		t.Error("no URI")
	}
	for name, want := range files {
		f := mustOpen(t, s, name)
		if f.Size() != int64(len(want)) || f.Version() == "" {
			t.Fatalf("%s: size %d, version %q", name, f.Size(), f.Version())
		}
		e, err := s.Stat(t.Context(), name)
		if err != nil || e.Name != name || e.Size != f.Size() || e.Version != f.Version() {
			t.Fatalf(
				"%s: Stat %+v, %v; the handle says %d, %s",
				name,
				e,
				err,
				f.Size(),
				f.Version(),
			)
		}
		n := int64(len(want))
		for _, r := range [][2]int64{
			{0, n},
			{0, 0},
			{n, 0},
			{n / 2, n - n/2},
			{n / 3, min(n/3, 1)},
			{max(n-1, 0), min(n, 1)},
		} {
			got := bytes.Repeat([]byte{0xee}, int(r[1])+8)
			if err := f.ReadAt(t.Context(), got[:r[1]], r[0]); err != nil {
				t.Fatalf("%s: %d bytes at %d: %v", name, r[1], r[0], err)
			}
			if !bytes.Equal(got[:r[1]], want[r[0]:r[0]+r[1]]) {
				t.Fatalf("%s: %d bytes at %d are wrong", name, r[1], r[0])
			}
			if !bytes.Equal(got[r[1]:], bytes.Repeat([]byte{0xee}, 8)) {
				t.Fatalf("%s: wrote beyond p", name)
			}
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		got, err := store.ReadFile(t.Context(), s, name, n)
		if err != nil || !bytes.Equal(got, want) {
			t.Fatalf("ReadFile %s: %d bytes, %v", name, len(got), err)
		}
	}
	// another spelling of a name is the same file
	b, err := store.ReadFile(t.Context(), s, "./meta//./info.json", 100)
	if err != nil || string(b) != `{"fps": 30}` {
		t.Fatalf("unclean name: %q, %v", b, err)
	}
}

func pastEnd(t *testing.T, open Opener) {
	s := open(t, map[string][]byte{"a": Bytes(100, 1), "empty": nil}).Store
	for name, size := range map[string]int64{"a": 100, "empty": 0} {
		f := mustOpen(t, s, name)
		for _, r := range [][2]int64{
			{size, 1},
			{0, size + 1},
			{size + 1, 0},
			{-1, 1},
			{math.MaxInt64, 1},
			{math.MinInt64, 1},
			{math.MaxInt64 - 1, 64},
			{1 << 40, 5},
		} {
			err := f.ReadAt(t.Context(), make([]byte, r[1]), r[0])
			if !errors.Is(err, robocache.ErrMalformed) || !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Errorf("%s: %d bytes at %d: %v", name, r[1], r[0], err)
			}
		}
		f.Close()
	}
}

func ranges(t *testing.T, open Opener) {
	data := Bytes(2_000_000, 3)
	s := open(t, map[string][]byte{"a": data}).Store
	f := mustOpen(t, s, "a")
	defer f.Close()
	rng := rand.New(rand.NewPCG(3, 3))
	for range 10 {
		var spans []store.Span
		for range rng.IntN(40) {
			off := rng.Int64N(int64(len(data)))
			spans = append(
				spans,
				store.Span{Off: off, P: make([]byte, rng.IntN(min(50_000, len(data)-int(off))+1))},
			)
		}
		if err := store.ReadRanges(t.Context(), f, spans); err != nil {
			t.Fatal(err)
		}
		for _, sp := range spans {
			if !bytes.Equal(sp.P, data[sp.Off:sp.Off+int64(len(sp.P))]) {
				t.Fatalf("span at %d of %d bytes is wrong", sp.Off, len(sp.P))
			}
		}
	}
	wild := []store.Span{
		{Off: 0, P: make([]byte, 10)},
		{Off: math.MaxInt64 - 2, P: make([]byte, 10)},
	}
	if err := store.ReadRanges(t.Context(), f, wild); !errors.Is(err, robocache.ErrMalformed) {
		t.Fatalf("range past the end: %v", err)
	}
}

func concurrency(t *testing.T, open Opener) {
	data := Bytes(500_000, 4)
	s := open(t, map[string][]byte{"a": data}).Store
	f := mustOpen(t, s, "a")
	defer f.Close()
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(g), 5))
			p := make([]byte, 5000)
			for range 40 {
				off := rng.Int64N(int64(len(data) - len(p)))
				err := f.ReadAt(t.Context(), p, off)
				if err != nil || !bytes.Equal(p, data[off:off+int64(len(p))]) {
					t.Errorf("read at %d: wrong, or %v", off, err)
					return
				}
			}
		})
	}
	wg.Wait()
}

// version checks that after a change in place a handle returns the old bytes or ErrChanged, never
// the new bytes.
func version(t *testing.T, open Opener) {
	old, other := bytes.Repeat([]byte("a"), 5000), bytes.Repeat([]byte("b"), 5000)
	for what, data := range map[string][]byte{
		"same size": other,
		"shorter":   other[:100],
		"empty":     {},
		"longer":    append(slices.Clone(other), other...),
	} {
		fx := open(t, map[string][]byte{"a": old})
		if fx.Change == nil {
			t.Skip("files of this back end cannot change")
		}
		f := mustOpen(t, fx.Store, "a")
		before := f.Version()
		p := make([]byte, 1000)
		if err := f.ReadAt(t.Context(), p, 0); err != nil {
			t.Fatal(err)
		}
		fx.Change(t, "a", data)
		for i := range 3 {
			err := f.ReadAt(t.Context(), p, 1000)
			if err == nil && !bytes.Equal(p, old[:1000]) {
				t.Errorf(
					"%s: read %d after the change gave new bytes through an old handle",
					what,
					i,
				)
			}
			if err != nil && !errors.Is(err, store.ErrChanged) {
				t.Errorf("%s: %v", what, err)
			}
			if err != nil && !errors.Is(err, robocache.ErrTemporary) {
				t.Errorf("%s: not temporary: %v", what, err)
			}
		}
		f.Close()
		e, err := fx.Store.Stat(t.Context(), "a")
		if err != nil || e.Version == before || e.Size != int64(len(data)) {
			t.Errorf("%s: after the change Stat says %+v, %v; it was %s", what, e, err, before)
		}
		b, err := store.ReadFile(t.Context(), fx.Store, "a", 1<<20)
		if err != nil || !bytes.Equal(b, data) {
			t.Errorf("%s: a new open does not see the new bytes: %v", what, err)
		}
	}
}

func names(t *testing.T, open Opener) {
	s := open(t, map[string][]byte{"a/b": []byte("x")}).Store
	for _, name := range []string{
		"",
		".",
		"./",
		"..",
		"../a/b",
		"a/../a/b",
		"a/..",
		"/a/b",
		"/etc/passwd",
		"a\x00b",
		strings.Repeat("n", 5000),
		strings.Repeat("d/", 3000) + "x",
	} {
		_, err1 := s.Open(t.Context(), name)
		_, err2 := s.Stat(t.Context(), name)
		_, err3 := store.ReadFile(t.Context(), s, name, 100)
		errs := []error{err1, err2, err3}
		if w, ok := s.(store.Writable); ok {
			_, err4 := w.Create(t.Context(), name)
			errs = append(errs, err4, w.Remove(t.Context(), name))
		}
		for i, err := range errs {
			if !errors.Is(err, robocache.ErrMalformed) {
				t.Errorf("%.20q, operation %d: %v", name, i, err)
			}
		}
	}
	if _, err := s.List(t.Context(), "../x"); err == nil {
		t.Error("List above the root")
	}
}

func notFound(t *testing.T, open Opener) {
	s := open(t, map[string][]byte{"a/b": []byte("x")}).Store
	for _, name := range []string{"nope", "a/nope", "nope/nope/nope", "a/b/c"} {
		_, err1 := s.Open(t.Context(), name)
		_, err2 := s.Stat(t.Context(), name)
		_, err3 := store.ReadFile(t.Context(), s, name, 100)
		for i, err := range []error{err1, err2, err3} {
			if !errors.Is(err, robocache.ErrNotFound) {
				t.Errorf("%s, operation %d: %v", name, i, err)
			}
			var e *robocache.Error
			if !errors.As(err, &e) ||
				fmt.Sprint(e.Where["dataset"], "/", e.Where["file"]) != s.URI()+"/"+name {
				t.Errorf("%s, operation %d: place missing in %v", name, i, err)
			}
		}
	}
	if w, ok := s.(store.Writable); ok {
		if err := w.Remove(t.Context(), "nope"); !errors.Is(err, robocache.ErrNotFound) {
			t.Errorf("Remove: %v", err)
		}
	}
	// A folder is not a file. Whether it exists depends on the back end.
	_, err := s.Open(t.Context(), "a")
	if !errors.Is(err, robocache.ErrNotFound) && !errors.Is(err, robocache.ErrMalformed) {
		t.Errorf("a folder: %v", err)
	}
}

func listing(t *testing.T, open Opener) {
	s := open(t, map[string][]byte{
		"b":     []byte("1"),
		"a/x":   []byte("22"),
		"a/y/z": []byte("333"),
		"a-b":   nil,
		"ab/c":  []byte("4"),
	}).Store
	_, err := s.List(t.Context(), "")
	if errors.Is(err, robocache.ErrUnsupported) {
		t.Skip("this back end cannot list")
	}
	if err != nil {
		t.Fatal(err)
	}
	for prefix, want := range map[string][]string{
		"":  {"a-b", "a/x", "a/y/z", "ab/c", "b"},
		".": {"a-b", "a/x", "a/y/z", "ab/c", "b"}, "a": {"a/x", "a/y/z"}, "a/": {"a/x", "a/y/z"},
		"a/y": {"a/y/z"}, "nope": nil, "b": nil, "a/x/y": nil,
	} {
		list, err := s.List(t.Context(), prefix)
		if err != nil {
			t.Fatalf("%q: %v", prefix, err)
		}
		var got []string
		for _, e := range list {
			got = append(got, e.Name)
			st, err := s.Stat(t.Context(), e.Name)
			if err != nil || st != e {
				t.Errorf("%q: listed %+v, Stat says %+v, %v", prefix, e, st, err)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%q: %q, want %q", prefix, got, want)
		}
	}
}

func limit(t *testing.T, open Opener) {
	s := open(t, map[string][]byte{"a": Bytes(1000, 1), "empty": nil}).Store
	for _, l := range []int64{-1, 0, 999} {
		b, err := store.ReadFile(t.Context(), s, "a", l)
		if !errors.Is(err, robocache.ErrResourceLimit) || b != nil {
			t.Errorf("limit %d: %d bytes, %v", l, len(b), err)
		}
	}
	for _, l := range []int64{1000, 1001, math.MaxInt64} {
		if b, err := store.ReadFile(t.Context(), s, "a", l); err != nil || len(b) != 1000 {
			t.Errorf("limit %d: %d bytes, %v", l, len(b), err)
		}
	}
	if b, err := store.ReadFile(t.Context(), s, "empty", 0); err != nil || len(b) != 0 {
		t.Errorf("empty: %d bytes, %v", len(b), err)
	}
}

func cancel(t *testing.T, open Opener) {
	s := open(t, map[string][]byte{"a": Bytes(1000, 1)}).Store
	f := mustOpen(t, s, "a")
	defer f.Close()
	ctx, stop := context.WithCancel(t.Context())
	stop()
	_, err1 := s.Open(ctx, "a")
	_, err2 := s.Stat(ctx, "a")
	_, err3 := store.ReadFile(ctx, s, "a", 1000)
	for i, err := range []error{err1, err2, err3, f.ReadAt(ctx, make([]byte, 10), 0)} {
		if !errors.Is(err, context.Canceled) {
			t.Errorf("operation %d: %v", i, err)
		}
	}
	if err := f.ReadAt(t.Context(), make([]byte, 10), 0); err != nil {
		t.Errorf("the handle did not outlive another's cancel: %v", err)
	}
}

func afterClose(t *testing.T, open Opener) {
	s := open(t, map[string][]byte{"a": Bytes(1000, 1)}).Store
	f := mustOpen(t, s, "a")
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	err := f.ReadAt(t.Context(), make([]byte, 10), 0)
	if !errors.Is(err, robocache.ErrMisuse) || !errors.Is(err, fs.ErrClosed) {
		t.Errorf("read after Close: %v", err)
	}
	if err := f.Close(); err != nil {
		t.Errorf("second Close: %v", err)
	}
}

func mustOpen(t *testing.T, s store.Store, name string) robocache.Ranged {
	t.Helper()
	f, err := s.Open(t.Context(), name)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return f
}
