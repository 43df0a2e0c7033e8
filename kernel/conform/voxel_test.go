package conform

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/goatnote-inc/robocache/kernel"
)

// TestReferenceVoxels runs the vectors of voxels, depth images and TSDF on the reference.
func TestReferenceVoxels(t *testing.T) {
	ran, failures := RunVoxels(kernel.Reference{})
	if ran < 300 {
		t.Errorf("only %d cases ran", ran)
	}
	for i, f := range failures {
		if i == 20 {
			t.Fatalf("and %d more of %d", len(failures)-i, ran)
		}
		t.Error(f)
	}
}

// wrongSpace changes one bit of each result.
type wrongSpace struct{ kernel.Reference }

// Run implements kernel.Backend.
func (w wrongSpace) Run(op kernel.Op) error {
	err := w.Reference.Run(op)
	switch op := op.(type) {
	case *kernel.VoxelOp:
		if t := op.Out; t != nil && t.Len() > 0 {
			t.Data[t.Base*t.DType.Size()] ^= 1
		}
		if op.Coords != nil && op.Coords.Len() > 0 {
			op.Coords.Data[0] ^= 1
		}
	case *kernel.DepthOp:
		if op.Valid != nil && op.Valid.Len() > 0 {
			op.Valid.Data[0] ^= 1
		}
	case *kernel.TSDFOp:
		op.Weight.Data[op.Weight.Base*4] ^= 1
	}
	return err
}

// TestVoxelsCanFail checks that a wrong back end is detected.
func TestVoxelsCanFail(t *testing.T) {
	ran, failures := RunVoxels(wrongSpace{})
	if len(failures) < ran*3/4 {
		t.Errorf("one wrong bit in each result was seen %d times of %d", len(failures), ran)
	}
}

// TestVoxelsFresh checks that the committed files equal the generators' output.
func TestVoxelsFresh(t *testing.T) {
	python := filepath.Join("..", "..", ".venv", "bin", "python")
	if exec.Command(python, "-c", "import mpmath, numpy").Run() != nil {
		t.Skip("no .venv with mpmath and NumPy in the repository: the vectors are not made again")
	}
	for _, x := range []struct {
		name  string
		files int
	}{{"voxels", 5}, {"images", 1}} {
		dir := t.TempDir()
		script := "generate_" + x.name + ".py"
		if out, err := exec.Command(python, filepath.Join("..", "testdata", script), dir).
			CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		list, err := os.ReadDir(dir)
		if err != nil || len(list) != x.files {
			t.Fatalf("%d files: %v", len(list), err)
		}
		for _, e := range list {
			made, err := os.ReadFile(filepath.Join(dir, e.Name()))
			if err != nil {
				t.Fatal(err)
			}
			have, err := kernel.Vectors.ReadFile("testdata/vectors/" + x.name + "/" + e.Name())
			if err != nil || string(made) != string(have) {
				t.Errorf(
					"%s is not what %s makes (%v): run go generate ./kernel",
					e.Name(),
					script,
					err,
				)
			}
		}
	}
}
