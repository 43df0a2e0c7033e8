package loader

import (
	"slices"
	"strings"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/align"
	"github.com/goatnote-inc/robocache/loader/options"
)

// TestRelativeModeNote checks that a loader warns once about a mode that does not keep the totals
// of a relative stream, and that it does not advise such a mode.
func TestRelativeModeNote(t *testing.T) {
	fifty := robocache.Rate{Num: 50, Den: 1}
	for name, c := range map[string]struct {
		cfg  align.Config
		want string
	}{
		"default": {align.Config{}, "joints is relative"},
		"sum":     {align.Config{Modes: map[string]align.Mode{"joints": align.Sum}}, ""},
		"previous": {
			align.Config{Modes: map[string]align.Mode{"joints": align.Previous}},
			"totals will not be kept",
		},
		"linear": {
			align.Config{Modes: map[string]align.Mode{"joints": align.Linear}},
			"totals will not be kept",
		},
	} {
		ds := newRobot(3.2)
		ds.info.Feature("joints").Relative = []int{0, 1, 2}
		m := mustMap(
			t,
			ds,
			options.Config{
				Align:   &c.cfg,
				Windows: options.Windows{Hz: &fifty, Keys: []string{"joints"}},
			},
		)
		notes := slices.DeleteFunc(
			m.Notes(),
			func(n string) bool { return !strings.Contains(n, "joints") },
		)
		if c.want == "" && len(notes) == 0 {
			continue
		}
		if c.want == "" || len(notes) != 1 || !strings.Contains(notes[0], c.want) {
			t.Errorf("%s: notes %q, want %q", name, notes, c.want)
		}
	}
}
