// Package realdata finds the robot data for tests: in ROBOCACHE_TESTDATA (default: ../shared/data beside the repository), else the small sets of
// it that every clone has (testdata/shared).
package realdata

import (
	"os"
	"os/exec"
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

// Dir is the folder of the shared data, or of the small sets where that is missing.
func Dir(tb testing.TB) string {
	tb.Helper()
	base := os.Getenv("ROBOCACHE_TESTDATA")
	if base == "" {
		base = filepath.Join(Root(tb), "..", "shared", "data")
	}
	if _, err := os.Stat(base); err != nil {
		return filepath.Join(Root(tb), "testdata", "shared")
	}
	return base
}

// Find gives the path of a file or folder of the data, and whether it is there.
func Find(tb testing.TB, name string) (path string, ok bool) {
	tb.Helper()
	path = filepath.Join(Dir(tb), name)
	_, err := os.Stat(path)
	return path, err == nil
}

// Path is Find; where it is missing the test skips and says so.
func Path(tb testing.TB, name string) string {
	tb.Helper()
	path, ok := Find(tb, name)
	if !ok {
		tb.Skipf("no shared data: %s (set ROBOCACHE_TESTDATA)", path)
	}
	return path
}

// Python is the repository's own interpreter, which has the modules named; where it lacks one the test skips. They are looked for and not
// imported: torch alone takes four seconds of a core.
func Python(tb testing.TB, modules ...string) string {
	tb.Helper()
	py := filepath.Join(Root(tb), ".venv", "bin", "python")
	find := "import sys, importlib.util as u; sys.exit(' '.join(m for m in sys.argv[1:] if not u.find_spec(m)) or None)"
	if out, err := exec.Command(py, append([]string{"-c", find}, modules...)...).CombinedOutput(); err != nil {
		tb.Skipf("not all of %q are in .venv (make peers): %v %s", modules, err, out)
	}
	return py
}
