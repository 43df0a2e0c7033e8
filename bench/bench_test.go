package bench

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/goatnote-inc/robocache/bench/report"

	"github.com/goatnote-inc/robocache/bench/internal/realdata"
	_ "github.com/goatnote-inc/robocache/format/all"
	_ "github.com/goatnote-inc/robocache/video/ffmpeg"
)

// 16 episodes of equal length and batches of 32 give 0.43 if perfectly shuffled.
func TestIdealDistinct(t *testing.T) {
	lengths := make([]int, 16)
	for i := range lengths {
		lengths[i] = 250
	}
	if got := IdealDistinct(lengths, 32); math.Abs(got-0.43) > 0.01 {
		t.Errorf("%.3f", got)
	}
	if got := IdealDistinct([]int{1, 1, 1, 1}, 4); got != 1 {
		t.Errorf("four single frames: %v", got)
	}
}

func shell(
	name, script string,
) Runner {
	return Runner{Name: name, Argv: []string{"sh", "-c", script}}
}

// bench.C1 and bench.C6: runs are interleaved, and a failed runner is reported with its own message
// and without figures.
func TestRunTakesTurns(t *testing.T) {
	log := filepath.Join(t.TempDir(), "log")
	runners := []Runner{
		shell(
			"a",
			`echo a >> `+log+`; echo noise; echo '{"samples":10,"seconds":2,"cpu_seconds":1}'`,
		),
		shell("b", `echo b >> `+log+`; echo '{"samples":10,"seconds":1,"cpu_seconds":1}'`),
		shell("broken", `echo "what went wrong" >&2; exit 3`),
		shell("empty", `echo '{"samples":0,"seconds":1}'`),
	}
	results, err := Run(t.Context(), runners, 3, time.Minute, func(string, ...any) {})
	if err != nil {
		t.Fatal(err)
	}
	if b, _ := os.ReadFile(log); strings.Join(strings.Fields(string(b)), "") != "ababab" {
		t.Errorf("order %q", b)
	}
	if results[0].SamplesPerS.Median != 5 || results[0].CPUPer1000.Median != 100 ||
		len(results[1].Runs) != 3 {
		t.Errorf("%+v", results[:2])
	}
	if !strings.Contains(results[2].Failed, "what went wrong") || len(results[2].Runs) != 0 ||
		results[3].Failed == "" {
		t.Errorf("%+v", results[2:])
	}
}

// An interrupted measurement resumes with the missing runs and the failed ones. Runs with another
// key are not reused.
func TestRunGoesOn(t *testing.T) {
	dir := t.TempDir()
	log, rows := filepath.Join(dir, "log"), filepath.Join(dir, "rows.jsonl")
	for _, c := range []struct {
		key    string
		resume bool
		want   string
	}{
		{"a set", false, "ab"},
		{"a set", true, "b"},
		{"another", true, "ab"},
		{"a set", false, "ab"},
	} {
		done, err := OpenFinished(rows, c.resume)
		if err != nil {
			t.Fatal(err)
		}
		field := []Runner{
			shell("a", "printf a >> "+log+`; echo '{"samples":10,"seconds":2,"cpu_seconds":1}'`),
			shell("b", "printf b >> "+log+"; exit 3"),
		}
		for i := range field {
			field[i].finished, field[i].runKey = done, []any{c.key, field[i].Name}
		}
		results, err := Run(t.Context(), field, 1, time.Minute, func(string, ...any) {})
		if b, _ := os.ReadFile(log); err != nil || string(b) != c.want ||
			results[0].SamplesPerS.Median != 5 || results[1].Failed == "" {
			t.Errorf("%+v: %q ran: %v %+v", c, b, err, results)
		}
		if err := errors.Join(done.Close(), os.Remove(log)); err != nil {
			t.Fatal(err)
		}
	}
}

