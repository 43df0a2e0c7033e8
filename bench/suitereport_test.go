package bench

import (
	"bytes"
	"image/png"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/goatnote-inc/robocache/bench/report"
)

func rowFor(scenario, runner string, batch int, rate float64) PointResult {
	var s report.Spread
	for _, f := range []float64{0.9, 1, 1.1} {
		s.Add(rate * f)
	}
	k := &Keys{
		Scenario:           scenario,
		Runner:             runner,
		BatchSize:          batch,
		WorldSize:          1,
		NumWorkers:         2,
		Loader:             "map_style",
		SamplesPerS:        rate,
		P50SampleLatencyMS: 1,
		P95SampleLatencyMS: 2,
		P99SampleLatencyMS: 3,
		Spread: map[string]report.Spread{
			"samples_per_s": s,
		},
		Notes:   []string{"<note>"},
		Machine: report.Machine{CPU: "<cpu>"},
	}
	return PointResult{Keys: []*Keys{k}, Merged: k, Explain: []string{"limit: decode"}}
}

// The report has files per rank with the names of the original benchmark, tables, plots, and one
// self-contained page.
func TestSuiteFiles(t *testing.T) {
	dir := t.TempDir()
	failed := rowFor("stream_hub", "engine", 64, 0)
	failed.Merged.Failed, failed.Keys, failed.Merged.Spread = "what went wrong", nil, nil
	two := rowFor("stream_bucket_2node", "engine", 64, 70)
	r0, r1 := *two.Merged, *two.Merged
	r0.WorldSize, r1.WorldSize, r1.Rank, two.Merged.WorldSize = 2, 2, 1, 2
	two.Keys = []*Keys{&r0, &r1}
	r := &SuiteReport{
		Command: "robocache-bench load '<set>'",
		Results: []PointResult{rowFor("mmap_local", "engine", 64, 100), failed, two},
	}
	if err := r.Document().Write(dir); err != nil {
		t.Fatal(err)
	}
	for _, f := range []string{
		"mmap_local_bs64_w2_r0of1.json",
		"mmap_local_bs64_w2_r0of1.csv",
		"stream_bucket_2node_bs64_w2_r0of2.json",
		"stream_bucket_2node_bs64_w2_r1of2.csv", "stream_bucket_2node_bs64_w2_merged2.json",
		"load.json",
		"load.csv",
		"load.html",
		"throughput_comparison.svg", "latency_comparison.svg", "speedup_comparison.svg",
	} {
		if st, err := os.Stat(filepath.Join(dir, f)); err != nil || st.Size() == 0 {
			t.Errorf("%s: %v", f, err)
		}
	}
	for _, f := range []string{
		"throughput_comparison.png",
		"latency_comparison.png",
		"speedup_comparison.png",
	} {
		b, err := os.ReadFile(filepath.Join(dir, f))
		if err != nil {
			t.Fatal(err)
		}
		if img, err := png.Decode(bytes.NewReader(b)); err != nil || img.Bounds().Dx() < 300 {
			t.Errorf("%s: %v", f, err)
		}
	}
	b, err := os.ReadFile(filepath.Join(dir, "load.html"))
	if err != nil {
		t.Fatal(err)
	}
	page := string(b)
	for _, want := range []string{
		"<svg",
		"limit: decode",
		"what went wrong",
		"single_proc_samples_per_s",
		"&lt;note&gt;",
		"&lt;cpu&gt;",
		"&#34;rank&#34;: 1",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	for _, never := range []string{"src=", "href=", "@import", "<note>", "<?xml", "<set>"} {
		if strings.Contains(page, never) {
			t.Errorf("the page has %q", never)
		}
	}
	if n := strings.Count(page, "<svg"); n != 3 {
		t.Errorf("%d plots", n)
	}
	// Several runners have one folder each, so that they do not overwrite each other's files.
	dir = t.TempDir()
	r.Results = []PointResult{
		rowFor("mmap_local", "engine", 64, 100),
		rowFor("mmap_local", "lerobot", 64, 20),
	}
	if err := r.Document().Write(dir); err != nil {
		t.Fatal(err)
	}
	for _, runner := range []string{"engine", "lerobot"} {
		if _, err := os.Stat(filepath.Join(dir, runner, "mmap_local_bs64_w2_r0of1.json")); err !=
			nil {
			t.Error(err)
		}
	}
}

// Ratios are relative to the last runner, or with a single runner, to the first combination.
func TestSpeedup(t *testing.T) {
	last := func(r ...PointResult) *report.Figure {
		f := (&SuiteReport{Results: r}).suiteFigures()
		return f[len(f)-1]
	}
	f := last(
		rowFor("a", "engine", 64, 100),
		rowFor("a", "lerobot", 64, 20),
		rowFor("b", "engine", 64, 90),
	)
	if f.Series[0].Values["a bs64"].Median != 5 || f.Series[1].Values["a bs64"].Median != 1 ||
		len(f.Series[0].Values["b bs64"].Raw) != 0 ||
		!strings.Contains(f.Title, "lerobot") {
		t.Errorf("%+v", f)
	}
	if f = last(rowFor("a", "engine", 64, 100),
		rowFor("b", "engine", 64, 50)); f.Series[0].Values["b bs64"].Median != 0.5 {
		t.Errorf("%+v", f)
	}
	if f := (&SuiteReport{
		Results: []PointResult{{Merged: &Keys{Failed: "x"}}},
	}).suiteFigures(); f != nil {
		t.Errorf("%v", f)
	}
}
