package lerobot

import (
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/goatnote-inc/robocache"
)

// TestReadRelative checks the statements about relative values that a feature of info.json may
// have.
func TestReadRelative(t *testing.T) {
	six := []int{0, 1, 2, 3, 4, 5}
	for text, want := range map[string][]int{
		`{"dtype": "float32"}`:                                 nil,
		`{"dtype": "float32", "relative": true}`:               six,
		`{"dtype": "float32", "relative": false}`:              {},
		`{"dtype": "float32", "relative": []}`:                 {},
		`{"dtype": "float32", "relative": [0, 2]}`:             {0, 2},
		`{"dtype": "float32", "is_delta": true}`:               six,
		`{"dtype": "float32", "delta": 3}`:                     nil,
		`{"dtype": "float32", "absolute": false}`:              six,
		`{"dtype": "float32", "absolute": true}`:               {},
		`{"dtype": "float32", "relative": "to the last pose"}`: nil,
		`{"dtype": "float32", "relative": [9]}`:                nil,
		`{"dtype": "int64", "relative": true}`:                 nil,
	} {
		r := declared{key: "action", shape: []int{7}}
		if err := json.Unmarshal([]byte(text), &r); err != nil {
			t.Fatal(err)
		}
		f, err := parseFeature(&r)
		if err != nil || !slices.Equal(f.Relative, want) || (f.Relative == nil) != (want == nil) {
			t.Errorf("%s: %v, %v; want %v", text, f.Relative, err, want)
		}
	}
}

// TestModalityRelative checks that parts with "absolute": false mark the stream of actions.
func TestModalityRelative(t *testing.T) {
	info := func() *robocache.Info {
		return &robocache.Info{Features: []robocache.Feature{
			{Key: "action", Kind: robocache.KindNumeric, DType: robocache.Float64, Shape: []int{8}},
			{
				Key:   "observation.state",
				Kind:  robocache.KindNumeric,
				DType: robocache.Float64,
				Shape: []int{8},
			},
		}}
	}
	for _, c := range []struct {
		action string
		want   []int
		quat   bool
	}{
		{`{"arm": {"start": 0, "end": 7}}`, nil, false},
		{`{"arm": {"start": 0, "end": 7, "absolute": true}}`, []int{}, false},
		{
			`{"turn": {"start": 3, "end": 6, "absolute": false}, "pos": {"start": 0, "end": 3, "absolute": false}, "hand": {"start": 6, "end": 7}}`,
			[]int{0, 1, 2, 3, 4, 5},
			false,
		},
		{
			`{"turn": {"start": 3, "end": 7, "absolute": false, "rotation_type": "quaternion"}}`,
			[]int{3, 4, 5, 6},
			true,
		},
		{`{"arm": {"start": 0, "end": 7, "absolute": "no"}}`, nil, false},
		{
			`{"turn": {"start": 1, "end": 7, "absolute": true, "rotation_type": "rotation_6d"}}`,
			[]int{},
			false,
		},
		{
			`{"turn": {"start": 3, "end": 6, "absolute": false, "rotation_type": "axis_angle"}}`,
			[]int{3, 4, 5},
			false,
		},
	} {
		i := info()
		if _, err := parseModality(
			[]byte(
				`{"state": {"arm": {"start": 0, "end": 7, "absolute": false}}, "action": `+c.action+
					`}`,
			),
			i,
		); err != nil {
			t.Errorf("%s: %v", c.action, err)
		}
		f := i.Feature("action")
		if !slices.Equal(f.Relative, c.want) || (f.Relative == nil) != (c.want == nil) ||
			len(f.Rotations) > 0 != c.quat {
			t.Errorf("%s: %v, %v; want %v", c.action, f.Relative, f.Rotations, c.want)
		}
		if i.Feature("observation.state").Relative != nil {
			t.Errorf("%s: the state is marked", c.action)
		}
		if err := f.CheckSummable(f.Relative); (err != nil) != c.quat {
			t.Errorf("%s: summable: %v", c.action, err)
		}
	}
}

