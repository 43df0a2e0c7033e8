package arrivals

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"sync"
	"testing"
	"time"

	"github.com/goatnote-inc/robocache"
)

func mustOpen(t testing.TB, path string, terms Terms) *Log {
	t.Helper()
	l, err := Open(path, terms)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// appendEpisodes appends arrivals with the IDs from, …, to-1 and a boundary of run "r".
func appendEpisodes(t testing.TB, l *Log, from, to int, epoch int64) {
	t.Helper()
	err := l.Update(func() ([]Arrival, *Boundary, error) {
		var list []Arrival
		for i := from; i < to; i++ {
			list = append(list, Arrival{ID: fmt.Sprint(i), Index: int64(i), Rows: int64(i + 1)})
		}
		return list, &Boundary{Run: "r", Epoch: epoch, Arrivals: l.Len() + len(list)}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestLogKeepsRecords checks arrivals.C1 to C3 and C7: what was appended is read again, the first
// boundary of an epoch counts, and digests identify prefixes.
func TestLogKeepsRecords(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	l := mustOpen(t, path, Terms{Where: "done", Policy: "p"})
	if l.ID() != "" || l.Len() != 0 {
		t.Fatal("a log that does not exist has records")
	}
	appendEpisodes(t, l, 0, 3, 0)
	appendEpisodes(t, l, 3, 5, 1)
	appendEpisodes(t, l, 5, 6, 1) // the second boundary of epoch 1
	again := mustOpen(t, path, Terms{Where: "done", Policy: "p"})
	if again.ID() != l.ID() || !reflect.DeepEqual(again.Prefix(6), l.Prefix(6)) {
		t.Errorf("read %v, wrote %v", again.Prefix(again.Len()), l.Prefix(6))
	}
	for epoch, want := range []int{3, 5} {
		if b, ok := again.Boundary("r", int64(epoch)); !ok || b.Arrivals != want {
			t.Errorf("epoch %d: boundary %+v, want %d arrivals", epoch, b, want)
		}
	}
	if _, ok := again.Boundary("other", 0); ok {
		t.Error("another run has a boundary")
	}
	seen := map[string]bool{}
	for n := range 7 {
		d := again.Digest(n)
		if d == "" || seen[d] || d != l.Digest(n) {
			t.Errorf("digest of %d arrivals: %q, and %q of the writer", n, d, l.Digest(n))
		}
		seen[d] = true
	}
	if again.Digest(7) != "" || again.Digest(-1) != "" {
		t.Error("a prefix that does not exist has a digest")
	}
	if _, err := Open(path, Terms{}); !errors.Is(err, robocache.ErrMisuse) {
		t.Errorf("other terms: %v", err)
	}
	other := mustOpen(t, filepath.Join(t.TempDir(), "log"), Terms{Where: "done", Policy: "p"})
	appendEpisodes(t, other, 0, 3, 0)
	if other.Digest(3) == l.Digest(3) {
		t.Error("another log has the same digest")
	}
}

// TestLogSurvivesEveryCut checks arrivals.C5: a log that is cut at any byte holds the complete
// records before it, and the next writer continues there.
func TestLogSurvivesEveryCut(t *testing.T) {
	dir := t.TempDir()
	l := mustOpen(t, filepath.Join(dir, "log"), Terms{})
	appendEpisodes(t, l, 0, 3, 0)
	appendEpisodes(t, l, 3, 4, 1)
	whole, err := os.ReadFile(l.Path())
	if err != nil {
		t.Fatal(err)
	}
	for cut := range len(whole) + 1 {
		path := filepath.Join(dir, fmt.Sprint("cut", cut))
		if err := os.WriteFile(path, whole[:cut], 0o600); err != nil {
			t.Fatal(err)
		}
		torn := mustOpen(t, path, Terms{})
		lines := bytes.Count(whole[:cut], []byte("\n"))
		arrived := []int{0, 0, 1, 2, 3, 3, 4, 4}[lines]
		if torn.Len() != arrived {
			t.Fatalf("cut at %d: %d arrivals, want %d", cut, torn.Len(), arrived)
		}
		appendEpisodes(t, torn, arrived, 6, 7)
		again := mustOpen(t, path, Terms{})
		if again.Len() != 6 {
			t.Fatalf("cut at %d: %d arrivals after the next writer, want 6", cut, again.Len())
		}
		if b, ok := again.Boundary("r", 7); !ok || b.Arrivals != 6 {
			t.Fatalf("cut at %d: boundary %+v", cut, b)
		}
	}
}

// TestLogDamage checks that a changed byte is noticed (arrivals.C5): in the last line it counts as
// torn, and before it is an error.
func TestLogDamage(t *testing.T) {
	dir := t.TempDir()
	l := mustOpen(t, filepath.Join(dir, "log"), Terms{})
	appendEpisodes(t, l, 0, 3, 0)
	whole, err := os.ReadFile(l.Path())
	if err != nil {
		t.Fatal(err)
	}
	last := bytes.LastIndexByte(whole[:len(whole)-1], '\n') + 1
	for at := range whole {
		if whole[at] == '\n' {
			continue
		}
		changed := bytes.Clone(whole)
		changed[at] ^= 0x11
		path := filepath.Join(dir, "changed")
		if err := os.WriteFile(path, changed, 0o600); err != nil {
			t.Fatal(err)
		}
		torn, err := Open(path, Terms{})
		if at < last && !errors.Is(err, robocache.ErrMalformed) {
			t.Fatalf("byte %d is changed: %v", at, err)
		}
		if _, ok := torn.Boundary("r", 0); at >= last && (err != nil || ok) {
			t.Fatalf("byte %d of the last line is changed: %v, boundary %v", at, err, ok)
		}
	}
	if err := os.WriteFile(l.Path(), whole[:20], 0o600); err != nil {
		t.Fatal(err)
	}
	if err := l.Refresh(); !errors.Is(err, robocache.ErrMalformed) {
		t.Errorf("a log that became shorter: %v", err)
	}
}

// TestLogWritersExcludeEachOther checks arrivals.C3 and C6: of several writers, one decides each
// boundary, and all see the same one.
func TestLogWritersExcludeEachOther(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	const writers, epochs = 6, 20
	got := make([][epochs]int, writers)
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			l, err := Open(path, Terms{})
			if err != nil {
				t.Error(err)
				return
			}
			for epoch := range epochs {
				err := l.Update(func() ([]Arrival, *Boundary, error) {
					if _, ok := l.Boundary("r", int64(epoch)); ok {
						return nil, nil, nil
					}
					id := fmt.Sprintf("%d by %d", epoch, w)
					b := &Boundary{Run: "r", Epoch: int64(epoch), Arrivals: l.Len() + 1}
					return []Arrival{{ID: id}}, b, nil
				})
				if err != nil {
					t.Error(err)
					return
				}
				b, _ := l.Boundary("r", int64(epoch))
				got[w][epoch] = b.Arrivals
			}
		})
	}
	wg.Wait()
	for w := range got {
		if got[w] != got[0] || got[w][epochs-1] != epochs {
			t.Errorf("writer %d saw %v, and writer 0 %v", w, got[w], got[0])
		}
	}
}

// TestAwait checks that a rank sees a boundary that another one writes later, and an error that
// names it if none comes.
func TestAwait(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	waiting := mustOpen(t, path, Terms{})
	_, err := waiting.Await(t.Context(), "r", 0, time.Millisecond)
	if !errors.Is(err, robocache.ErrTemporary) {
		t.Errorf("nobody writes: %v", err)
	}
	go func() {
		time.Sleep(20 * time.Millisecond)
		l, err := Open(path, Terms{})
		if err != nil {
			t.Error(err)
			return
		}
		appendEpisodes(t, l, 0, 2, 0)
	}()
	b, err := waiting.Await(t.Context(), "r", 0, time.Minute)
	if err != nil || b.Arrivals != 2 || waiting.Len() != 2 {
		t.Errorf("boundary %+v, %v", b, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := waiting.Await(ctx, "r", 1, time.Minute); !errors.Is(err, context.Canceled) {
		t.Errorf("canceled: %v", err)
	}
}

func TestLogThatCannotBeWritten(t *testing.T) {
	l := mustOpen(t, filepath.Join(t.TempDir(), "no", "such", "folder"), Terms{})
	err := l.Update(func() ([]Arrival, *Boundary, error) { return nil, nil, nil })
	if !errors.Is(err, robocache.ErrMisuse) {
		t.Errorf("%v", err)
	}
}

func FuzzLog(f *testing.F) {
	l := mustOpen(f, filepath.Join(f.TempDir(), "log"), Terms{})
	appendEpisodes(f, l, 0, 2, 0)
	whole, err := os.ReadFile(l.Path())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(whole)
	f.Add([]byte("00000000 {}\n\n"))
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, b []byte) {
		path := filepath.Join(dir, "log")
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		l, err := Open(path, Terms{})
		if err == nil {
			l.Digest(l.Len())
			err = l.Update(func() ([]Arrival, *Boundary, error) { return nil, nil, nil })
		}
		var typed *robocache.Error
		if err != nil && !errors.As(err, &typed) {
			t.Fatalf("%T: %v", err, err)
		}
	})
}
