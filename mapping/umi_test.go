package mapping_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"math"
	"slices"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/mapping"
)

// umi is a plant with UMI's streams of two robots, the second one first.
func umi() *plant {
	p := newPlant()
	for _, robot := range []string{"robot1", "robot0"} {
		for part, n := range map[string]int{
			"_gripper_width":      1,
			"_eef_pos":            3,
			"_eef_rot_axis_angle": 3,
			"_demo_start_pose":    6,
		} {
			p.info.Features = append(
				p.info.Features,
				robocache.Feature{
					Key:   "observation." + robot + part,
					Kind:  robocache.KindNumeric,
					DType: robocache.Float32,
					Shape: []int{n},
				},
			)
		}
	}
	return p
}

func suggested(t *testing.T, p *plant) robocache.Dataset {
	t.Helper()
	var b bytes.Buffer
	if err := mapping.Suggest(&b, p); err != nil {
		t.Fatal(err)
	}
	m, err := mapping.Parse(b.Bytes())
	if err != nil {
		t.Fatalf("%v in\n%s", err, b.String())
	}
	ds, err := mapping.Over(context.Background(), p, m)
	if err != nil {
		t.Fatalf("%v in\n%s", err, b.String())
	}
	return ds
}

// TestSuggestedAction: the action is the position, rotation and width of robot 0, then of robot 1.
func TestSuggestedAction(t *testing.T) {
	p := umi()
	ds := suggested(t, p)
	f := ds.Info().Feature("action")
	if f == nil || !slices.Equal(f.Shape, []int{14}) || f.DType != robocache.Float32 ||
		f.Interpolation != "slerp" || !slices.Equal(f.Rotations,
		[]robocache.Rotation{{At: 3, Form: "rotvec"}, {At: 10, Form: "rotvec"}}) {
		t.Fatalf("%+v", f)
	}
	if got, want := len(ds.Info().Features), len(p.info.Features)+1; got != want {
		t.Errorf("%d streams, want %d: the parts stay", got, want)
	}
	row := robocache.Row{Episode: 1, Index: 2}
	raw := make([]byte, 14*4)
	if err := ds.Gather(context.Background(), "action", []robocache.Row{row}, raw); err != nil {
		t.Fatal(err)
	}
	at := 0
	for _, robot := range []string{"robot0", "robot1"} {
		for _, part := range []string{"_eef_pos", "_eef_rot_axis_angle", "_gripper_width"} {
			key := "observation." + robot + part
			for i := range p.info.Feature(key).Elements() {
				if got, want := math.Float32frombits(binary.LittleEndian.Uint32(raw[4*at:])),
					float32(p.value(key, row, i)); got != want {
					t.Errorf("value %d: %g, want %g of %s", at, got, want, key)
				}
				at++
			}
		}
	}
}

// TestNoSuggestedAction: no action is suggested if a part is missing or cannot be joined, or if
// there is an action.
func TestNoSuggestedAction(t *testing.T) {
	for name, change := range map[string]func(p *plant){
		"missing": func(p *plant) {
			p.info.Features = slices.DeleteFunc(p.info.Features, func(f robocache.Feature) bool {
				return f.Key == "observation.robot1_gripper_width"
			})
		},
		"dtype": func(p *plant) {
			p.info.Feature("observation.robot0_gripper_width").DType = robocache.Float64
		},
		"clock": func(p *plant) {
			p.info.Feature("observation.robot0_gripper_width").Clock = "imu"
		},
		"ragged": func(p *plant) {
			p.info.Feature("observation.robot0_gripper_width").Shape = []int{-1}
		},
		"there": func(p *plant) { p.info.Features[0].Key = "action" },
		"other": func(p *plant) {
			p.info.Feature("observation.robot0_eef_pos").Key = "observation.eef_pos"
			p.info.Feature("observation.robot1_eef_pos").Key = "observation.robot_eef_pos"
		},
	} {
		p := umi()
		change(p)
		before := len(p.info.Features)
		if got := len(suggested(t, p).Info().Features); got != before {
			t.Errorf("%s: %d streams, want %d", name, got, before)
		}
	}
}
