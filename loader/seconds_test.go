package loader

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/loader/options"
)

// TestImplausibleSeconds checks that times which are likely to be nanoseconds are Misuse with both
// readings.
func TestImplausibleSeconds(t *testing.T) {
	for _, c := range []struct{ config, name string }{
		{`{"windows": {"action": [0, 33333333]}}`, "windows of action"},
		{`{"windows": {"action": {"span": [-33333333, 0]}}}`, "windows of action"},
		{`{"windows": {"action": {"span": [-33333333, 0], "count": 2}}}`, "windows of action"},
		{`{"delta_timestamps": {"action": [0, 33333333]}}`, "delta_timestamps of action"},
		{`{"tolerance_s": 33333333}`, "tolerance_s"},
		{`{"offset_tolerance_s": 33333333}`, "offset_tolerance_s"},
	} {
		_, err := options.ParseConfig([]byte(c.config))
		var e *robocache.Error
		if !errors.As(err, &e) || !errors.Is(err, robocache.ErrMisuse) {
			t.Errorf("%s: %v, want Misuse", c.config, err)
			continue
		}
		for _, want := range []string{c.name, "33333333 s", "days", "33.333333 ms"} {
			if !strings.Contains(e.Msg, want) {
				t.Errorf("%s: %q lacks %q", c.config, e.Msg, want)
			}
		}
		if !strings.Contains(e.Hint, `33333333ns"`) || !strings.Contains(e.Hint, `33333333s"`) {
			t.Errorf("%s: hint %q lacks a reading", c.config, e.Hint)
		}
	}
}

// TestSecondsWithUnits checks numbers and text of all options in seconds, and that rows stay rows.
func TestSecondsWithUnits(t *testing.T) {
	for config, want := range map[string]options.Windows{
		`{"windows": {"a": [-1, "33333333ns"], "b": {"span": ["-20 ms", 0.1], "count": 3}}}`: {
			Native: NativeWindows{
				{Key: "a", Offsets: []float64{-1, 0.033333333}},
				{Key: "b", Span: &[2]float64{-0.02, 0.1}, Count: 3},
			},
		},
		`{"windows": {"a": {"span": ["-33333333s", 0]}}}`: {
			Native: NativeWindows{{Key: "a", Span: &[2]float64{-33333333, 0}}},
		},
		`{"delta_timestamps": {"a": [0.03333333333333333, "100000s"]}}`: {
			Deltas: Deltas{{Key: "a", Offsets: []float64{0.03333333333333333, 100000}}},
		},
		`{"delta_indices": {"a": [-100000, 100000]}}`: {
			Indices: Indices{{Key: "a", Rows: []int{-100000, 100000}}},
		},
		`{"tolerance_s": "33ms", "offset_tolerance_s": 1e-4}`: {
			Tolerance: new(0.033), OffsetTolerance: new(1e-4),
		},
	} {
		c, err := options.ParseConfig([]byte(config))
		if err != nil || !reflect.DeepEqual(c.Windows, want) {
			t.Errorf("%s: %+v, %v", config, c.Windows, err)
			continue
		}
		text, err := json.Marshal(&c)
		if err != nil {
			t.Fatal(err)
		}
		if again, err := options.ParseConfig(text); err != nil ||
			!reflect.DeepEqual(again.Windows, want) {
			t.Errorf("%s: written as %s and read as %+v, %v", config, text, again.Windows, err)
		}
	}
}
