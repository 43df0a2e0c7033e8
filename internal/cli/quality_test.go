package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/goatnote-inc/robocache/verbs"
)

// The verb writes the table of a local dataset, as CSV elsewhere, and rejects other names.
func TestQualityWritesTheTable(t *testing.T) {
	dir := t.TempDir()
	uri := "synth://heterogeneous?episodes=10&cap=60"
	table := filepath.Join(dir, "q.csv")
	code, out, errs := call(t, "quality", uri, "--out", table, "--json")
	var q verbs.Quality
	if err := json.Unmarshal(
		[]byte(out),
		&q,
	); err != nil ||
		code != exitDone && code != exitFindings {
		t.Fatalf("exit code %d: %v\n%s", code, err, errs)
	}
	text, err := os.ReadFile(table)
	if err != nil || len(text) == 0 || q.Episodes != 10 || q.Out != table || len(q.Metrics) < 40 {
		t.Errorf("%d bytes of CSV (%v), %d episodes, out %q", len(text), err, q.Episodes, q.Out)
	}
	if code, _, errs := call(t, "quality", uri, "--out", "q.xlsx"); code != exitMisuse {
		t.Errorf("exit code %d: %s", code, errs)
	}
	if code, _, errs := call(
		t,
		"quality",
		uri,
		"--frames",
		"few",
		"--out",
		"-",
	); code != exitMisuse {
		t.Errorf("exit code %d: %s", code, errs)
	}
}

// --html writes the report of the table.
func TestQualityWritesTheReport(t *testing.T) {
	page := filepath.Join(t.TempDir(), "report.html")
	code, _, errs := call(t, "quality", "synth://heterogeneous?episodes=10&cap=60", "--html", page)
	text, err := os.ReadFile(page)
	if code != exitDone && code != exitFindings || err != nil ||
		!strings.Contains(string(text), "10 episodes") {
		t.Errorf("exit code %d, %d bytes: %v\n%s", code, len(text), err, errs)
	}
}
