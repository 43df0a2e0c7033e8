package robomimic

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/tests/realdata"
)

// TestRelativeActions checks that control_delta of env_args marks the actions as relative, without
// the gripper.
func TestRelativeActions(t *testing.T) {
	python := realdata.Python(t, "h5py")
	const script = `
import h5py, json, numpy as np, sys
with h5py.File(sys.argv[1], 'w') as f:
    f.create_dataset('data/demo_0/actions', data=np.ones((6, int(sys.argv[3]))))
    f['data'].attrs['env_args'] = json.dumps({'env_name': 'Lift', 'env_kwargs': json.loads(sys.argv[2])})
`
	for i, c := range []struct {
		kwargs  string
		columns int
		want    []int
	}{
		{
			`{"controller_configs": {"type": "OSC_POSE", "control_delta": true}}`,
			7,
			[]int{0, 1, 2, 3, 4, 5},
		},
		{
			`{"controller_configs": {"type": "OSC_POSITION", "control_delta": true}}`,
			4,
			[]int{0, 1, 2},
		},
		{`{"controller_configs": {"type": "OSC_POSE", "control_delta": false}}`, 7, nil},
		{`{"controller_configs": {"type": "JOINT_POSITION", "control_delta": true}}`, 7, nil},
		{`{"controller_configs": {"type": "OSC_POSE", "control_delta": true}}`, 14, nil},
		{`{"controller_configs": [1]}`, 7, nil},
		{`{}`, 7, nil},
	} {
		file := filepath.Join(t.TempDir(), "demo.hdf5")
		if out, err := exec.Command(python, "-c", script, file, c.kwargs, fmt.Sprint(c.columns)).
			CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		f := open(
			t,
			file,
			robocache.OpenOptions{HZ: robocache.Rate{Num: 20, Den: 1}},
		).Info().
			Feature("action")
		if got, _ := f.RelativeChannels(); !slices.Equal(got, c.want) {
			t.Errorf("%d: %s: relative channels %v, want %v", i, c.kwargs, got, c.want)
		}
	}
}
