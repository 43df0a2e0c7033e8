package shard_test

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/align"
	"github.com/goatnote-inc/robocache/convert"
	_ "github.com/goatnote-inc/robocache/format/all"
	"github.com/goatnote-inc/robocache/shard"
	"github.com/goatnote-inc/robocache/synth"
	_ "github.com/goatnote-inc/robocache/video/ffmpeg"
)

// source writes a small dataset with images in the table and without video.
func source(t testing.TB, episodes int, opt synth.Options) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "src")
	opt.Episodes, opt.Spread, opt.Codec, opt.Seed = episodes, 0.5, "png", 3
	if opt.Seconds == 0 {
		opt.Seconds = 0.5
	}
	if opt.Cameras == 0 {
		opt.Cameras = 1
	}
	if _, err := synth.Write(t.Context(), dir, opt); err != nil {
		t.Fatal(err)
	}
	return dir
}

func plan(t testing.TB, job shard.Job, n int) *shard.Manifest {
	t.Helper()
	m, err := shard.NewPlan(t.Context(), job, shard.PlanOptions{Shards: n})
	if err != nil {
		t.Fatal(err)
	}
	return reread(t, m)
}

func reread(t testing.TB, m *shard.Manifest) *shard.Manifest {
	t.Helper()
	b, err := m.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	if m, err = shard.Parse(b); err != nil {
		t.Fatal(err)
	}
	return m
}

