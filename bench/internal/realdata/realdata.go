// Package realdata locates robot data for tests of the bench module. It searches ROBOCACHE_TESTDATA
// (default: ../shared/data beside the repository), then testdata/shared. The latter has small sets and
// is part of every clone.
package realdata

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Root returns the root of the repository: the folder that holds the bench module.
func Root(tb testing.TB) string {
	tb.Helper()
	dir, err := os.Getwd()
	if err != nil {
		tb.Fatal(err)
	}
	for ; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "bench", "go.mod")); err == nil {
			return dir
		}
		if dir == filepath.Dir(dir) {
			tb.Fatal("no bench/go.mod above the test")
		}
	}
}

// Path returns the path of a file or folder of the data. It skips the test, with the reason, if the
// path does not exist.
func Path(tb testing.TB, name string) string {
	tb.Helper()
	base := os.Getenv("ROBOCACHE_TESTDATA")
	if base == "" {
		base = filepath.Join(Root(tb), "..", "shared", "data")
	}
	if _, err := os.Stat(base); err != nil {
		base = filepath.Join(Root(tb), "testdata", "shared")
	}
	path := filepath.Join(base, name)
	if _, err := os.Stat(path); err != nil {
		recordMissing(tb)
		tb.Skipf("no shared data: %s (set ROBOCACHE_TESTDATA)", path)
	}
	return path
}

// recordMissing appends the package and the test to the file that ROBOCACHE_NEEDS_DATA names.
// scripts/tests/with-data.sh runs the tests in the file again.
func recordMissing(tb testing.TB) {
	tb.Helper()
	path := os.Getenv("ROBOCACHE_NEEDS_DATA")
	if path == "" {
		return
	}
	dir, err := os.Getwd()
	if err != nil {
		tb.Fatal(err)
	}
	pkg, err := filepath.Rel(Root(tb), dir)
	if err != nil {
		tb.Fatal(err)
	}
	test, _, _ := strings.Cut(tb.Name(), "/")
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		tb.Fatal(err)
	}
	defer f.Close()
	if _, err := fmt.Fprintf(f, "./%s %s\n", pkg, test); err != nil {
		tb.Fatal(err)
	}
}

// Python returns the interpreter in .venv. It skips the test if .venv lacks one of the modules. It
// searches the modules without importing them, because importing torch takes four seconds of CPU
// time.
func Python(tb testing.TB, modules ...string) string {
	tb.Helper()
	py := filepath.Join(Root(tb), ".venv", "bin", "python")
	find := "import sys, importlib.util as u; sys.exit(' '.join(m for m in sys.argv[1:] if not " +
		"u.find_spec(m)) or None)"
	if out, err := exec.Command(py, append([]string{"-c", find}, modules...)...).
		CombinedOutput(); err != nil {
		tb.Skipf("not all of %q are in .venv (make peers): %v %s", modules, err, out)
	}
	return py
}
