package storetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/store"
)

func writing(t *testing.T, open Opener) {
	writable := func(t *testing.T, files map[string][]byte) store.Writable {
		return open(t, files).Store.(store.Writable)
	}
	read := func(t *testing.T, s store.Store, name string) string {
		t.Helper()
		b, err := store.ReadFile(t.Context(), s, name, 1<<20)
		if errors.Is(err, robocache.ErrNotFound) {
			return "(none)"
		}
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	only := func(t *testing.T, s store.Store, want string) {
		t.Helper()
		list, err := s.List(t.Context(), "")
		got := ""
		for _, e := range list {
			got += e.Name + " "
		}
		if err != nil || got != want {
			t.Fatalf("the store holds %q, %v; want %q", got, err, want)
		}
	}

	t.Run("appears whole at commit", func(t *testing.T) {
		s := writable(t, map[string][]byte{"d/old": []byte("old")})
		for _, name := range []string{"d/old", "d/e/f/new"} {
			before := read(t, s, name)
			w := mustCreate(t, s, name)
			mustWrite(t, w, "hello ")
			mustWrite(t, w, "world")
			if got := read(t, s, name); got != before {
				t.Fatalf("%s before Commit: %q", name, got)
			}
			if err := w.Commit(); err != nil {
				t.Fatal(err)
			}
			w.Abort()
			if got := read(t, s, name); got != "hello world" {
				t.Fatalf("%s: %q", name, got)
			}
			if _, err := w.Write([]byte("x")); !errors.Is(err, robocache.ErrMisuse) {
				t.Errorf("write after Commit: %v", err)
			}
			if err := w.Commit(); !errors.Is(err, robocache.ErrMisuse) {
				t.Errorf("second Commit: %v", err)
			}
		}
		only(t, s, "d/e/f/new d/old ")
	})
	t.Run("a handle keeps the replaced file", func(t *testing.T) {
		s := writable(t, map[string][]byte{"a": []byte("old")})
		f := mustOpen(t, s, "a")
		w := mustCreate(t, s, "a")
		mustWrite(t, w, "new!")
		if err := w.Commit(); err != nil {
			t.Fatal(err)
		}
		p := make([]byte, 3)
		err := f.ReadAt(t.Context(), p, 0)
		if err == nil && string(p) != "old" || err != nil && !errors.Is(err, store.ErrChanged) {
			t.Fatalf("%q, %v", p, err)
		}
		if e, _ := s.Stat(t.Context(), "a"); e.Version == f.Version() {
			t.Error("the version did not change")
		}
		f.Close()
	})
	t.Run("places", func(t *testing.T) {
		s := writable(t, nil)
		w := mustCreate(t, s, "a")
		mustWrite(t, w, "header??")
		mustWrite(t, w, "body")
		if _, err := w.WriteAt([]byte("!!"), 6); err != nil {
			t.Fatal(err)
		}
		mustWrite(t, w, " more") // WriteAt does not change the position of Write
		if _, err := w.WriteAt([]byte("end"), 20); err != nil {
			t.Fatal(err)
		}
		if err := w.Commit(); err != nil {
			t.Fatal(err)
		}
		if got, want := read(t, s, "a"), "header!!body more\x00\x00\x00end"; got != want {
			t.Fatalf("%q, want %q", got, want)
		}
	})
	t.Run("empty", func(t *testing.T) {
		s := writable(t, nil)
		if err := mustCreate(t, s, "a").Commit(); err != nil || read(t, s, "a") != "" {
			t.Fatal(err)
		}
	})
	t.Run("abort leaves nothing", func(t *testing.T) {
		s := writable(t, map[string][]byte{"a": []byte("old")})
		for _, name := range []string{"a", "b"} {
			w := mustCreate(t, s, name)
			mustWrite(t, w, "new")
			w.Abort()
			w.Abort()
			if _, err := w.Write([]byte("x")); !errors.Is(err, robocache.ErrMisuse) {
				t.Errorf("write after Abort: %v", err)
			}
			if err := w.Commit(); !errors.Is(err, robocache.ErrMisuse) {
				t.Errorf("Commit after Abort: %v", err)
			}
		}
		only(t, s, "a ")
		if read(t, s, "a") != "old" {
			t.Error("Abort touched the old file")
		}
	})
	t.Run("cancelled", func(t *testing.T) {
		s := writable(t, nil)
		ctx, stop := context.WithCancel(t.Context())
		w, err := s.Create(ctx, "a")
		if err != nil {
			t.Fatal(err)
		}
		mustWrite(t, w, "x")
		stop()
		if err := w.Commit(); !errors.Is(err, context.Canceled) {
			t.Errorf("Commit: %v", err)
		}
		w.Abort()
		only(t, s, "")
	})
	t.Run("one winner", func(t *testing.T) {
		s := writable(t, nil)
		if _, ok := s.(store.Exclusive); !ok {
			t.Skip("no CreateNew")
		}
		var won atomic.Int32
		var winner atomic.Value
		var wg sync.WaitGroup
		for i := range 8 {
			wg.Go(func() {
				w, err := store.CreateNew(t.Context(), s, "r/receipt")
				if err != nil {
					t.Error(err)
					return
				}
				text := fmt.Sprintf("writer %d", i)
				if _, err := w.Write([]byte(text)); err != nil {
					t.Error(err)
				}
				switch err := w.Commit(); {
				case err == nil:
					won.Add(1)
					winner.Store(text)
				case !errors.Is(err, store.ErrExists) || !errors.Is(err, robocache.ErrMisuse):
					t.Errorf("loser: %v", err)
				}
			})
		}
		wg.Wait()
		if won.Load() != 1 || read(t, s, "r/receipt") != winner.Load() {
			t.Fatalf(
				"%d winners; the file says %q, the winner %q",
				won.Load(),
				read(t, s, "r/receipt"),
				winner.Load(),
			)
		}
		only(t, s, "r/receipt ")
	})
	t.Run("put, and put where there is none", func(t *testing.T) {
		s := writable(t, map[string][]byte{"a": []byte("old")})
		if err := store.Put(t.Context(), s, "a", []byte("new")); err != nil ||
			read(t, s, "a") != "new" {
			t.Fatal(err)
		}
		if _, ok := s.(store.Exclusive); !ok {
			t.Skip("no CreateNew")
		}
		for _, name := range []string{"d/b", "d/empty"} {
			text := strings.Repeat("x", len(name)%3)
			err := store.PutNew(t.Context(), s, name, []byte(text))
			if err != nil || read(t, s, name) != text {
				t.Fatal(err)
			}
			var e *robocache.Error
			err = store.PutNew(t.Context(), s, name, []byte(text))
			if !errors.Is(err, store.ErrExists) {
				t.Errorf("%s again, with the same bytes: %v", name, err)
			}
			err = store.PutNew(t.Context(), s, name, []byte("other"))
			if !errors.Is(err, store.ErrExists) || !errors.Is(err, robocache.ErrMisuse) ||
				!errors.As(err, &e) ||
				!strings.HasSuffix(fmt.Sprint(e.Where["file"]), name) {
				t.Fatalf("the second: %v", err)
			}
			if read(t, s, name) != text {
				t.Fatal("the loser's bytes")
			}
		}
		if err := store.Probe(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		only(t, s, "a d/b d/empty ")
	})
	t.Run("remove", func(t *testing.T) {
		s := writable(t, map[string][]byte{"a/b": []byte("x"), "a/c": []byte("y")})
		if err := s.Remove(t.Context(), "a/b"); err != nil {
			t.Fatal(err)
		}
		only(t, s, "a/c ")
		if err := s.Remove(t.Context(), "a"); err == nil {
			t.Error("a folder was removed")
		}
	})
	t.Run("move", func(t *testing.T) {
		s := writable(t, map[string][]byte{"a/b + %c": []byte("x"), "d": []byte("old")})
		for _, to := range []string{"d", "e/f + %g", "e/f + %g"} {
			from := map[string]string{"d": "a/b + %c"}[to]
			if from == "" {
				from = "d"
				if _, err := s.Stat(t.Context(), from); err != nil {
					from = to // onto itself
				}
			}
			if err := store.Move(t.Context(), s, from, to); err != nil || read(t, s, to) != "x" {
				t.Fatalf("%s to %s: %v", from, to, err)
			}
		}
		only(t, s, "e/f + %g ")
		var e *robocache.Error
		err := store.Move(t.Context(), s, "none", "x")
		if !errors.Is(err, robocache.ErrNotFound) || !errors.As(err, &e) ||
			!strings.HasSuffix(fmt.Sprint(e.Where["file"]), "none") {
			t.Error(err)
		}
	})
	t.Run("every fault leaves old or new", func(t *testing.T) { faults(t, writable) })
}

// faults fails the n-th operation of a small job, for all n, and checks the remaining files.
func faults(t *testing.T, writable func(*testing.T, map[string][]byte) store.Writable) {
	for _, kind := range []Fault{FaultFail, FaultShort, FaultChanged} {
		for n := int64(1); ; n++ {
			s := writable(t, map[string][]byte{"a": []byte("old")})
			plan := &Plan{Nth: n, Fault: kind}
			err := rewrite(t.Context(), Faulty(s, plan).(store.Writable))
			got, rerr := store.ReadFile(t.Context(), s, "a", 100)
			if rerr != nil {
				t.Fatal(rerr)
			}
			list, lerr := s.List(t.Context(), "")
			if lerr != nil || len(list) != 1 {
				t.Fatalf("fault %d at %d left %v, %v", kind, n, list, lerr)
			}
			if !plan.Struck() {
				if err != nil || string(got) != "old, new" {
					t.Fatalf("%q, %v", got, err)
				}
				break
			}
			if !errors.Is(err, robocache.ErrTemporary) {
				t.Errorf("fault %d at %d: %v", kind, n, err)
			}
			if string(got) != "old" {
				t.Errorf("fault %d at %d: the file says %q", kind, n, got)
			}
			if n > 100 {
				t.Fatal("no end")
			}
		}
	}
}

func rewrite(ctx context.Context, s store.Writable) error {
	b, err := store.ReadFile(ctx, s, "a", 100)
	if err != nil {
		return err
	}
	w, err := s.Create(ctx, "a")
	if err != nil {
		return err
	}
	defer w.Abort()
	for _, part := range [][]byte{b, []byte(", new")} {
		if _, err := w.Write(bytes.Clone(part)); err != nil {
			return err
		}
	}
	return w.Commit()
}

func mustCreate(t *testing.T, s store.Writable, name string) store.Writer {
	t.Helper()
	w, err := s.Create(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func mustWrite(t *testing.T, w store.Writer, text string) {
	t.Helper()
	if n, err := w.Write([]byte(text)); err != nil || n != len(text) {
		t.Fatalf("wrote %d of %d: %v", n, len(text), err)
	}
}
