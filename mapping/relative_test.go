package mapping_test

import (
	"context"
	"slices"
	"testing"

	"github.com/goatnote-inc/robocache/align"
	"github.com/goatnote-inc/robocache/mapping"
)

// TestRelative checks the relative channels that a mapping states, and the positions of those of
// the parts in a joined row.
func TestRelative(t *testing.T) {
	for _, c := range []struct {
		arm  []int // relative channels of the stream "arm" in the dataset, of three channels
		text string
		want []int
		mode align.Mode
	}{
		{nil, "{from: [arm], relative: true}", []int{0, 1, 2}, align.Sum},
		{nil, "{from: [arm], interpolation: sum}", []int{0, 1, 2}, align.Sum},
		{nil, "{from: [arm, grip], relative: [0, 2]}", []int{0, 2}, align.Sum},
		{
			nil,
			"{from: [arm, grip], names: [a, b, c, gripper], relative: true}",
			[]int{0, 1, 2},
			align.Sum,
		},
		{
			nil,
			"{from: [arm, grip], names: [a, b, c, gripper], relative: [b, 3]}",
			[]int{1, 3},
			align.Sum,
		},
		{[]int{0, 1, 2}, "{from: [arm]}", []int{0, 1, 2}, align.Sum},
		{[]int{0, 1, 2}, "{from: [arm], relative: false}", []int{}, align.Linear},
		{[]int{0, 1, 2}, "{from: [arm], interpolation: previous}", []int{0, 1, 2}, align.Previous},
		{[]int{0, 2}, "{from: [grip, arm]}", []int{1, 3}, align.Sum},
		{[]int{0, 2}, "{from: [grip, arm], slice: [2, 4]}", []int{1}, align.Sum},
		{nil, "{from: [grip, arm]}", nil, align.Linear},
	} {
		p := newPlant()
		arm := p.info.Feature("arm")
		arm.Relative = c.arm
		m, err := mapping.Parse([]byte("streams: {x: " + c.text + "}"))
		if err != nil {
			t.Errorf("%s: %v", c.text, err)
			continue
		}
		ds, err := mapping.Over(context.Background(), p, m)
		if err != nil {
			t.Errorf("%s: %v", c.text, err)
			continue
		}
		if f := ds.Info().
			Feature("x"); !slices.Equal(f.Relative, c.want) ||
			align.DefaultMode(f) != c.mode {
			t.Errorf(
				"%s: channels %v, mode %v; want %v, %v",
				c.text,
				f.Relative,
				align.DefaultMode(f),
				c.want,
				c.mode,
			)
		}
	}
	for _, text := range []string{
		"{from: [arm], relative: [3]}", "{from: [arm], relative: [x]}", "{from: [arm], " +
			"relative: 1}",
		"{from: [count], relative: true}", "{from: [note], interpolation: sum}",
	} {
		m, err := mapping.Parse([]byte("streams: {x: " + text + "}"))
		if err == nil {
			_, err = mapping.Over(context.Background(), newPlant(), m)
		}
		if err == nil {
			t.Errorf("%s: no error", text)
		}
	}
}
