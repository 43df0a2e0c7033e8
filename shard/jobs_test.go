package shard_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/parquet-go/parquet-go"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/convert"
	"github.com/goatnote-inc/robocache/diagnose"
	"github.com/goatnote-inc/robocache/quality"
	"github.com/goatnote-inc/robocache/shard"
	"github.com/goatnote-inc/robocache/stats"
	"github.com/goatnote-inc/robocache/synth"
)

// images stores stills in the table, so that no encoder is needed.
var images = convert.Options{
	WriteOptions: robocache.WriteOptions{Options: map[string]string{"images": "images"}},
}

// TestStatsExact checks that the statistics of shards equal those of the whole exactly, including
// quantiles.
func TestStatsExact(t *testing.T) {
	src := source(t, 9, synth.Options{Rates: map[string]float64{"camera": 30, "force": 90}})
	ds := open(t, src)
	want, err := stats.Compute(t.Context(), ds, stats.Options{Frames: stats.SampledFrames})
	if err != nil {
		t.Fatal(err)
	}
	dst := filepath.Join(t.TempDir(), "out")
	c := all(
		t,
		plan(
			t,
			shard.Job{Name: "stats", Source: src, Destination: dst, Frames: stats.SampledFrames},
			4,
		),
	)
	b, err := os.ReadFile(filepath.Join(dst, "stats.json"))
	if err != nil {
		t.Fatal(err)
	}
	text, _ := stats.Marshal(want)
	var x, y map[string]map[string]any
	if json.Unmarshal(b, &x) != nil || json.Unmarshal(text, &y) != nil || len(x) != len(y) ||
		c.Episodes != 9 {
		t.Fatalf("%s\n%s", b, text)
	}
	for key := range y {
		for name := range y[key] {
			a, b := numbers(x[key][name]), numbers(y[key][name])
			if !slices.EqualFunc(a, b, func(a, b float64) bool {
				return a == b ||
					(name == "mean" || name == "std") && math.Abs(a-b) < 1e-12*(1+math.Abs(b))
			}) {
				t.Errorf("%s of %s: %v, want %v", name, key, a, b)
			}
		}
	}
	if left, _ := os.ReadDir(filepath.Join(dst, "_staging")); len(left) > 0 {
		t.Errorf("staging holds %v", left)
	}
}

