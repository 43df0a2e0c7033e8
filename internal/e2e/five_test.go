package e2e

import (
	"context"
	"errors"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/align"
	"github.com/goatnote-inc/robocache/convert"
	"github.com/goatnote-inc/robocache/loader"
	"github.com/goatnote-inc/robocache/synth"
)

// sampled returns what an epoch delivers for some keys, in the order of the samples: tensors by
// key, and the tasks.
func sampled(
	ctx context.Context,
	ds robocache.Dataset,
	cfg loader.Config,
) (map[string][]byte, map[string][]int, error) {
	l, err := loader.New(ctx, ds, cfg)
	if err != nil {
		return nil, nil, err
	}
	defer l.Close()
	out, shapes := map[string][]byte{}, map[string][]int{}
	for {
		b, err := l.Next(ctx)
		if err == io.EOF {
			return out, shapes, nil
		}
		if err != nil {
			return nil, nil, err
		}
		for i := range b.Tensors {
			x := &b.Tensors[i]
			out[x.Key] = append(out[x.Key], x.Data...)
			shapes[x.Key] = slices.Clone(x.Shape[1:])
		}
		for i := range b.Texts {
			for _, s := range b.Texts[i].Values {
				out[b.Texts[i].Key] = append(append(out[b.Texts[i].Key], s...), 0)
			}
		}
		b.Release()
	}
}

// written lists the formats with a writer and the names to write to. Some formats need a file name.
func written() map[string]string {
	out := map[string]string{}
	for _, f := range convert.Formats() {
		if strings.HasPrefix(f, "test-") {
			continue
		}
		out[f] = map[string]string{
			"mcap":      "set.mcap",
			"robomimic": "set.hdf5",
			"zarr":      "set.zarr",
		}[f]
		if out[f] == "" {
			out[f] = "set"
		}
	}
	return out
}

// rated returns the options to open a set with rows at a fixed rate. Formats with timestamps reject
// a rate.
func rated(t *testing.T, format string, hz robocache.Rate) robocache.OpenOptions {
	f, err := robocache.FormatNamed(format)
	if err != nil {
		t.Fatal(err)
	}
	if f.Stamped {
		hz = robocache.Rate{}
	}
	return robocache.OpenOptions{HZ: hz}
}

// asImages returns the options of a writer that keep still images as images.
func asImages(format string) map[string]string {
	if format != "lerobot" {
		return nil
	}
	return map[string]string{"images": "images"}
}

// inEvery writes a dataset in every format with a writer, and calls each for every result.
func inEvery(
	t *testing.T,
	src robocache.Dataset,
	opt convert.Options,
	each func(t *testing.T, ds robocache.Dataset, r *robocache.WriteReport),
) {
	t.Helper()
	for format, name := range written() {
		t.Run(format, func(t *testing.T) {
			dst := filepath.Join(t.TempDir(), name)
			opt := opt
			opt.Options = asImages(format)
			r, err := convert.Write(t.Context(), src, format, dst, opt)
			if err != nil {
				t.Fatal(err)
			}
			if r.Episodes != src.Info().Episodes {
				t.Errorf("%d episodes were written", r.Episodes)
			}
			ds, err := robocache.Open(t.Context(), dst, rated(t, format, src.Info().FPS))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { ds.Close() })
			if ds.Info().Format != format {
				t.Errorf("opened as %s", ds.Info().Format)
			}
			each(t, ds, r)
		})
	}
}

// TestOneSetInEveryFormat checks e2e.C7 with shuffled windows of numbers, frames and texts.
func TestOneSetInEveryFormat(t *testing.T) {
	src, err := synth.New(synth.Options{Episodes: 4, Seconds: 1, Spread: 0.4, Seed: 21})
	if err != nil {
		t.Fatal(err)
	}
	cfg := loader.Config{
		Order: loader.Order{BatchSize: 8, Shuffle: loader.Global, Seed: 3},
		Windows: loader.Windows{Keys: []string{
			"observation.state",
			"action",
			"observation.images.cam_0",
			"observation.images.cam_1",
			"task",
		}, Deltas: loader.Deltas{
			{Key: "observation.state", Offsets: []float64{-2. / 30, -1. / 30, 0}},
			{Key: "action", Offsets: []float64{0, 1. / 30, 2. / 30, 3. / 30}},
		}},
	}
	want, shapes, err := sampled(t.Context(), src, cfg)
	if err != nil {
		t.Fatal(err)
	}
	inEvery(
		t,
		src,
		convert.Options{},
		func(t *testing.T, ds robocache.Dataset, r *robocache.WriteReport) {
			got, have, err := sampled(t.Context(), ds, cfg)
			if err != nil {
				t.Fatal(err)
			}
			compare(t, want, got, shapes, have)
			for _, f := range src.Info().Features {
				if ds.Info().Feature(f.Key) == nil && !slices.Contains(r.Dropped, f.Key) &&
					strings.HasPrefix(f.Key, "observation.") {
					t.Errorf(
						"%s is neither there nor reported as dropped (there are %v)",
						f.Key,
						keys(ds),
					)
				}
			}
		},
	)
}

