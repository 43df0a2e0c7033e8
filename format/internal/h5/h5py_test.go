package h5

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/goatnote-inc/robocache/internal/tests/realdata"
)

// python returns an interpreter that has h5py. It skips the test if there is none.
func python(t testing.TB) string {
	py := filepath.Join(realdata.Root(t), ".venv/bin/python")
	if _, err := os.Stat(py); err != nil {
		t.Skip("no .venv with h5py: ", err)
	}
	return py
}

// TestH5py compares files that h5py writes in every libver setting, with thousands of members and
// chunks, with what h5py reads from them (h5.H1).
func TestH5py(t *testing.T) {
	if testing.Short() {
		t.Skip("h5py writes files for 20 s")
	}
	dir := t.TempDir()
	args := []string{"testdata/make.py", dir}
	if os.Getenv("ROBOCACHE_EXHAUSTIVE") != "" {
		args = append(args, "all")
	} else {
		t.Log(
			"thousands of members and chunks in the newest layout alone; " +
				"ROBOCACHE_EXHAUSTIVE=1: in the oldest too",
		)
	}
	if out, err := exec.CommandContext(t.Context(), python(t), args...).
		CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	files, _ := filepath.Glob(filepath.Join(dir, "*.hdf5"))
	if len(files) < 8 {
		t.Fatal(files)
	}
	for _, path := range files {
		t.Run(filepath.Base(path), func(t *testing.T) {
			f := openFile(t, path, 8<<20)
			want := readOracle(t, path[:len(path)-5]+".json")
			if len(want) < 300 {
				t.Fatal(len(want))
			}
			for object, w := range want {
				if object != "named" {
					checkObject(t, f, object, w)
				}
			}
		})
	}
}
