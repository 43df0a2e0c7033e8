package conform

import (
	"errors"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/kernel"
)

// TestReference runs all vectors on the reference.
func TestReference(t *testing.T) {
	ran, failures := Run(kernel.Reference{})
	if ran < 500 {
		t.Errorf("only %d cases ran", ran)
	}
	for i, f := range failures {
		if i == 20 {
			t.Fatalf("and %d more of %d", len(failures)-i, ran)
		}
		t.Error(f)
	}
}

// wrong changes the lowest bit of the first element of each float32 result.
type wrong struct{ kernel.Reference }

// Run implements kernel.Backend.
func (w wrong) Run(op kernel.Op) error {
	err := w.Reference.Run(op)
	if f, ok := op.(*kernel.FuseOp); ok && f.Out.DType == robocache.Float32 && len(f.Out.Data) > 0 {
		f.Out.Data[0] ^= 1
	}
	return err
}

// TestCanFail checks that a wrong back end is detected.
func TestCanFail(t *testing.T) {
	if _, failures := Run(wrong{}); len(failures) < 100 {
		t.Errorf("one wrong bit in each result was seen %d times", len(failures))
	}
}

// TestFresh checks that the committed files equal the generator's output.
func TestFresh(t *testing.T) {
	python := filepath.Join("..", "..", ".venv", "bin", "python")
	if exec.Command(python, "-c", "import mpmath").Run() != nil {
		t.Skip("no .venv with mpmath in the repository: the vectors are not made again")
	}
	dir := t.TempDir()
	if out, err := exec.Command(python, filepath.Join("..", "testdata", "generate.py"), dir,
		"--quick").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	list, err := filepath.Glob(filepath.Join(dir, "*.json"))
	ops, err2 := filepath.Glob(filepath.Join(dir, "ops", "*.json"))
	if err := errors.Join(err, err2); err != nil || len(list) < 10 || len(ops) < 7 {
		t.Fatalf("%d and %d files: %v", len(list), len(ops), err)
	}
	for _, file := range append(list, ops...) {
		made, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		name, _ := filepath.Rel(dir, file)
		have, err := kernel.Vectors.ReadFile(path.Join("testdata/vectors", filepath.ToSlash(name)))
		if err != nil || string(made) != string(have) {
			t.Errorf("%s is not what generate.py makes (%v): run go generate ./kernel", name, err)
		}
	}
}
