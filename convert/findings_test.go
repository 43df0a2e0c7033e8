package convert_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/align"
	_ "github.com/goatnote-inc/robocache/format/mcap"
	_ "github.com/goatnote-inc/robocache/format/rlds"
	_ "github.com/goatnote-inc/robocache/format/robomimic"
	_ "github.com/goatnote-inc/robocache/format/zarr"
	"github.com/goatnote-inc/robocache/synth"
)

// recording writes a synthetic recording as one MCAP file.
func recording(t *testing.T, opt synth.Options) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "whole.mcap")
	_, err := Write(t.Context(), synthetic(t, opt), "mcap", file, Options{},
		map[string]string{"chunk": "4096"})
	if err != nil {
		t.Fatal(err)
	}
	return file
}

func codes(findings []robocache.Finding) (out []string) {
	for _, f := range findings {
		out = append(out, f.Code)
	}
	return out
}

// convert.C6: the findings of the source's reader are in the report of each writer, once, and in
// meta/conversion.json.
func TestSourceFindings(t *testing.T) {
	file := recording(t, synth.Options{
		Episodes: 1,
		Seconds:  3,
		Cameras:  -1,
		Rates:    map[string]float64{"camera": 30, "joints": 100},
	})
	whole, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	cut := filepath.Join(t.TempDir(), "cut.mcap")
	if err := os.WriteFile(cut, whole[:len(whole)*3/5], 0o644); err != nil {
		t.Fatal(err)
	}
	src := open(t, cut)
	for _, to := range []string{"lerobot", "mcap", "zarr", "rlds", "robomimic"} {
		dst := filepath.Join(t.TempDir(), "1.0.0")
		r, err := Write(
			t.Context(),
			src,
			to,
			dst,
			Options{FPS: robocache.Rate{Num: 30, Den: 1}},
			nil,
		)
		if err != nil {
			t.Fatal(to, err)
		}
		got := codes(r.Findings)
		for _, f := range src.Info().Findings {
			n := len(
				slices.DeleteFunc(slices.Clone(got), func(c string) bool { return c != f.Code }),
			)
			if n != 1 {
				t.Errorf("%s: %s stands %d times in %v", to, f.Code, n, got)
			}
		}
		if !slices.Contains(got, "cut-file") {
			t.Errorf("%s: %v", to, got)
		}
		if to == "lerobot" {
			b, err := os.ReadFile(filepath.Join(dst, reportName))
			if err != nil || !bytes.Contains(b, []byte(`"cut-file"`)) {
				t.Errorf("%v\n%s", err, b)
			}
		}
	}
}

// notices is a dataset that adds a finding while it is read.
type notices struct{ robocache.Dataset }

func (n notices) Capabilities() *robocache.Capabilities {
	own := *n.Dataset.Capabilities()
	own.Noticed = n.Noticed
	return &own
}

func (notices) Noticed() []robocache.Finding {
	return []robocache.Finding{
		{Severity: robocache.SeverityError, Code: "seen-late"},
		{Severity: robocache.SeverityError, Code: "seen-early"},
	}
}

// Findings from reading are in the report too, also through a view, and in a fixed order.
func TestNoticedFindings(t *testing.T) {
	src := notices{synthetic(t, synth.Options{Episodes: 1, Seconds: 1, Cameras: -1})}
	for _, opt := range []Options{
		{},
		{DryRun: true},
		{Align: &align.Config{HZ: robocache.Rate{Num: 15, Den: 1}}},
	} {
		r, err := ToLeRobot(t.Context(), src, filepath.Join(t.TempDir(), "set"), opt)
		if err != nil {
			t.Fatal(err)
		}
		if got := codes(r.Findings); !slices.Equal(got[:2], []string{"seen-early", "seen-late"}) &&
			!strings.HasSuffix(strings.Join(got, " "), "seen-early seen-late") {
			t.Errorf("%+v: %v", opt, got)
		}
	}
}

