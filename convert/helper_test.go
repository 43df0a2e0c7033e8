package convert

import (
	"crypto/sha256"
	"encoding/hex"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/goatnote-inc/robocache"
	_ "github.com/goatnote-inc/robocache/format/lerobot"
	_ "github.com/goatnote-inc/robocache/video/ffmpeg"
)

// root finds the repository's root by walking up to go.mod.
func root(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for ; dir != "/"; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
	}
	t.Fatal("no go.mod above the test")
	return ""
}

// data gives a folder of the test data, or skips with the reason.
func data(t testing.TB, name string) string {
	t.Helper()
	base := os.Getenv("ROBOCACHE_TESTDATA")
	if base == "" {
		base = filepath.Join(root(t), "..", "shared", "data")
	}
	p := filepath.Join(base, name)
	if _, err := os.Stat(p); err != nil {
		t.Skipf("no test data: %v", err)
	}
	return p
}

func open(t testing.TB, path string) robocache.Dataset {
	t.Helper()
	ds, err := robocache.Open(t.Context(), path, robocache.OpenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ds.Close() })
	return ds
}

// tree gives file → sha256 of everything below a folder.
func tree(t testing.TB, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(p)
		if err != nil {
			return err
		}
		s := sha256.Sum256(b)
		rel, _ := filepath.Rel(dir, p)
		out[rel] = hex.EncodeToString(s[:])
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}
