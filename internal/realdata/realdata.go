// Package realdata finds the shared robot data for tests: ROBOCACHE_TESTDATA, else ../shared/data beside the repository.
package realdata

import (
	"os"
	"path/filepath"
	"testing"
)

// Root is the repository's root: the folder with go.mod above the test.
func Root(tb testing.TB) string {
	tb.Helper()
	dir, err := os.Getwd()
	if err != nil {
		tb.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		up := filepath.Dir(dir)
		if up == dir {
			tb.Fatal("no go.mod above the test")
		}
		dir = up
	}
}

// Path gives the path of a file or folder of the shared data; where it is missing the test skips and says so.
func Path(tb testing.TB, name string) string {
	tb.Helper()
	base := os.Getenv("ROBOCACHE_TESTDATA")
	if base == "" {
		base = filepath.Join(Root(tb), "..", "shared", "data")
	}
	p := filepath.Join(base, name)
	if _, err := os.Stat(p); err != nil {
		tb.Skipf("no shared data: %v (set ROBOCACHE_TESTDATA)", err)
	}
	return p
}
