package diagnose_test

import (
	"fmt"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/diagnose"
	_ "github.com/goatnote-inc/robocache/format/all"
	"github.com/goatnote-inc/robocache/internal/tests/cases"
)

// TestOneFindingPerCause checks that a fault reported by the format's own doctor is not reported
// again when the rows are read.
func TestOneFindingPerCause(t *testing.T) {
	for _, c := range []struct {
		script, variant string
		want            map[string]string // episode, stream and row → code
	}{
		{"H09", "first", map[string]string{"0 action <nil>": "bad-stream"}},
		{"H09", "second", map[string]string{"1 action <nil>": "bad-stream"}},
		{"H09", "csize", map[string]string{"1 observation.images.top <nil>": "bad-stream"}},
		{
			"R01",
			"missing_state",
			map[string]string{"1 observation.state <nil>": robocache.LackingStream},
		},
		{
			"R01",
			"empty_image",
			map[string]string{
				"0 observation.image 1": "missing-image",
				"1 observation.image 1": "missing-image",
			},
		},
	} {
		ds, err := robocache.Open(
			t.Context(),
			cases.Make(t, c.script, c.variant, "set"),
			robocache.OpenOptions{HZ: robocache.Rate{Num: 10, Den: 1}},
		)
		if err != nil {
			t.Fatal(err)
		}
		defer ds.Close()
		found, err := diagnose.Run(t.Context(), ds, robocache.DiagnoseOptions{})
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for _, f := range found {
			if f.Severity == robocache.SeverityInfo {
				continue
			}
			n++
			place := fmt.Sprintf("%v %v %v", f.Where["episode"], f.Where["stream"], f.Where["row"])
			if c.want[place] != f.Code {
				t.Errorf(
					"%s %s: unexpected %s at %s: %s",
					c.script,
					c.variant,
					f.Code,
					place,
					f.Message,
				)
			}
		}
		if n != len(c.want) {
			t.Errorf("%s %s: %d findings, want %v", c.script, c.variant, n, c.want)
		}
	}
}
