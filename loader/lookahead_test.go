package loader

import (
	"slices"
	"strings"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/align"
	"github.com/goatnote-inc/robocache/loader/options"
)

// TestLookAheadNote checks that a loader notes once how far its observations look ahead.
func TestLookAheadNote(t *testing.T) {
	fifty := robocache.Rate{Num: 50, Den: 1}
	previous := &align.Config{Modes: map[string]align.Mode{"joints": align.Previous}}
	for name, c := range map[string]struct {
		cfg  options.Config
		want string
	}{
		"grid": {
			options.Config{Windows: options.Windows{Hz: &fifty, Keys: []string{"joints"}}},
			"observations at 50 Hz use samples from after the tick",
		},
		"previous": {
			options.Config{
				Windows: options.Windows{Hz: &fifty, Keys: []string{"joints"}},
				Align:   previous,
			},
			"",
		},
		"clock of anchor": {
			options.Config{Windows: options.Windows{Keys: []string{"joints"}}},
			"observations on another clock use samples from after the tick",
		},
		"rows of its own": {
			options.Config{Windows: options.Windows{Keys: []string{"joints"}, Anchor: "joints"}},
			"",
		},
		"previous, anchor": {
			options.Config{Windows: options.Windows{Keys: []string{"joints"}}, Align: previous},
			"",
		},
	} {
		m := mustMap(t, newRobot(3.2), c.cfg)
		notes := slices.DeleteFunc(
			m.Notes(),
			func(n string) bool { return !strings.Contains(n, "after the tick") },
		)
		if c.want == "" && len(notes) == 0 {
			continue
		}
		if c.want == "" || len(notes) != 1 || !strings.Contains(notes[0], c.want) ||
			!strings.Contains(notes[0], "ms of joints") {
			t.Errorf("%s: notes %q, want %q", name, notes, c.want)
		}
	}
}
