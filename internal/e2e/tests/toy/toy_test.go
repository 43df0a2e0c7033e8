package toy_test

import (
	"context"
	"errors"
	"io"
	"path/filepath"
	"slices"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/convert"
	"github.com/goatnote-inc/robocache/diagnose"
	_ "github.com/goatnote-inc/robocache/format/all"
	"github.com/goatnote-inc/robocache/inspect"
	"github.com/goatnote-inc/robocache/internal/cli"
	// the only line outside the format's folder
	_ "github.com/goatnote-inc/robocache/internal/e2e/tests/toy"
	"github.com/goatnote-inc/robocache/loader"
	"github.com/goatnote-inc/robocache/stats"
	"github.com/goatnote-inc/robocache/synth"
)

// A format is one folder and one line elsewhere. synth, inspect, doctor, statistics, conversions in
// both directions, the Loader and the command line work with it.
func TestToyFormat(t *testing.T) {
	ctx, dir := t.Context(), t.TempDir()
	made := filepath.Join(dir, "made.toy")
	if _, err := synth.Write(ctx, made,
		synth.Options{Format: "toy", Episodes: 3, Seconds: 1, Cameras: -1}); err != nil {
		t.Fatal(err)
	}
	ds := open(t, made)
	report, err := inspect.Dataset(ctx, ds)
	if err != nil || report.Episodes != 3 || report.Frames != 90 || len(report.Streams) != 1 {
		t.Fatalf("inspect: %v %+v", err, report)
	}
	if findings, err := diagnose.Run(
		ctx,
		ds,
		robocache.DiagnoseOptions{},
	); err != nil ||
		slices.ContainsFunc(
			findings,
			func(f robocache.Finding) bool { return f.Severity == robocache.SeverityError },
		) {
		t.Errorf("doctor: %v %v", err, findings)
	}
	s, err := stats.Compute(ctx, ds, stats.Options{})
	if err != nil || s["observation.state"] == nil || s["observation.state"].Count != 90 {
		t.Errorf("stats: %v %v", err, s)
	}
	if n := epoch(t, ds); n != 90 {
		t.Errorf("the Loader gave %d samples", n)
	}
	// Conversions to every other format and back keep the values.
	want := rowsOfAll(t, ds)
	for _, format := range convert.Formats() {
		if format == "toy" {
			continue
		}
		there, back := filepath.Join(dir, "to."+format), filepath.Join(dir, format+".toy")
		if _, err := convert.Write(ctx, ds, format, there, convert.Options{}); err != nil {
			t.Errorf("to %s: %v", format, err)
			continue
		}
		opt := robocache.OpenOptions{}
		if f, _ := robocache.FormatNamed(format); !f.Stamped {
			opt.HZ = ds.Info().FPS
		}
		other, err := robocache.Open(ctx, there, opt)
		if err != nil {
			t.Errorf("%s: %v", format, err)
			continue
		}
		first := convert.Options{WriteOptions: robocache.WriteOptions{Keys: []string{key(other)}}}
		if _, err := convert.Write(ctx, other, "toy", back, first); err != nil {
			t.Errorf("from %s: %v", format, err)
		} else if got := rowsOfAll(t, open(t, back)); !slices.Equal(got, want) {
			t.Errorf("from %s: other values", format)
		}
		_ = other.Close()
	}
	// The command line finds the format through its registration only.
	for _, args := range [][]string{
		{"inspect", made},
		{"doctor", made},
		{"stats", made},
		{"convert", made, filepath.Join(dir, "cli"), "--dry-run"},
		{"convert", made, filepath.Join(dir, "cli.toy"), "--to", "toy"},
		{"synth", filepath.Join(dir, "synth.toy"), "--format", "toy", "--cameras", "0"},
	} {
		if code := cli.Main(args, "test"); code != 0 && code != 3 {
			t.Errorf("%v: exit %d", args, code)
		}
	}
}

func open(t *testing.T, uri string) robocache.Dataset {
	t.Helper()
	ds, err := robocache.Open(t.Context(), uri)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ds.Close() })
	return ds
}

// key returns the stream that synth wrote, under the name that the format gave it.
func key(ds robocache.Dataset) string {
	for _, f := range ds.Info().Features {
		if f.Kind == robocache.KindNumeric && !f.Default && f.Elements() == 4 {
			return f.Key
		}
	}
	return ""
}

func rowsOfAll(t *testing.T, ds robocache.Dataset) (out []float64) {
	t.Helper()
	f := ds.Info().Feature(key(ds))
	for e := range ds.Info().Episodes {
		rows := make([]robocache.Row, ds.Len(e))
		for i := range rows {
			rows[i] = robocache.Row{Episode: e, Index: i}
		}
		raw := make([]byte, len(rows)*f.RowBytes())
		if err := ds.Gather(context.Background(), f.Key, rows, raw); err != nil {
			t.Fatal(err)
		}
		out = robocache.Float64s(out, f.DType, raw)
	}
	return out
}

func epoch(t *testing.T, ds robocache.Dataset) (samples int) {
	t.Helper()
	l, err := loader.New(t.Context(), ds, loader.Config{Order: loader.Order{BatchSize: 8, Seed: 1}})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for {
		b, err := l.Next(t.Context())
		if errors.Is(err, io.EOF) {
			return samples
		}
		if err != nil {
			t.Fatal(err)
		}
		samples += b.Rows
		b.Release()
	}
}
