package video

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/goatnote-inc/robocache"
)

// shelf is an Opener over bytes that counts open files.
type shelf struct {
	data    []byte
	version atomic.Int64
	open    atomic.Int64
	most    atomic.Int64
	opens   atomic.Int64
	fail    atomic.Bool
}

type shelved struct {
	memory
	s       *shelf
	version string
	closed  atomic.Bool
}

func (s *shelf) Open(ctx context.Context, path string) (robocache.Ranged, error) {
	if path == "missing.mp4" || s.fail.Load() {
		return nil, &robocache.Error{Class: robocache.ErrNotFound, Msg: "no such file"}
	}
	data := s.data
	if path == "bad.mp4" {
		data = data[:100]
	}
	s.opens.Add(1)
	n := s.open.Add(1)
	for {
		m := s.most.Load()
		if n <= m || s.most.CompareAndSwap(m, n) {
			break
		}
	}
	return &shelved{memory: memory{data: data}, s: s, version: fmt.Sprint(s.version.Load())}, nil
}

func (f *shelved) ReadAt(ctx context.Context, p []byte, off int64) error {
	if f.closed.Load() {
		return &robocache.Error{Class: robocache.ErrMisuse, Msg: "read of a closed file"}
	}
	return (&memory{data: f.data}).ReadAt(ctx, p, off)
}
func (f *shelved) Version() string { return f.version }
func (f *shelved) Close() error {
	if f.closed.Swap(true) {
		return errors.New("closed twice")
	}
	f.s.open.Add(-1)
	return nil
}

// TestLibrary: budgets hold, files in use stay open, bad files do not affect others, a changed file
// is read again, and Close closes all files (video.V7).
func TestLibrary(t *testing.T) {
	ctx := t.Context()
	s := &shelf{data: (&fake{samples: constant(200, 5)}).bytes()}
	one := mustIndex(t, &fake{samples: constant(200, 5)}).MemoryBytes()
	l := NewLibrary(s.Open, 100*one)
	held, err := l.Acquire(ctx, "held.mp4")
	if err != nil {
		t.Fatal(err)
	}
	for i := range 300 {
		f, err := l.Acquire(ctx, fmt.Sprintf("%d.mp4", i))
		if err != nil {
			t.Fatal(err)
		}
		f.Release()
		if st := l.Stats(); st.IndexBytes > 100*one || st.OpenFiles > maxIdleOpen {
			t.Fatalf("after %d files: %+v", i, st)
		}
	}
	if n := s.open.Load(); n > maxIdleOpen+1 {
		t.Errorf("%d files are open", n)
	}
	if err := held.Ranged.ReadAt(ctx, make([]byte, 8), 0); err != nil {
		t.Errorf("the file in use: %v", err)
	}
	if st := l.Stats(); st.Evicted != 200 || st.Reads != 301 {
		t.Errorf("%+v", st)
	}
	// A closed file with a known index is opened again. Its index is read again only if the file
	// changed.
	f, err := l.Acquire(ctx, "201.mp4")
	if err != nil || l.Stats().Reads != 301 {
		t.Errorf("%v %+v", err, l.Stats())
	}
	f.Release()
	s.version.Add(1)
	if f, err = l.Acquire(ctx, "202.mp4"); err != nil || l.Stats().Reads != 302 {
		t.Errorf("a changed file: %v %+v", err, l.Stats())
	}
	f.Release()
	for _, path := range []string{"missing.mp4", "bad.mp4"} {
		_, err := l.Acquire(ctx, path)
		var e *robocache.Error
		if !errors.As(err, &e) || e.Where["file"] != path {
			t.Errorf("%s: %v", path, err)
		}
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	held.Release()
	if n := s.open.Load(); n != 0 {
		t.Errorf("%d files are open after Close", n)
	}
	if _, err := l.Acquire(ctx, "1.mp4"); !errors.Is(err, robocache.ErrMisuse) {
		t.Errorf("after Close: %v", err)
	}
}

// TestLibraryTogether: goroutines share a few files. Each file is loaded once at a time, and is
// never closed while it is in use.
func TestLibraryTogether(t *testing.T) {
	s := &shelf{data: (&fake{samples: constant(50, 5)}).bytes()}
	l := NewLibrary(s.Open, 1500) // fits two or three indexes
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(uint64(g), 1))
			for range 200 {
				ctx, cancel := context.WithCancel(t.Context())
				if r.IntN(10) == 0 {
					cancel()
				}
				f, err := l.Acquire(ctx, fmt.Sprintf("%d.mp4", r.IntN(6)))
				if err == nil {
					if err := f.Ranged.ReadAt(t.Context(), make([]byte, 16), 0); err != nil ||
						f.Index.NumFrames() != 50 {
						t.Errorf("%s: %v", f.Path, err)
					}
					f.Release()
				} else if !errors.Is(err, context.Canceled) {
					t.Error(err)
				}
				cancel()
			}
		})
	}
	wg.Wait()
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if n := s.open.Load(); n != 0 {
		t.Errorf("%d files are open", n)
	}
}

// TestLibraryShares: concurrent callers share one load.
func TestLibraryShares(t *testing.T) {
	s := &shelf{data: (&fake{samples: constant(50, 5)}).bytes()}
	gate := make(chan struct{})
	l := NewLibrary(func(ctx context.Context, path string) (robocache.Ranged, error) {
		<-gate
		return s.Open(ctx, path)
	}, 0)
	var wg sync.WaitGroup
	files := make([]*File, 10)
	for i := range files {
		wg.Go(func() {
			f, err := l.Acquire(t.Context(), "a.mp4")
			if err != nil {
				t.Error(err)
			}
			files[i] = f
		})
	}
	close(gate)
	wg.Wait()
	if s.opens.Load() != 1 ||
		slices.ContainsFunc(files, func(f *File) bool { return f != files[0] }) {
		t.Errorf("%d loads", s.opens.Load())
	}
	for _, f := range files {
		f.Release()
	}
	if err := l.Close(); err != nil || s.open.Load() != 0 {
		t.Errorf("%v, %d open", err, s.open.Load())
	}
}