func all(t testing.TB, m *shard.Manifest) *shard.Committed {
	t.Helper()
	for i := range m.Shards {
		if _, err := shard.Run(t.Context(), m, i, shard.RunOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	c, err := shard.Commit(t.Context(), m, shard.CommitOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestManifestSameBytes checks that the same input yields the same manifest, byte for byte, and
// that it is unchanged after reading (shard.H1).
func TestManifestSameBytes(t *testing.T) {
	src := source(t, 5, synth.Options{})
	job := shard.Job{Name: "convert", Source: src, Destination: "/tmp/out", To: "lerobot"}
	var first []byte
	for range 2 {
		b, err := plan(t, job, 3).Marshal()
		if err != nil {
			t.Fatal(err)
		}
		if first == nil {
			first = b
		}
		if !bytes.Equal(b, first) {
			t.Errorf("%s\n%s", first, b)
		}
		now := os.Chtimes
		// modification times are ignored
		_ = filepath.WalkDir(src, func(p string, _ os.DirEntry, _ error) error {
			i, err := os.Stat(p)
			if err != nil {
				return err
			}
			return now(p, i.ModTime().Add(-1e9), i.ModTime().Add(-1e9))
		})
	}
}

// TestEqualToConvert checks that the dataset of shards, run in any order, equals the one that a
// single run writes, episode by episode (shard.H5, shard.H6).
func TestEqualToConvert(t *testing.T) {
	for _, to := range []string{"lerobot", "mcap", "delta"} {
		for _, hz := range []int64{0, 20} {
			t.Run(fmt.Sprint(to, hz), func(t *testing.T) {
				src := source(t, 6, synth.Options{})
				var opt convert.Options
				if hz > 0 {
					opt.Align = &align.Config{HZ: robocache.Rate{Num: hz, Den: 1}}
				}
				opt.Options = map[string]string{}
				if to == "lerobot" {
					opt.Options["images"] = "images"
				}
				plain := filepath.Join(t.TempDir(), "plain")
				ds := open(t, src)
				if _, err := convert.Write(t.Context(), ds, to, plain, opt); err != nil {
					t.Fatal(err)
				}
				dst := filepath.Join(t.TempDir(), "out")
				c := all(
					t,
					plan(
						t,
						shard.Job{
							Name:        "convert",
							Source:      src,
							Destination: dst,
							To:          to,
							Convert:     opt,
						},
						4,
					),
				)
				want, got := open(t, plain), open(t, dst)
				if c.Shards != 4 || c.Episodes != want.Info().Episodes ||
					got.Info().Episodes != want.Info().Episodes ||
					got.Info().Frames != want.Info().Frames ||
					!reflect.DeepEqual(got.Info().Tasks, want.Info().Tasks) {
					t.Fatalf("%+v, %+v", c, got.Info())
				}
				same(t, want, got)
				if to == "lerobot" {
					sameStats(t, want, got)
					sameReport(t, plain, dst)
				}
			})
		}
	}
}

// TestShardsOfGaps checks that shards split episodes at gaps like a single conversion, in every
// sharded format, and that the commit reports the same findings.
func TestShardsOfGaps(t *testing.T) {
	made, err := synth.New(
		synth.Options{
			Episodes: 4,
			Seconds:  3,
			Spread:   0.3,
			Cameras:  -1,
			Seed:     5,
			Dropout:  time.Second,
			Rates:    map[string]float64{"camera": 30, "joints": 100},
		},
	)
	if err != nil {
		t.Fatal(err)
	}
	src := filepath.Join(t.TempDir(), "src")
	if _, err := convert.Write(t.Context(), made, "mcap", src, convert.Options{}); err != nil {
		t.Fatal(err)
	}
	for _, to := range convert.Sharded() {
		for _, drop := range []bool{true, false} {
			t.Run(fmt.Sprint(to, drop), func(t *testing.T) {
				opt := convert.Options{
					DropInvalid: drop,
					Align:       &align.Config{HZ: robocache.Rate{Num: 30, Den: 1}},
				}
				plain := filepath.Join(t.TempDir(), "plain")
				report, err := convert.Write(t.Context(), open(t, src), to, plain, opt)
				if err != nil {
					t.Fatal(err)
				}
				dst := filepath.Join(t.TempDir(), "out")
				c := all(
					t,
					plan(
						t,
						shard.Job{
							Name:        "convert",
							Source:      src,
							Destination: dst,
							To:          to,
							Convert:     opt,
						},
						2,
					),
				)
				want, got := open(t, plain), open(t, dst)
				if n := want.Info().Episodes; (n > 4) != drop || c.Episodes != n ||
					got.Info().Episodes != n ||
					got.Info().Frames != want.Info().Frames {
					t.Fatalf(
						"%d episodes and %d rows, want %d and %d",
						got.Info().Episodes,
						got.Info().Frames,
						n,
						want.Info().Frames,
					)
				}
				same(t, want, got)
				for e := range want.Info().Episodes {
					a, aerr := want.Episode(t.Context(), e)
					if b, err := got.Episode(t.Context(), e); err != nil || aerr != nil ||
						a.Index != b.Index || a.Length != b.Length {
						t.Errorf("%+v, want %+v: %v %v", b, a, err, aerr)
					}
				}
				codes := func(all []robocache.Finding) (out []string) {
					for _, f := range all {
						text := f.Message
						if f.Code == "actions-beyond-one" { // each shard counts its own
							text = ""
						}
						out = append(out, string(f.Severity)+" "+f.Code+" "+text)
					}
					slices.Sort(out)
					return slices.Compact(out)
				}
				if a, b := codes(report.Findings), codes(c.Findings); !slices.Equal(a, b) ||
					len(b) == 0 {
					t.Errorf(
						"the commit reports\n%v\nthe conversion\n%v",
						strings.Join(b, "\n"),
						strings.Join(a, "\n"),
					)
				}
			})
		}
	}
}

// sameStats compares the statistics of two datasets: mean and deviation with rounding, everything
// else exactly.
func sameStats(t testing.TB, want, got robocache.Dataset) {
	t.Helper()
	a, err := want.Stats(t.Context())
	b, gerr := got.Stats(t.Context())
	if err != nil || gerr != nil || len(a) == 0 {
		t.Fatal(err, gerr, a)
	}
	for key, x := range a {
		y := b[key]
		for c := range x.Mean {
			if math.Abs(x.Mean[c]-y.Mean[c]) > 1e-12*(1+math.Abs(x.Mean[c])) ||
				math.Abs(x.Std[c]-y.Std[c]) > 1e-12*(1+x.Std[c]) {
				t.Errorf("%s: mean %v, want %v; std %v, want %v", key, y.Mean, x.Mean, y.Std, x.Std)
			}
		}
		if y.Mean, y.Std = x.Mean, x.Std; !reflect.DeepEqual(x, y) {
			t.Errorf("%s: %+v, want %+v", key, y, x)
		}
	}
}

func open(t testing.TB, uri string) robocache.Dataset {
	t.Helper()
	ds, err := robocache.Open(context.Background(), uri)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ds.Close() })
	return ds
}

// same compares every row of every stream.
func same(t testing.TB, want, got robocache.Dataset) {
	t.Helper()
	if a, b := want.Info().Keys(), got.Info().Keys(); !slices.Equal(a, b) {
		t.Fatalf("streams %v, want %v", b, a)
	}
	for e := range want.Info().Episodes {
		for i := range want.Info().Features {
			f := &want.Info().Features[i]
			a, b := content(t, want, f, e), content(t, got, f, e)
			if !reflect.DeepEqual(a, b) {
				t.Errorf("%s of episode %d differs", f.Key, e)
			}
		}
	}
}

func content(t testing.TB, ds robocache.Dataset, f *robocache.Feature, e int) any {
	t.Helper()
	n, err := robocache.RowsIn(t.Context(), ds, e, f)
	if err != nil {
		t.Fatal(err)
	}
	rows := robocache.RowsOf(e, 0, n)
	switch {
	case f.Kind == robocache.KindText || f.Kind == robocache.KindEvent:
		s, err := ds.Text(t.Context(), f.Key, rows)
		if err != nil {
			t.Fatal(err)
		}
		return s
	case f.RowBytes() > 0:
		b := make([]byte, n*f.RowBytes())
		if err := ds.Gather(t.Context(), f.Key, rows, b); err != nil {
			t.Fatal(err)
		}
		return b
	}
	refs := make([]robocache.FrameRef, n)
	if err := ds.Frames(t.Context(), f.Key, rows, refs); err != nil {
		t.Fatal(err)
	}
	var out [][]byte
	for _, r := range refs {
		out = append(out, r.Encoded)
	}
	return out
}