// TestModalityGroups checks that the parts of modality.json keep their order and get the streams that
// the file leaves out, and that faulty files are rejected.
func TestModalityGroups(t *testing.T) {
	info := &robocache.Info{Features: []robocache.Feature{
		{Key: "action", Kind: robocache.KindNumeric, DType: robocache.Float32, Shape: []int{8}},
	}}
	groups, err := parseModality(
		[]byte(`{"version": 2, "video": {"z": {}, "a": {"original_key": "cam"}},
		"annotation": {"human.task": {}}, "action": {"hand": {"start": 7, "end": 8, "absolute": false},
		"arm": {"start": 3, "end": 7, "rotation_type": "quaternion", "original_key": "action"}}}`),
		info,
	)
	relative := false
	want := []robocache.Group{
		{Kind: "action", Name: "hand", Key: "action", Start: 7, End: 8, Absolute: &relative},
		{Kind: "action", Name: "arm", Key: "action", Start: 3, End: 7, Rotation: "quaternion"},
		{Kind: "video", Name: "z", Key: "observation.images.z"},
		{Kind: "video", Name: "a", Key: "cam"},
		{Kind: "annotation", Name: "human.task", Key: "annotation.human.task"},
	}
	if err != nil || !reflect.DeepEqual(groups, want) {
		t.Errorf("%+v, %v; want %+v", groups, err, want)
	}
	for text, words := range map[string]string{
		`{"action": {"arm": {"start": 0, "end": 9}}}`: "arm: no such part of action",
		`{"action": {"arm": {"start": 4, "end": 3}}}`: "no such part",
		`{"action": {"arm": {"end": 3}}}`:             "no such part",
		`{"state": {"arm": {"start": 0, "end": 3}}}`:  "no such part of observation.state",
		`{"video": {"a": {}, "a": {}}}`:               "the key occurs twice",
		`{"video": ["a"]}`:                            "an object",
		`{"video": {"a": {"original_key": 3}}}`:       "a text",
	} {
		if _, err := parseModality([]byte(text), info); err == nil ||
			!strings.Contains(err.Error(), words) {
			t.Errorf("%s: %v, want %q", text, err, words)
		}
	}
}

// TestRelativeRotationsThatDoNotAddUp checks that the mode sum rejects relative rotations of six
// numbers and matrices, with a hint, and accepts the other relative channels.
func TestRelativeRotationsThatDoNotAddUp(t *testing.T) {
	for _, rotation := range []string{"rotation_6d", "matrix", "quaternion"} {
		info := &robocache.Info{Features: []robocache.Feature{
			{
				Key:   "action",
				Kind:  robocache.KindNumeric,
				DType: robocache.Float32,
				Shape: []int{13},
			},
		}}
		text := `{"action": {"position": {"start": 0, "end": 3, "absolute": false},
			"turn": {"start": 3, "end": 9, "absolute": false, "rotation_type": "` + rotation +
			`"}}}`
		if _, err := parseModality([]byte(text), info); err != nil {
			t.Fatal(err)
		}
		f := info.Feature("action")
		if want := []int{0, 1, 2, 3, 4, 5, 6, 7, 8}; !slices.Equal(f.Relative, want) {
			t.Errorf("%s: relative %v", rotation, f.Relative)
		}
		err := f.CheckSummable(f.Relative)
		if !errors.Is(err, robocache.ErrUnsupported) ||
			!strings.Contains(err.Error(), "a rotation whose differences are no rotations") ||
			!strings.Contains(err.Error(), `Align: {Modes: {"action": "previous"}}`) {
			t.Errorf("%s: %v", rotation, err)
		}
		if err := f.CheckSummable([]int{0, 1, 2}); err != nil {
			t.Errorf("%s: positions: %v", rotation, err)
		}
	}
}
