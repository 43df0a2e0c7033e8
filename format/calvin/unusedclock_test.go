package calvin

import (
	"slices"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/tests/cases"
)

// TestUnusedClock checks that an array of timestamps in the frames causes a finding with the array,
// the episode and the reason.
func TestUnusedClock(t *testing.T) {
	for fault, want := range map[string]string{
		"short":     "timestamp has 8 values for 9 rows in episode 2",
		"strings":   "timestamp holds text and no numbers",
		"nan":       "timestamp is NaN at row 5 in episode 2",
		"backwards": "timestamp steps back from 0.4 to 0.2 at row 5 in episode 2",
		"constant":  "timestamp is 0 in all 9 rows in episode 0, and cannot be used in 3 episodes",
		"twodim":    "timestamp has 2 values for each row",
		"sound":     "timestamp is not taken as the clock of the rows, which are at 30 Hz",
	} {
		uri := cases.Make(t, "T01", "calvin."+fault, "t01")
		d := open(t, uri, robocache.OpenOptions{})
		at := slices.IndexFunc(
			d.About.Findings,
			func(f robocache.Finding) bool { return f.Code == robocache.ClockUnusable },
		)
		severity := robocache.SeverityWarning
		if fault == "sound" {
			severity = robocache.SeverityInfo
		}
		if at < 0 || d.About.Findings[at].Message != want ||
			d.About.Findings[at].Severity != severity {
			t.Errorf("%s: %+v, want %q", fault, d.About.Findings, want)
		}
		stated := open(t, uri, robocache.OpenOptions{HZ: robocache.Rate{Num: 10, Den: 1}})
		if stated.About.UnusedClocks != nil {
			t.Errorf("%s with a stated rate: %v", fault, stated.About.UnusedClocks)
		}
	}
}
