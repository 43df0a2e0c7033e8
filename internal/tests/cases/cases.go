// Package cases makes the small inputs of testdata/cases, which fail in ways that users reported.
package cases

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/goatnote-inc/robocache/internal/tests/realdata"
)

// Make runs the script testdata/cases/script.py and returns the path of the input, a file or folder
// called name. It skips the test if there is no .venv, or if the script needs a Python module that is not installed.
func Make(t *testing.T, script, variant, name string) string {
	t.Helper()
	root := realdata.Root(t)
	python := filepath.Join(root, ".venv", "bin", "python")
	if _, err := os.Stat(python); err != nil {
		t.Skip("no .venv to make the case with: ", err)
	}
	out := filepath.Join(t.TempDir(), name)
	file := filepath.Join(root, "testdata", "cases", script+".py")
	text, err := exec.CommandContext(t.Context(), python, file, out, variant).CombinedOutput()
	if bytes.Contains(text, []byte("ModuleNotFoundError")) {
		t.Skipf("%s needs a module that is not installed: %s", script, text)
	}
	if err != nil {
		t.Fatalf("%s %s: %v: %s", script, variant, err, text)
	}
	return out
}