// TestQualityEqual checks that the table of shards has the bytes of the table of one process, and
// that its findings are reported.
func TestQualityEqual(t *testing.T) {
	src := source(t, 9, synth.Options{})
	table, err := quality.Measure(t.Context(), open(t, src), quality.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var want bytes.Buffer
	if err := table.EncodeParquet(&want); err != nil {
		t.Fatal(err)
	}
	dst := filepath.Join(t.TempDir(), "out")
	job := shard.Job{Name: "quality", Source: src, Destination: dst, Frames: "all"}
	job.Convert.Options = map[string]string{"frames": "all"} // as the command line passes them
	c := all(t, plan(t, job, 4))
	got, err := os.ReadFile(filepath.Join(dst, "quality.parquet"))
	if err != nil || c.Episodes != 9 {
		t.Fatalf("%d episodes: %v", c.Episodes, err)
	}
	if !bytes.Equal(got, want.Bytes()) {
		t.Errorf("%d bytes differ from the %d of one process", len(got), want.Len())
	}
	if _, err := os.Stat(filepath.Join(dst, "quality.json")); err != nil {
		t.Error(err)
	}
	job.Frames = "few"
	if _, err := shard.NewPlan(t.Context(), job, shard.PlanOptions{Shards: 1}); !errors.Is(
		err, robocache.ErrMisuse,
	) {
		t.Errorf("%v, want ErrMisuse", err)
	}
}

func numbers(v any) (out []float64) {
	if list, ok := v.([]any); ok {
		for _, x := range list {
			out = append(out, numbers(x)...)
		}
		return out
	}
	f, _ := v.(float64)
	return append(out, f)
}

// TestDoctorMerged checks that the doctor of shards reports the same findings as the doctor of the
// whole.
func TestDoctorMerged(t *testing.T) {
	src := source(t, 6, synth.Options{Cameras: -1})
	damage(t, src)
	ds := open(t, src)
	want, err := diagnose.Run(t.Context(), ds, robocache.DiagnoseOptions{})
	if err != nil {
		t.Fatal(err)
	}
	dst := filepath.Join(t.TempDir(), "out")
	all(t, plan(t, shard.Job{Name: "doctor", Source: src, Destination: dst}, 3))
	b, err := os.ReadFile(filepath.Join(dst, "doctor.json"))
	var got struct{ Findings []robocache.Finding }
	if err != nil || json.Unmarshal(b, &got) != nil || len(want) == 0 {
		t.Fatalf("%v %s", err, b)
	}
	codes := func(list []robocache.Finding) (out []string) {
		for _, f := range list {
			out = append(out, f.Code)
		}
		slices.Sort(out)
		return slices.Compact(out)
	}
	if !slices.Equal(codes(got.Findings), codes(want)) {
		t.Errorf("%v, want %v", codes(got.Findings), codes(want))
	}
}

// damage flips the bytes of an episode's action, so that it cannot be read. Its timestamps, which a
// plan needs, are unchanged.
func damage(t *testing.T, src string) {
	t.Helper()
	name := filepath.Join(src, "data", "chunk-000", "file-000.parquet")
	b := must(os.ReadFile(name))
	file := must(parquet.OpenFile(bytes.NewReader(b), int64(len(b))))
	at := file.Metadata().RowGroups[5].Columns[file.Root().Column("action").Column("list").Column(
		"element",
	).Index()].MetaData
	for i := at.DataPageOffset; i < at.DataPageOffset+at.TotalCompressedSize; i++ {
		b[i] ^= 0xff
	}
	if err := os.WriteFile(name, b, 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestLeftOut checks that an unreadable episode is skipped and reported if this is allowed, and
// that later episodes are numbered without it. A partial commit also yields a complete dataset.
func TestLeftOut(t *testing.T) {
	src := source(t, 8, synth.Options{Cameras: -1})
	damage(t, src)
	opt := images
	strict := plan(
		t,
		shard.Job{
			Name:        "convert",
			Source:      src,
			Destination: filepath.Join(t.TempDir(), "x"),
			To:          "lerobot",
			Convert:     opt,
		},
		4,
	)
	bad := 0
	for i := range strict.Shards {
		if _, err := shard.Run(t.Context(), strict, i, shard.RunOptions{}); errors.Is(err,
			shard.ErrNever) {
			bad++
		} else if err != nil {
			t.Fatal(err)
		}
	}
	if s, err := shard.StatusOf(t.Context(), strict); bad != 1 || err != nil || s.Done != 3 ||
		s.Failed != 1 || s.ByClass["malformed"] != 1 || len(s.Never) != 1 ||
		s.Array != "--array="+string(must(s.Missing.MarshalText())) {
		t.Fatalf("%d, %+v %v", bad, s, err)
	}
	opt.SkipBad = true
	plain := filepath.Join(t.TempDir(), "plain")
	if _, err := convert.Write(t.Context(), open(t, src), "lerobot", plain, opt); err != nil {
		t.Fatal(err)
	}
	dst := filepath.Join(t.TempDir(), "out")
	c := all(
		t,
		plan(
			t,
			shard.Job{Name: "convert", Source: src, Destination: dst, To: "lerobot", Convert: opt},
			4,
		),
	)
	want, got := open(t, plain), open(t, dst)
	if len(c.Skipped) == 0 || c.Episodes != want.Info().Episodes ||
		want.Info().Episodes+len(c.Skipped) != 8 {
		t.Fatalf("%+v", c)
	}
	same(t, want, got)
	sameReport(t, plain, dst)
	healthy(t, dst)

	part := filepath.Join(t.TempDir(), "part")
	m := plan(
		t,
		shard.Job{Name: "convert", Source: src, Destination: part, To: "lerobot", Convert: opt},
		4,
	)
	for _, i := range []int{3, 1} {
		if _, err := shard.Run(t.Context(), m, i, shard.RunOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := shard.Commit(t.Context(), m, shard.CommitOptions{}); !errors.Is(err,
		robocache.ErrTemporary) || !strings.Contains(err.Error(), "0,2") {
		t.Fatalf("%v", err)
	}
	c, err := shard.Commit(t.Context(), m, shard.CommitOptions{Partial: true})
	if err != nil || !slices.Equal(c.Missing, shard.Episodes{0, 2}) ||
		open(t, part).Info().Episodes != c.Episodes {
		t.Fatalf("%+v %v", c, err)
	}
	healthy(t, part)
	late(t, m, 0) // after the commit

	part = filepath.Join(t.TempDir(), "late")
	m = plan(
		t,
		shard.Job{Name: "convert", Source: src, Destination: part, To: "lerobot", Convert: opt},
		4,
	)
	if _, err := shard.Commit(t.Context(), m, shard.CommitOptions{Partial: true}); !errors.Is(err,
		robocache.ErrTemporary) {
		t.Fatal(err)
	}
	late(t, m, 3) // a partial commit that was interrupted after it read the receipts
	all(t, m)
	same(t, want, open(t, part))
	healthy(t, part)
	if _, err := os.Stat(filepath.Join(part, "_staging")); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}

// late runs a shard that a partial commit did not see. None of its files may become part of the
// result.
func late(t *testing.T, m *shard.Manifest, i int) {
	t.Helper()
	result := func() map[string]string {
		out := files(t, m.Job.Destination)
		maps.DeleteFunc(out, func(name, _ string) bool { return strings.HasPrefix(name, "_") })
		return out
	}
	before := result()
	if _, err := shard.Run(t.Context(), m, i, shard.RunOptions{}); err != nil {
		t.Fatal(err)
	}
	if after := result(); !maps.Equal(before, after) {
		t.Errorf("%d files, there were %d", len(after), len(before))
	}
}

// TestWhole checks that a partial commit of Zarr is an error and moves no file, because positions
// in Zarr depend on the plan.
func TestWhole(t *testing.T) {
	dst := filepath.Join(t.TempDir(), "out")
	m := plan(
		t,
		shard.Job{
			Name:        "convert",
			Source:      "synth://heterogeneous?episodes=6&cap=20",
			Destination: dst,
			To:          "zarr",
		},
		3,
	)
	for _, i := range []int{0, 2} {
		if _, err := shard.Run(t.Context(), m, i, shard.RunOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	before := files(t, dst)
	if _, err := shard.Commit(t.Context(), m, shard.CommitOptions{Partial: true}); !errors.Is(err,
		robocache.ErrUnsupported) || !strings.Contains(err.Error(), "without the shards 1") {
		t.Error(err)
	}
	if d := differences(before, files(t, dst)); d != nil {
		t.Error(d)
	}
	all(t, m)
}

// TestOtherChannels checks that images of one stream with different channels in different shards
// are an error.
func TestOtherChannels(t *testing.T) {
	dst := filepath.Join(t.TempDir(), "out")
	m := plan(
		t,
		shard.Job{Name: "stats", Source: source(t, 4, synth.Options{}), Destination: dst},
		2,
	)
	for i := range m.Shards {
		if _, err := shard.Run(t.Context(), m, i, shard.RunOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	name := filepath.Join(dst, "_receipts", "00001.json")
	good := must(os.ReadFile(name))
	gray := regexp.MustCompile(`("levels":\[\[[0-9,]*\])[^}]*`).ReplaceAll(good, []byte("$1]"))
	if bytes.Equal(good, gray) || os.WriteFile(name, gray, 0o644) != nil {
		t.Fatalf("%s", good)
	}
	if _, err := shard.Commit(t.Context(), m, shard.CommitOptions{}); !errors.Is(err,
		robocache.ErrMalformed) || !strings.Contains(err.Error(), "another kind of image") ||
		!strings.Contains(err.Error(), "00001.json") {
		t.Error(err)
	}
}

func must[T any](v T, _ error) T { return v }

// healthy runs the doctor.
func healthy(t *testing.T, uri string) {
	t.Helper()
	found, err := diagnose.Run(t.Context(), open(t, uri), robocache.DiagnoseOptions{Deep: true})
	for _, f := range found {
		if f.Severity != robocache.SeverityInfo {
			t.Errorf("%+v", f)
		}
	}
	if err != nil {
		t.Error(err)
	}
}
