package zarr

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/goatnote-inc/robocache"
)

// TestRotations checks that rotation vectors are found in UMI's layout, and that the stored
// properties of our writer are restored. Malformed properties are ignored.
func TestRotations(t *testing.T) {
	num := func(d robocache.DType, n ...int) robocache.Feature {
		return robocache.Feature{Key: "x", Kind: robocache.KindNumeric, DType: d, Shape: n}
	}
	for _, c := range []struct {
		path string
		f    robocache.Feature
		want []robocache.Rotation
	}{
		{
			"data/robot0_eef_rot_axis_angle",
			num(robocache.Float32, 3),
			[]robocache.Rotation{{At: 0, Form: "rotvec"}},
		},
		{
			"data/robot0_demo_start_pose",
			num(robocache.Float64, 6),
			[]robocache.Rotation{{At: 3, Form: "rotvec"}},
		},
		{
			"data/robot1_demo_end_pose",
			num(robocache.Float64, 6),
			[]robocache.Rotation{{At: 3, Form: "rotvec"}},
		},
		{"data/robot0_eef_rot_axis_angle", num(robocache.Float32, 4), nil},
		{"data/robot0_eef_rot_axis_angle", num(robocache.Int32, 3), nil},
		{"data/robot0_eef_pos", num(robocache.Float32, 3), nil},
	} {
		if got := umiRotations(c.path, &c.f); !slices.Equal(got, c.want) {
			t.Errorf("%s %v: %v, want %v", c.path, c.f.Shape, got, c.want)
		}
	}
	out := num(robocache.Float32, 7)
	out.Interpolation, out.Rotations = "slerp", []robocache.Rotation{{At: 3, Form: "XYZ"}}
	b, err := json.Marshal((&outStream{f: &out}).attributes()["robocache_feature"])
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range []int{7, 5} { // 5: another row length
		var m map[string]any
		if err := json.Unmarshal(b, &m); err != nil {
			t.Fatal(err)
		}
		back := num(robocache.Float32, n)
		restoreFeature(&back, m)
		if back.Interpolation != "slerp" || (len(back.Rotations) == 1) != (n == 7) ||
			n == 7 && back.Rotations[0] != out.Rotations[0] {
			t.Errorf("%d channels: %+v", n, back)
		}
	}
}
