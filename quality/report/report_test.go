package report

import (
	"bytes"
	"context"
	"encoding/xml"
	"regexp"
	"strings"
	"testing"

	"github.com/goatnote-inc/robocache"
	_ "github.com/goatnote-inc/robocache/format/all"
	"github.com/goatnote-inc/robocache/quality"
	"github.com/goatnote-inc/robocache/synth"
)

// measured returns a synthetic dataset and its table.
func measured(t *testing.T, episodes int) (robocache.Dataset, *quality.Table) {
	t.Helper()
	ds, err := synth.New(synth.Options{
		Episodes: episodes, Seconds: 1, Spread: 0.5, Cameras: 1, Seed: 3,
		Tasks: []string{"reach <the> disc", "push"},
	})
	if err != nil {
		t.Fatal(err)
	}
	table, err := quality.Measure(t.Context(), ds, quality.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return ds, table
}

// page returns the report as text.
func page(t *testing.T, ds robocache.Dataset, table *quality.Table) string {
	t.Helper()
	var b bytes.Buffer
	if err := Write(&b, t.Context(), ds, table); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// The page stands alone, escapes texts, shows a flagged episode with its images, and draws the
// metrics and the coverage as well-formed SVG.
func TestReport(t *testing.T) {
	ds, table := measured(t, 24)
	table.Columns["duration"][7] = 60 // flagged
	text := page(t, ds, table)
	for _, want := range []string{
		"24 episodes", "reach &lt;the&gt; disc", "<h3>Episode 7</h3>", "data:image/jpeg;base64,",
		"<h3>duration (s)</h3>", "Coverage of states", "prefers-color-scheme:dark",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	for _, bad := range []string{"<script", "src=\"http", "href=", "<the>", "NaN", "%!"} {
		if strings.Contains(text, bad) {
			t.Errorf("the page contains %q", bad)
		}
	}
	drawn := regexp.MustCompile(`(?s)<svg.*?</svg>`).FindAllString(text, -1)
	if len(drawn) < 10 {
		t.Errorf("only %d drawings", len(drawn))
	}
	for _, svg := range drawn {
		if err := xml.Unmarshal([]byte(svg), new(struct{})); err != nil {
			t.Errorf("%v: %.200s", err, svg)
		}
	}
	if size := len(text); size > 400<<10 {
		t.Errorf("%d bytes", size)
	}
}

// The heights of a histogram are the counts of its bins.
func TestHistogram(t *testing.T) {
	_, table := measured(t, 2)
	var b bytes.Buffer
	table.Columns["duration"] = []float64{1, 3}
	table.Tasks = []string{"a", "a"}
	writeHistograms(&b, table, "duration", []string{"a"}, []float64{1, 3})
	if n := strings.Count(b.String(), "v-16.0"); n != 2 { // both bins hold the most
		t.Errorf("%d bars of full height: %s", n, b.String())
	}
}

// A table without episodes, without sketches and without a dataset is a page.
func TestReportOfLittle(t *testing.T) {
	_, table := measured(t, 1)
	if text := page(t, nil, table); !strings.Contains(text, "1 episodes") {
		t.Error(text)
	}
	if text := page(t, nil, &quality.Table{}); !strings.Contains(text, "0 episodes") {
		t.Error(text)
	}
}

// An interrupted report is an error.
func TestReportInterrupted(t *testing.T) {
	ds, table := measured(t, 24)
	table.Columns["duration"][7] = 60
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if err := Write(&bytes.Buffer{}, ctx, ds, table); err == nil {
		t.Error("no error")
	}
}