// Without findings, the report has an empty list, because scripts iterate over it.
func TestNoFindings(t *testing.T) {
	dst := filepath.Join(t.TempDir(), "set")
	if _, err := ToLeRobot(t.Context(),
		synthetic(t, synth.Options{Episodes: 1, Seconds: 0.5, Cameras: -1}), dst, Options{}); err !=
		nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(filepath.Join(dst, reportName))
	if err != nil || !bytes.Contains(b, []byte(`"findings": []`)) {
		t.Errorf("%v\n%s", err, b)
	}
}

// Without max_gap, each stream's own rate defines its gaps. Rows in gaps are masked and counted.
func TestGapsByRhythm(t *testing.T) {
	file := recording(t, synth.Options{
		Episodes: 2,
		Seconds:  4,
		Cameras:  -1,
		Gaps:     0.1,
		Seed:     3,
		Rates:    map[string]float64{"camera": 30, "joints": 100, "text": 4},
	})
	src := open(t, file)
	hz := robocache.Rate{Num: 50, Den: 1}
	dst := filepath.Join(t.TempDir(), "set")
	r, err := ToLeRobot(t.Context(), src, dst, Options{FPS: hz})
	if err != nil {
		t.Fatal(err)
	}
	out := open(t, dst)
	total := 0
	for _, key := range []string{"observation.state", "observation.joints", "action"} {
		mask := out.Info().Feature(key + align.ValidSuffix)
		var masked int64
		for e := range src.Info().Episodes {
			timestamps, err := src.Times(t.Context(), e, key)
			if err != nil {
				t.Fatal(err)
			}
			start := r.Episodes[e].StartNS
			valid := make([]byte, out.Len(e))
			if mask != nil {
				if err := out.Gather(t.Context(), mask.Key, rowsOf(e, out.Len(e)), valid); err !=
					nil {
					t.Fatal(err)
				}
			}
			for k := range valid {
				at := start + hz.Nanos(int64(k))
				i, hit := slices.BinarySearch(timestamps, at)
				inside := hit ||
					i > 0 && i < len(timestamps) &&
						timestamps[i]-timestamps[i-1] <= robocache.LongestStep(timestamps)
				if inside != (mask == nil || valid[k] != 0) {
					t.Errorf(
						"%s of episode %d, row %d: valid %v, want %v",
						key,
						e,
						k,
						valid[k] != 0,
						inside,
					)
				}
				if !inside {
					masked++
				}
			}
		}
		i := slices.IndexFunc(r.Findings, func(f robocache.Finding) bool {
			return f.Code == "rows-in-gaps" && f.Where["stream"] == key
		})
		if (i >= 0) != (masked > 0) || i >= 0 && r.Findings[i].Count != masked {
			t.Errorf("%s: %d rows masked, %v", key, masked, r.Findings)
		}
		total += int(masked)
	}
	if total == 0 || !slices.Contains(codes(r.Findings), "max-gap") {
		t.Errorf("%d rows masked: %v", total, codes(r.Findings))
	}
	if out.Info().Feature("observation.phase"+align.ValidSuffix) != nil &&
		slices.ContainsFunc(r.Findings, func(f robocache.Finding) bool {
			return f.Code == "rows-in-gaps" && f.Where["stream"] == "observation.phase"
		}) {
		t.Error("texts hold until the next")
	}
	// With max_gap none, no rows are masked.
	var cfg align.Config
	if err := json.Unmarshal([]byte(`{"hz": 50, "max_gap": 0}`), &cfg); err != nil {
		t.Fatal(err)
	}
	r, err = ToLeRobot(
		t.Context(),
		src,
		filepath.Join(t.TempDir(), "bridged"),
		Options{Align: &cfg},
	)
	if err != nil || slices.Contains(codes(r.Findings), "rows-in-gaps") ||
		slices.Contains(codes(r.Findings), "max-gap") {
		t.Error(err, codes(r.Findings))
	}
}
