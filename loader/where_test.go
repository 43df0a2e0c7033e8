package loader

import (
	"errors"
	"slices"
	"testing"

	"github.com/goatnote-inc/robocache"
)

// TestWhereSelectsEpisodes compares where with the list of the episodes for which it is true.
func TestWhereSelectsEpisodes(t *testing.T) {
	f := newFake(6, 15, 4, 20)
	for text, want := range map[string][]int{
		`"where": "length > 5"`: {0, 1, 3},
		`"where": "length > 5 and index != 3", "episodes": [3, 1]`: {1},
		`"where": "max(observation.state[0]) > 2010"`:              {3},
	} {
		cfg := parsedConfig(t, `{"keys": ["index"], "shuffle": "global", `+text+"}")
		selected := cfg
		selected.Where, selected.Episodes = "", want
		a, b := mustLoader(t, f, cfg), mustLoader(t, f, selected)
		if err := a.Restore(b.State(), false); err != nil {
			t.Errorf("%s: a state of episodes %v: %v", text, want, err)
		}
		got, _ := epochOf(t, nil, a)
		expected, _ := epochOf(t, nil, b)
		if !slices.Equal(got, expected) {
			t.Errorf("%s: another order than that of episodes %v", text, want)
		}
		m, err := NewMap(bg, f, cfg)
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		if m.Len() != b.Samples() {
			t.Errorf("%s: %d samples of a Map, want %d", text, m.Len(), b.Samples())
		}
	}
	for text, class := range map[string]error{
		"length > 100":     robocache.ErrMisuse,
		"length >":         robocache.ErrMisuse,
		"max(nothing) > 1": robocache.ErrMisuse,
		"q.idle < 0.3":     robocache.ErrNotFound,
	} {
		cfg := parsedConfig(t, `{"keys": ["index"]}`)
		cfg.Where = text
		if _, err := New(bg, f, cfg); !errors.Is(err, class) {
			t.Errorf("where %q: %v, want %v", text, err, class)
		}
	}
}
