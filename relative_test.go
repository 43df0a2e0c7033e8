package robocache

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
)

// TestRelativeChannels checks what is recognised by names, and what is not.
func TestRelativeChannels(t *testing.T) {
	pose := []string{
		"delta_x",
		"delta_y",
		"delta_z",
		"delta_roll",
		"delta_pitch",
		"delta_yaw",
		"gripper",
	}
	six := []int{0, 1, 2, 3, 4, 5}
	for _, c := range []struct {
		key    string
		width  int
		names  []string
		mode   string
		stated []int
		want   []int
	}{
		{key: "action", width: 7, names: pose, want: six},
		{
			key:   "action",
			width: 7,
			names: []string{"dx", "dy", "dz", "droll", "dpitch", "dyaw", "grip"},
			want:  six,
		},
		{
			key:   "action",
			width: 4,
			names: []string{"d_x", "d_y", "d_z", "gripper"},
			want:  []int{0, 1, 2},
		},
		{key: "action", width: 2, names: []string{"deltaX", "gripper_delta"}, want: []int{0, 1}},
		{key: "action", width: 3, names: []string{"delta_x", "y", "z"}, want: []int{0}},
		{key: "rel_actions", width: 7, want: six},
		{key: "action.world_vector", width: 3, want: []int{0, 1, 2}},
		{key: "action.rotation_delta", width: 3, want: []int{0, 1, 2}},
		{key: "action.gripper_closedness_action", width: 1},
		{
			key:   "action.delta_eef",
			width: 7,
			names: []string{"x", "y", "z", "a", "b", "c", "gripper"},
			want:  six,
		},
		{key: "delta_actions", width: 14}, // Some of so many may be grippers.
		{key: "action", width: 7},
		{key: "action", width: 6, names: []string{"x", "y", "z", "roll", "pitch", "yaw"}},
		{key: "action.abs_delta", width: 3},
		// velocities, as often as not
		{key: "action", width: 3, names: []string{"dq1", "dq2", "dq3"}},
		{key: "observation.relative_goal", width: 3}, // no change over time
		{key: "observation.state", width: 3, names: []string{"dx", "dy", "dz"}},
		{key: "action", width: 7, names: pose, stated: []int{}, want: []int{}},
		{key: "action", width: 7, stated: []int{0, 1, 2}, want: []int{0, 1, 2}},
		{key: "action", width: 7, names: pose, mode: "previous"},
		{key: "action", width: 7, stated: six, mode: "previous"},
		{key: "action", width: 7, stated: six, mode: "slerp", want: six},
	} {
		f := Feature{
			Key:           c.key,
			Kind:          KindNumeric,
			DType:         Float32,
			Shape:         []int{c.width},
			Interpolation: c.mode,
			Relative:      c.stated,
		}
		if c.names != nil {
			f.Names, _ = json.Marshal(c.names)
		}
		if got, reason := f.RelativeChannels(); !slices.Equal(got, c.want) ||
			len(got) > 0 && c.stated == nil && reason == "" {
			t.Errorf(
				"%s [%d] %v %q: %v (%s), want %v",
				c.key,
				c.width,
				c.names,
				c.mode,
				got,
				reason,
				c.want,
			)
		}
	}
	for _, f := range []Feature{
		{Key: "rel_actions", Kind: KindNumeric, DType: Int64, Shape: []int{7}},
		{Key: "rel_actions", Kind: KindNumeric, DType: Float32, Shape: []int{-1, 7}},
		{Key: "rel_actions", Kind: KindVideo, DType: Uint8, Shape: []int{4, 4, 3}},
		{Key: "rel_actions", Kind: KindNumeric, DType: Float32, Shape: []int{7}, Latched: true},
	} {
		if got, _ := f.RelativeChannels(); got != nil {
			t.Errorf("%s %s %v: %v, want none", f.Kind, f.DType, f.Shape, got)
		}
	}
}