func keys(ds robocache.Dataset) (out []string) {
	for _, f := range ds.Info().Features {
		out = append(out, f.Key)
	}
	return out
}

func compare(t *testing.T, want, got map[string][]byte, shapes, have map[string][]int) {
	t.Helper()
	for key, data := range want {
		if string(got[key]) != string(data) {
			n := 0
			for n < min(len(data), len(got[key])) && data[n] == got[key][n] {
				n++
			}
			t.Errorf(
				"%s differs from byte %d on: %d bytes of shape %v, want %d of %v",
				key,
				n,
				len(got[key]),
				have[key],
				len(data),
				shapes[key],
			)
		}
	}
}

// TestClocksInEveryFormat checks that streams on irregular clocks give the same samples at 50 Hz.
// The loader resamples them if the format stores clocks; otherwise the writer does.
func TestClocksInEveryFormat(t *testing.T) {
	src, err := synth.New(synth.Options{
		Episodes: 3,
		Seconds:  1.2,
		Spread:   0.3,
		Seed:     5,
		Rates: map[string]float64{
			"camera": 30,
			"joints": 100,
			"force":  333,
			"cloud":  10,
			"text":   4,
		},
		Jitter: time.Millisecond,
		Gaps:   0.02,
		Late:   100 * time.Millisecond,
		Skew:   60,
	})
	if err != nil {
		t.Fatal(err)
	}
	hz := robocache.Rate{Num: 50, Den: 1}
	cfg := loader.Config{
		Order: loader.Order{BatchSize: 8, Shuffle: loader.Global, Seed: 3},
		Windows: loader.Windows{Keys: []string{
			"observation.state",
			"action",
			"observation.joints",
			"observation.force",
			"observation.images.cam_0",
			"observation.images.cam_1",
			"task",
		}},
	}
	grid := cfg
	grid.Hz = &hz
	// The grid is that of these streams, independent of other streams of the format.
	on := align.Config{
		HZ: hz,
		Keys: []string{
			"observation.state",
			"action",
			"observation.joints",
			"observation.force",
			"observation.images.cam_0",
			"observation.images.cam_1",
		},
	}
	view, err := align.View(t.Context(), src, on, align.ViewOptions{})
	if err != nil {
		t.Fatal(err)
	}
	want, shapes, err := sampled(t.Context(), view, cfg)
	if err != nil {
		t.Fatal(err)
	}
	direct, have, err := sampled(t.Context(), src, grid)
	if err != nil {
		t.Fatal(err)
	}
	compare(t, want, direct, shapes, have)
	for format, name := range written() {
		t.Run(format, func(t *testing.T) {
			f, err := robocache.FormatNamed(format)
			if err != nil {
				t.Fatal(err)
			}
			dst := filepath.Join(t.TempDir(), name)
			opt := convert.Options{WriteOptions: robocache.WriteOptions{Options: asImages(format)}}
			if !f.Clocks {
				opt.Align = &on
			}
			if _, err := convert.Write(t.Context(), src, format, dst, opt); err != nil {
				t.Fatal(err)
			}
			ds, err := robocache.Open(t.Context(), dst, rated(t, format, hz))
			if err != nil {
				t.Fatal(err)
			}
			defer ds.Close()
			c := cfg
			if f.Clocks {
				c = grid
				kept(t, src, ds)
			}
			got, have, err := sampled(t.Context(), ds, c)
			if err != nil {
				t.Fatal(err)
			}
			compare(t, want, got, shapes, have)
		})
	}
}

