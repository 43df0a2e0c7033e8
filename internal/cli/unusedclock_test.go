package cli

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/goatnote-inc/robocache/internal/tests/cases"
)

// TestUnusedClock checks that inspect and doctor name a clock that cannot be used, and that convert
// explains why it does not resample by it.
func TestUnusedClock(t *testing.T) {
	for variant, c := range map[string]struct{ name, column, want, state string }{
		"robomimic.short": {
			"t01.hdf5",
			"obs/timestamp",
			"has 8 values for 9 rows in episode 2",
			"nothing says their rate",
		},
		"aloha.backwards": {"t01", "observations/timestamp", "steps back from 0.4 to 0.2 at " +
			"row 5 in episode 2", "50 Hz is only assumed"},
		"zarr.twodim": {
			"t01.zarr",
			"data/timestamp",
			"has 2 values for each row",
			"nothing says their rate",
		},
		"hdf5.constant": {"t01.hdf5", "timestamp", "is 0 in all 9 rows in episode 0, and " +
			"cannot be used in 3 episodes", "nothing says their rate"},
		"clouds.constant": {
			"t01",
			"times.txt",
			"has one time in all 9 lines in episode 0",
			"10 Hz is only assumed",
		},
		"robomimic.strings": {
			"t01.hdf5",
			"obs/timestamp",
			"holds text and no numbers in episode 2",
			"nothing says their rate",
		},
	} {
		uri := cases.Make(t, "T01", variant, c.name)
		message := c.column + " " + c.want
		for _, verb := range []string{"inspect", "doctor"} {
			_, out, errs := call(t, verb, uri)
			if strings.Count(out, "clock-unusable: "+message) != 1 ||
				!strings.Contains(out, "state the rate of the rows with --rows-hz") {
				t.Errorf("%s %s: want %q\n%s%s", verb, variant, message, out, errs)
			}
		}
		code, _, errs := call(t, "convert", uri, filepath.Join(t.TempDir(), "out"), "--hz", "5")
		want := "--hz resamples, but the clock of the rows cannot be used, and " + c.state + ": " +
			message + "; hint: Write " + c.column + " again"
		if code != exitMisuse || !strings.Contains(errs, want) ||
			!strings.Contains(errs, "or state their rate: --rows-hz 5 says") {
			t.Errorf("convert %s: exit %d, want %q\n%s", variant, code, want, errs)
		}
	}
}