// TestRelativeJSON checks the forms of the option, and that they come back.
func TestRelativeJSON(t *testing.T) {
	f := Feature{
		Key:   "action",
		Kind:  KindNumeric,
		DType: Float32,
		Shape: []int{7},
		Names: []byte(`["x","y","z","a","b","c","gripper"]`),
	}
	for text, want := range map[string][]int{
		`true`: {0, 1, 2, 3, 4, 5}, `false`: {}, `[2,0]`: {0, 2}, `["y",0,"y"]`: {0, 1}, `[6]`: {6},
	} {
		var r Relative
		if err := json.Unmarshal([]byte(text), &r); err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if got, err := r.Of(&f); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %v, %v; want %v", text, got, err, want)
		}
		b, err := json.Marshal(r)
		var again Relative
		if err != nil || json.Unmarshal(b, &again) != nil {
			t.Errorf("%s: written as %s, %v", text, b, err)
		}
		if got, err := again.Of(&f); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s, written and read: %v, %v; want %v", text, got, err, want)
		}
	}
	for _, text := range []string{`null`, `[]`, `{}`, `"x"`, `1`, `[true]`, `[0.5]`} {
		var r Relative
		if err := json.Unmarshal([]byte(text), &r); err == nil {
			t.Errorf("%s: %+v, want an error", text, r)
		}
	}
	for _, r := range []Relative{
		{Channels: []int{7}},
		{Channels: []int{-1}},
		{Names: []string{"w"}},
	} {
		if _, err := r.Of(&f); !errors.Is(err, ErrMisuse) {
			t.Errorf("%+v: %v, want misuse", r, err)
		}
	}
}

// TestCheckSummable checks that rotations that do not add up are refused with a hint.
func TestCheckSummable(t *testing.T) {
	for _, c := range []struct {
		feature  Feature
		channels []int
		want     string
	}{
		{Feature{Key: "action", Shape: []int{3}}, []int{0, 1, 2}, ""},
		{Feature{Key: "action.delta_quat", Shape: []int{4}}, []int{0, 1, 2, 3}, "a quaternion"},
		{
			Feature{
				Key:   "action",
				Shape: []int{5},
				Names: []byte(`["dx","dqx","dqy","dqz","dqw"]`),
			},
			[]int{0, 1, 2, 3, 4},
			"a quaternion",
		},
		{
			Feature{
				Key:   "action",
				Shape: []int{5},
				Names: []byte(`["dx","dqx","dqy","dqz","dqw"]`),
			},
			[]int{0},
			"",
		},
		{
			Feature{Key: "action", Shape: []int{7}, Rotations: []Rotation{{3, FormQuat}}},
			[]int{0, 1, 2, 3, 4, 5, 6},
			"a quaternion",
		},
		{
			Feature{Key: "action", Shape: []int{7}, Rotations: []Rotation{{3, FormQuat}}},
			[]int{0, 1, 2},
			"",
		},
		{
			Feature{Key: "action", Shape: []int{6}, Rotations: []Rotation{{3, FormRotVec}}},
			[]int{0, 1, 2, 3, 4, 5},
			"",
		},
		{
			Feature{Key: "action", Shape: []int{4}, Interpolation: "slerp"},
			[]int{0, 1, 2, 3},
			"quaternions",
		},
		{
			Feature{Key: "action_dict.rel_rot_6d", Shape: []int{6}},
			[]int{0, 1, 2, 3, 4, 5},
			"a rotation of six numbers",
		},
	} {
		c.feature.Kind, c.feature.DType = KindNumeric, Float32
		err := c.feature.CheckSummable(c.channels)
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%s %s: %v", c.feature.Key, c.feature.Names, err)
		case c.want != "" && (!errors.Is(err, ErrUnsupported) ||
			!strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), `"previous"`)):
			t.Errorf("%s %s: %v, want %s and a hint", c.feature.Key, c.feature.Names, err, c.want)
		}
	}
}