// kept compares the streams of a format with clocks: timestamps relative to their start, values,
// texts, clouds.
func kept(t *testing.T, src *synth.Dataset, ds robocache.Dataset) {
	t.Helper()
	ctx := t.Context()
	for _, f := range src.Info().Features {
		g := ds.Info().Feature(f.Key)
		if g == nil {
			t.Errorf("%s is not there (there are %v)", f.Key, keys(ds))
			continue
		}
		for e := range src.Info().Episodes {
			a, err1 := src.Times(ctx, e, f.Key)
			b, err2 := ds.Times(ctx, e, f.Key)
			first1, err3 := src.Times(ctx, e, "observation.state")
			first2, err4 := ds.Times(ctx, e, "observation.state")
			if err := errors.Join(err1, err2, err3, err4); err != nil {
				t.Fatal(err)
			}
			for i := range a {
				a[i] -= first1[0]
			}
			for i := range b {
				b[i] -= first2[0]
			}
			if !slices.Equal(a, b) {
				t.Errorf(
					"%s of episode %d: other timestamps (%d, want %d)",
					f.Key,
					e,
					len(b),
					len(a),
				)
				continue
			}
			rows := make([]robocache.Row, len(a))
			for i := range rows {
				rows[i] = robocache.Row{Episode: e, Index: i}
			}
			switch {
			case f.Ragged():
				x, n, err1 := src.GatherRagged(ctx, f.Key, rows)
				gather := ds.Capabilities().GatherRagged
				if gather == nil {
					t.Errorf("%s: no ragged streams", f.Key)
					continue
				}
				y, m, err2 := gather(ctx, f.Key, rows)
				if err := errors.Join(err1, err2); err != nil || !slices.Equal(n, m) ||
					string(x) != string(y) {
					t.Errorf("%s of episode %d: another cloud (%v)", f.Key, e, err)
				}
			case f.Kind == robocache.KindText:
				x, err1 := src.Text(ctx, f.Key, rows)
				y, err2 := ds.Text(ctx, f.Key, rows)
				if err := errors.Join(err1, err2); err != nil || !slices.Equal(x, y) {
					t.Errorf("%s of episode %d: other texts (%v)", f.Key, e, err)
				}
			case f.Kind == robocache.KindNumeric:
				x, y := make([]byte, len(rows)*f.RowBytes()), make([]byte, len(rows)*g.RowBytes())
				if err := errors.Join(src.Gather(ctx, f.Key, rows, x),
					ds.Gather(ctx, f.Key, rows, y)); err != nil || string(x) != string(y) {
					t.Errorf("%s of episode %d: other values (%v)", f.Key, e, err)
				}
			}
		}
	}
}

// TestRoundTrips checks e2e.C7: LeRobot → MCAP → LeRobot preserves rows, texts, tasks and frames.
func TestRoundTrips(t *testing.T) {
	if f, err := robocache.FormatNamed("mcap"); err != nil || f.Write == nil {
		t.Skip("MCAP is not written")
	}
	src, err := synth.New(synth.Options{Episodes: 3, Seconds: 1, Spread: 0.4, Seed: 2})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	first, mid, last := filepath.Join(dir, "first"), filepath.Join(dir, "mid.mcap"),
		filepath.Join(dir, "last")
	if _, err := toLeRobot(t.Context(), src, first, convert.Options{}, asImages("lerobot")); err !=
		nil {
		t.Fatal(err)
	}
	one := open(t, first)
	if _, err := convert.Write(t.Context(), one, "mcap", mid, convert.Options{}); err != nil {
		t.Fatal(err)
	}
	rep, err := toLeRobot(
		t.Context(),
		open(t, mid),
		last,
		convert.Options{WriteOptions: robocache.WriteOptions{FPS: one.Info().FPS}},
		asImages("lerobot"),
	)
	if err != nil {
		t.Fatal(err)
	}
	two := open(t, last)
	for _, f := range rep.Added {
		t.Errorf("%s was added", f)
	}
	rep.Dropped = []string{"timestamp", "frame_index", "episode_index", "index", "task_index"}
	sameRows(t, one, two, rep)
	for e := range one.Info().Episodes {
		a, err1 := one.Text(t.Context(), "task", allRows(one, e))
		b, err2 := two.Text(t.Context(), "task", allRows(two, e))
		if err := errors.Join(err1, err2); err != nil || !slices.Equal(a, b) {
			t.Errorf("episode %d: tasks %v, want %v (%v)", e, b[:1], a[:1], err)
		}
	}
}
