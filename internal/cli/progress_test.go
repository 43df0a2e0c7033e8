package cli

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/goatnote-inc/robocache"
)

// Without a terminal there is at most one line per minute, with rate and remaining time.
func TestProgressLines(t *testing.T) {
	var out bytes.Buffer
	now := time.Unix(0, 0)
	show := progressLines(&out, "convert", func() time.Time { return now })
	for second := 1; second <= 150; second++ {
		now = time.Unix(int64(second), 0)
		show(robocache.Progress{Done: int64(second * 10), Total: 3000, Unit: "rows"})
	}
	want := "convert: 600 of 3000 rows, 10.0 rows/s, 4m0s left\n" +
		"convert: 1200 of 3000 rows, 10.0 rows/s, 3m0s left\n"
	if out.String() != want {
		t.Errorf("got\n%swant\n%s", &out, want)
	}
}

// On a terminal one line is rewritten, with rows, rate and remaining time.
func TestProgressBar(t *testing.T) {
	var out bytes.Buffer
	show := progressBar(&out, "convert")
	show(robocache.Progress{Done: 1, Total: 300, Unit: "rows"})
	time.Sleep(250 * time.Millisecond)
	show(robocache.Progress{Done: 120, Total: 300, Unit: "rows"})
	if text := out.String(); !strings.Contains(text, "\r") || strings.Contains(text, "\n") {
		t.Errorf("no line that is rewritten: %q", text)
	}
	for _, want := range []string{"convert", "120/300", "rows/s", "[0s:"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is not in %q", want, out.String())
		}
	}
}

// With --json nothing is shown.
func TestProgressBesideJSON(t *testing.T) {
	for _, asJSON := range []bool{false, true} {
		cmd := &cobra.Command{}
		cmd.Flags().Bool("json", asJSON, "")
		if got := showsProgress(cmd); got == asJSON {
			t.Errorf("--json=%v: shown = %v", asJSON, got)
		}
	}
}
