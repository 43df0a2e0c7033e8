package robomimic

import (
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/diagnose"
	"github.com/goatnote-inc/robocache/internal/tests/realdata"
)

// TestNotFinite checks that the doctor reports the first NaN of a stream with the demo's number,
// once.
func TestNotFinite(t *testing.T) {
	file := filepath.Join(t.TempDir(), "demo.hdf5")
	script := `
import h5py, numpy as np, sys
with h5py.File(sys.argv[1], 'w') as f:
    for n in (4, 9):
        a = np.ones((6, 3))
        if n == 9: a[2, 1], a[5] = np.inf, np.nan
        f.create_dataset(f'data/demo_{n}/actions', data=a)
`
	if out, err := exec.Command(realdata.Python(t, "h5py"), "-c", script, file).
		CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	d := open(t, file, robocache.OpenOptions{HZ: robocache.Rate{Num: 10, Den: 1}})
	all, err := diagnose.Run(t.Context(), d, robocache.DiagnoseOptions{})
	if err != nil {
		t.Fatal(err)
	}
	const place = "episode 9, stream action, row 2, index 1"
	const message = "4 values are NaN or infinite; the first is element 1: +Inf"
	if len(all) != 1 || all[0].Code != "not-finite" || all[0].Where.String() != place ||
		all[0].Message != message ||
		all[0].Count != 4 {
		t.Errorf("%+v, want one finding %s: %s", all, place, message)
	}
}
