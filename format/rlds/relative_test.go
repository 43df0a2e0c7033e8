package rlds

import (
	"slices"
	"testing"

	"github.com/goatnote-inc/robocache"
)

// TestMarkRelative checks which actions are marked by the data set or its description.
func TestMarkRelative(t *testing.T) {
	six := []int{0, 1, 2, 3, 4, 5}
	for _, c := range []struct {
		set, key, description string
		width                 int
		want                  []int
	}{
		{"bridge_dataset", "action", "[7x joint velocities, 2x gripper velocities]", 7, six},
		{"libero_10_no_noops", "action", "", 7, six},
		{"stanford_hydra_dataset_converted_externally_to_rlds", "action", "", 7, six},
		{"bridge_dataset", "observation.state", "", 7, nil},
		{"bridge_dataset", "action", "", 8, nil},
		{"my_robot", "action", "", 7, nil},
		{"my_robot", "action", "6x end effector delta pose, 1x gripper position", 7, six},
		{"my_robot", "action", "Relative translation of the tool.", 3, []int{0, 1, 2}},
		{"my_robot", "action", "absolute pose; see delta for changes", 7, nil},
		{"my_robot", "action", "delta position, delta quaternion", 7, nil},
		{"my_robot", "action", "3x joint deltas of 12 and more", 12, nil},
		{"droid", "action", "", 7, nil},
	} {
		d := &Dataset{info: &infoFile{Name: c.set}}
		f := robocache.Feature{
			Key:   c.key,
			Kind:  robocache.KindNumeric,
			DType: robocache.Float32,
			Shape: []int{c.width},
		}
		d.markRelative(&f, &leaf{key: c.key, description: c.description})
		if !slices.Equal(f.Relative, c.want) || (f.RelativeReason == "") != (c.want == nil) {
			t.Errorf(
				"%s, %s [%d] %q: %v (%s), want %v",
				c.set,
				c.key,
				c.width,
				c.description,
				f.Relative,
				f.RelativeReason,
				c.want,
			)
		}
	}
}
