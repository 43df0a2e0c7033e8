package mapping_test

import (
	"context"
	"slices"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/align"
	"github.com/goatnote-inc/robocache/mapping"
)

// turned returns the stream "x" of a mapping of a plant. The arm (3 channels) can be a rotation
// vector.
func turned(t *testing.T, arm bool, text string) (*robocache.Feature, error) {
	t.Helper()
	p := newPlant()
	if arm {
		f := p.info.Feature("arm")
		f.Interpolation, f.Rotations = "slerp", []robocache.Rotation{{At: 0, Form: "rotvec"}}
	}
	m, err := mapping.Parse([]byte("streams: {x: " + text + "}"))
	if err != nil {
		return nil, err
	}
	ds, err := mapping.Over(context.Background(), p, m)
	if err != nil {
		return nil, err
	}
	return ds.Info().Feature("x"), nil
}

// TestRotations checks the rotations that a mapping states, and the positions of those of the parts
// in a joined row.
func TestRotations(t *testing.T) {
	at := func(form string, at ...int) (out []robocache.Rotation) {
		for _, a := range at {
			out = append(out, robocache.Rotation{At: a, Form: form})
		}
		return out
	}
	for _, c := range []struct {
		arm  bool
		text string
		want []robocache.Rotation
		mode align.Mode
	}{
		{false, "{from: [arm], interpolation: rotvec}", at("rotvec", 0), align.Slerp},
		{false, "{from: [arm], interpolation: xyz}", at("xyz", 0), align.Slerp},
		{false, "{from: [arm, arm], interpolation: ZYX}", at("ZYX", 0, 3), align.Slerp},
		{
			false,
			"{from: [grip, arm], rotations: [{at: 1, form: rotvec}]}",
			at("rotvec", 1),
			align.Slerp,
		},
		{false, "{from: [arm, grip], rotations: [quat]}", at("quat", 0), align.Slerp},
		{true, "{from: [grip, arm, grip, arm]}", at("rotvec", 1, 5), align.Slerp},
		{true, "{from: [grip, arm, grip, arm], slice: [1, 7]}", at("rotvec", 0), align.Slerp},
		{true, "{from: [grip, arm], slice: [0, 2]}", nil, align.Linear},
		{true, "{from: [arm]}", at("rotvec", 0), align.Slerp},
		{true, "{from: [arm], interpolation: nearest}", at("rotvec", 0), align.Nearest},
		{false, "{from: [grip, arm]}", nil, align.Linear},
	} {
		f, err := turned(t, c.arm, c.text)
		if err != nil {
			t.Errorf("%s: %v", c.text, err)
			continue
		}
		if !slices.Equal(f.Rotations, c.want) || align.DefaultMode(f) != c.mode {
			t.Errorf(
				"%s: rotations %v, mode %v; want %v, %v",
				c.text,
				f.Rotations,
				align.DefaultMode(f),
				c.want,
				c.mode,
			)
		}
	}
	for _, text := range []string{
		"{from: [arm], interpolation: xxy}",
		"{from: [arm, grip], interpolation: rotvec}",
		"{from: [arm], rotations: [{at: 1, form: rotvec}]}",
		"{from: [count], rotations: [rotvec]}",
		"{from: [arm], rotations: [axis]}",
		"{from: [arm], interpolation: rotvec, rotations: [rotvec]}", "{from: [note], " +
			"interpolation: rotvec}", "{from: [arm], rotations: [{at: 0, of: rotvec}]}",
	} {
		if f, err := turned(t, false, text); err == nil {
			t.Errorf("%s was accepted: %+v", text, f)
		}
	}
}
