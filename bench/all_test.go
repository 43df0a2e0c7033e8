package bench

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/goatnote-inc/robocache/bench/ops"
	"github.com/goatnote-inc/robocache/bench/runners"
)

// A part whose share of the time is too short (3/12 of 19.4 s, but it needs 5 s) runs in the time
// that the other parts leave.
func TestAllUsesItsTime(t *testing.T) {
	out := t.TempDir()
	done, err := OpenFinished(filepath.Join(out, "rows.jsonl"), false)
	if err != nil {
		t.Fatal(err)
	}
	defer done.Close()
	a := &All{
		Done:  done,
		Out:   out,
		Work:  out,
		Time:  20 * time.Second,
		Parts: []string{"machine", "synth"},
		Tools: runners.Tools{Product: []string{"/bin/true"}},
		Log:   t.Logf,
	}
	r, err := a.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range r.Steps {
		if s.Skipped != "" || s.Failed != "" {
			t.Errorf("%+v", s)
		}
	}
	if len(r.Steps) != 3 {
		t.Errorf("%d steps", len(r.Steps))
	}
}

// fewOpsRows lists rows that exist on both devices.
func TestAllFewRows(t *testing.T) {
	for _, device := range []string{"cpu", "cuda"} {
		for _, name := range strings.Split(fewOpsRows, ",") {
			if rows, err := ops.RowsNamed(device, []string{name}, true, false); err != nil ||
				len(rows) == 0 {
				t.Errorf("%s, %s: %d rows, %v", device, name, len(rows), err)
			}
		}
	}
}
