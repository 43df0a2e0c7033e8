package inspect

import (
	"context"
	"encoding/binary"
	"errors"
	"image/png"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/inspect/chart"
	"github.com/goatnote-inc/robocache/synth"
)

// Every stream is drawn over the whole time of the episode, with its own rows and all its channels.
// Streams that are not curves are drawn as marks.
func TestSheetShowsEveryStream(t *testing.T) {
	rates, err := synth.ParseRates("camera=10,joints=100,force=333,cloud=5,text=2")
	if err != nil {
		t.Fatal(err)
	}
	ds, err := synth.New(
		synth.Options{
			Episodes: 1,
			Seconds:  2,
			Rates:    rates,
			Cameras:  1,
			Width:    64,
			Height:   64,
			Points:   16,
			Codec:    "raw",
			Late:     100 * time.Millisecond,
		},
	)
	if err != nil {
		t.Fatal(err)
	}
	all, err := TimelinesOf(t.Context(), ds, 0)
	if err != nil {
		t.Fatal(err)
	}
	d := &drawer{ctx: t.Context(), ds: ds, timelines: all}
	chosen := d.defaultStreams(true)
	for i, l := range all.Streams {
		f := &ds.Info().Features[i]
		if !f.Default && !slices.Contains(chosen, i) {
			t.Errorf("%s is not drawn", f.Key)
		}
		if !Curves(f) || f.Default {
			continue
		}
		s, err := SeriesOf(t.Context(), ds, f, l, 0, Whole(all.Start))
		if err != nil {
			t.Fatal(err)
		}
		if len(s.Y) != f.Elements() {
			t.Errorf("%s: %d curves of %d channels", f.Key, len(s.Y), f.Elements())
		}
		if first, last := float64(l.Times[0]-all.Start),
			float64(l.Times[l.Rows-1]-all.Start); s.X[0] != first || s.X[len(s.X)-1] != last ||
			len(s.X) != l.Rows {
			t.Errorf(
				"%s: %d points from %v to %v, want %d from %v to %v",
				f.Key,
				len(s.X),
				s.X[0],
				s.X[len(s.X)-1],
				l.Rows,
				first,
				last,
			)
		}
	}
	path := filepath.Join(t.TempDir(), "sheet.PNG")
	if err := ContactSheet(t.Context(), ds, 0, path); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	img, err := png.Decode(f)
	if err != nil {
		t.Fatal(err)
	}
	// The legend at the right is coloured, and the frames end above it.
	colours := 0
	for y := img.Bounds().Dy() / 2; y < img.Bounds().Dy(); y++ {
		for x := sheetWidth - legendPx; x < sheetWidth; x++ {
			if r, g, b, _ := img.At(x, y).RGBA(); r != g || g != b {
				colours++
			}
		}
	}
	if colours < 100 {
		t.Errorf("no legend: %d coloured pixels", colours)
	}
}

// table is a dataset with one float64 stream.
type table struct {
	robocache.Dataset
	values   []float64
	channels int
}

func (d table) Gather(_ context.Context, _ string, rows []robocache.Row, dst []byte) error {
	for i, r := range rows {
		for k, v := range d.values[r.Index*d.channels:][:d.channels] {
			binary.LittleEndian.PutUint64(dst[8*(i*d.channels+k):], math.Float64bits(v))
		}
	}
	return nil
}

// A long stream with many channels is drawn by its extremes, and the figure states what is left
// out.
func TestCurves(t *testing.T) {
	const rows, channels = 10_000, 70
	times := make([]int64, rows)
	values := make([]float64, rows*channels)
	for i := range times {
		times[i] = int64(i) * 1e6
		for k := range channels {
			values[i*channels+k] = float64(k)
		}
	}
	values[7_777*channels] = 1e6           // one row of 10,000
	values[5_000*channels+1] = math.NaN()  // an interruption
	values[5_001*channels+1] = math.Inf(1) // and a second one
	f := &robocache.Feature{
		Key:   "x",
		Kind:  robocache.KindNumeric,
		DType: robocache.Float64,
		Shape: []int{channels},
	}
	l := &Timeline{Rows: rows, Times: times}
	ds := table{values: values, channels: channels}
	s, err := SeriesOf(t.Context(), ds, f, l, 0, Whole(0))
	if err != nil {
		t.Fatal(err)
	}
	if slices.Max(s.Y[0]) != 1e6 || !s.Thinned || len(s.X) > 5000 || s.X[len(s.X)-1] != 9.999e9 {
		t.Errorf("%d points to %v", len(s.X), s.X[len(s.X)-1])
	}
	holes := 0
	for _, v := range s.Y[1] {
		if v != v {
			holes++
		}
	}
	if len(s.Y) != MaxChannels || holes == 0 {
		t.Errorf("%d curves, %d interruptions", len(s.Y), holes)
	}
	d := &drawer{ctx: t.Context(), ds: ds, timelines: &Timelines{End: times[rows-1]}}
	title, err := d.addCurves(&chart.Plot{}, f, l)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"the other 6 are not drawn",
		"2 values are missing or not finite",
	} {
		if !strings.Contains(title, want) {
			t.Errorf("%q does not say %q", title, want)
		}
	}
}

func TestChannelNames(t *testing.T) {
	for names, want := range map[string]string{
		`["a","b"]`:            "a b",
		`[["a","b"]]`:          "a b",
		`{"motors":["a","b"]}`: "a b",
		`null`:                 "0 1",
		`["a"]`:                "0 1",
		`{"a":0,"b":1}`:        "0 1",
		``:                     "0 1",
	} {
		f := &robocache.Feature{Shape: []int{2}, Names: []byte(names)}
		if got := strings.Join(ChannelNames(f), " "); got != want {
			t.Errorf("%s: %s", names, got)
		}
	}
	if got := strings.Join(ChannelNames(&robocache.Feature{Shape: []int{2, 2}}), " "); got !=
		"0,0 0,1 1,0 1,1" {
		t.Error(got)
	}
}

// Another suffix is rejected before anything is read.
func TestSheetSuffix(t *testing.T) {
	for name, ok := range map[string]bool{
		"a.png":   true,
		"a.PNG":   true,
		"a":       true,
		"":        true,
		"a.svg":   true,
		"a.jpg":   false,
		"a.b.pdf": false,
	} {
		err := CheckSheet(name)
		if (err == nil) != ok || err != nil && !errors.Is(err, robocache.ErrMisuse) {
			t.Errorf("%s: %v", name, err)
		}
	}
	// The dataset is nil, because it is not used.
	if err := ContactSheet(t.Context(), nil, 0, "a.jpg"); !errors.Is(err, robocache.ErrMisuse) {
		t.Error(err)
	}
}
