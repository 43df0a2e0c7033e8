package store_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/goatnote-inc/robocache/store"
	"github.com/goatnote-inc/robocache/store/tests/storetest"
)

// TestFolders checks that every back end lists folders and no files. A link that leaves the root is
// listed by name.
func TestFolders(t *testing.T) {
	dir := t.TempDir()
	for _, d := range []string{"b/c/d", "a", "b/e"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, d, "f"), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("/", filepath.Join(dir, "out")); err != nil {
		t.Fatal(err)
	}
	local, err := store.OpenLocal(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer local.Close()
	mem := storetest.NewMem("folders")
	defer mem.Drop()
	for _, n := range []string{"b/c/d/f", "a/f", "b/e/f"} {
		mem.Put(n, nil)
	}
	for _, s := range []store.Store{local, mem} {
		for at, want := range map[string][]string{
			"":      {"a", "b"},
			"b":     {"c", "e"},
			"b/c/d": nil,
			"none":  nil,
			"a/f":   nil,
		} {
			got, err := store.Folders(t.Context(), s, at)
			if at == "" && s == store.Store(local) {
				want = append(want, "out") // reading it returns the error
			}
			if err != nil || !slices.Equal(got, want) {
				t.Errorf("%s %q: %v %v", s.URI(), at, got, err)
			}
		}
		below, err := store.Sub(s, "b")
		if err != nil {
			t.Fatal(err)
		}
		got, err := store.Folders(t.Context(), below, "")
		if err != nil || !slices.Equal(got, []string{"c", "e"}) {
			t.Errorf("%s: %v %v", below.URI(), got, err)
		}
		if _, err := store.Folders(t.Context(), s, "../x"); err == nil {
			t.Error("a way out was taken")
		}
	}
}