func TestRunEndsWithItsContextAndTimeout(t *testing.T) {
	// The process would outlive the tests.
	results, err := Run(
		t.Context(),
		[]Runner{shell("sleeper", "sleep 6000 & wait")},
		1,
		200*time.Millisecond,
		func(string, ...any) {},
	)
	if err != nil || results[0].Failed == "" {
		t.Errorf("%v %+v", err, results)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Run(
		ctx,
		[]Runner{shell("a", "true")},
		1,
		time.Minute,
		func(string, ...any) {},
	); err == nil {
		t.Error("a cancelled run gave no error")
	}
}

func TestReportFiles(t *testing.T) {
	r := &Report{
		Name:     "load",
		Title:    "t",
		Command:  "<c>",
		Unit:     "samples",
		Workload: map[string]any{"x": 1},
		Machine:  report.ThisMachine("r"),
	}
	results, err := Run(
		t.Context(),
		[]Runner{
			shell("a", `echo '{"samples":10,"seconds":2,"cpu_seconds":1}'`),
			shell("b", "exit 1"),
		},
		2,
		time.Minute,
		func(string, ...any) {},
	)
	if err != nil {
		t.Fatal(err)
	}
	r.Results = results
	dir := t.TempDir()
	if err := r.Document().Write(dir); err != nil {
		t.Fatal(err)
	}
	b, _ := os.ReadFile(filepath.Join(dir, "load.json"))
	var back Report
	if err := json.Unmarshal(b, &back); err != nil || back.Results[0].SamplesPerS.Median != 5 {
		t.Errorf("%v %+v", err, back)
	}
	b, _ = os.ReadFile(filepath.Join(dir, "load.csv"))
	if n := strings.Count(string(b), "\n"); n != 3 {
		t.Errorf("%d lines of CSV", n)
	}
	b, _ = os.ReadFile(filepath.Join(dir, "load.html"))
	if h := string(b); !strings.Contains(h, "<svg") || strings.Contains(h, "http") ||
		strings.Contains(h, "<c>") {
		t.Error("the page is not self-contained, has no plot, or does not escape")
	}
}

// The runners of this program do all their work: they deliver every sample of the epoch and every
// frame of the file.
func TestOwnRunners(t *testing.T) {
	path := realdata.Path(t, "g1_h264_v30")
	w := Workload{
		URI:         path,
		BatchSize:   32,
		Workers:     2,
		Epochs:      1,
		Video:       "one",
		CheckFrames: 8,
		OrderOut:    filepath.Join(t.TempDir(), "order"),
		FramesOut:   filepath.Join(t.TempDir(), "frames"),
	}
	o, err := LoadRun(t.Context(), w, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	ds, err := w.openDataset(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer ds.Close()
	ref, err := newReference(ds, path, &w)
	if err == nil {
		err = (&Runner{reference: ref}).checkDelivery(t.Context(), &w, &o)
	}
	if err != nil {
		t.Fatal(err)
	}
	if o.Samples != 1305 || o.StatsClose.Frames-o.StatsOpen.Frames != 1305 || o.CoverageMin != 1 ||
		o.CoverageMax != 1 ||
		o.WrongFrames != 0 ||
		o.OrderSHA256 == "" ||
		math.Abs(o.DistinctFrac/o.IdealFrac-1) > 0.05 {
		t.Errorf("%+v", o)
	}
	file := filepath.Join(path, "videos/observation.images.cam_high/chunk-000/file-000.mp4")
	if o, err = DecodeRun(t.Context(), Workload{Files: []string{file}, Pattern: "sequential"},
		io.Discard); err != nil || o.Samples != 1305 {
		t.Errorf("%+v %v", o, err)
	}
	if o, err = DecodeRun(t.Context(),
		Workload{Files: []string{file}, Pattern: "random", Count: 20}, io.Discard); err != nil ||
		o.Samples != 20 || o.Decoded < 20 {
		t.Errorf("%+v %v", o, err)
	}
	if _, err = DecodeRun(t.Context(), Workload{Files: []string{file}, Pattern: "backwards"},
		io.Discard); err == nil {
		t.Error("an unknown pattern passed")
	}
}
