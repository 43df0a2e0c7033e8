package inspect

import (
	"context"
	"encoding/binary"
	"errors"
	"image/png"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/synth"
)

// Every stream is drawn over the episode's whole time, by its own rows and with all its channels; what is no curve is marked.
func TestSheetShowsEveryStream(t *testing.T) {
	rates, err := synth.ParseRates("camera=10,joints=100,force=333,cloud=5,text=2")
	if err != nil {
		t.Fatal(err)
	}
	ds, err := synth.New(synth.Options{Episodes: 1, Seconds: 2, Rates: rates, Cameras: 1, Width: 64, Height: 64, Points: 16, Codec: "raw", Late: 100 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	streams, axis, err := timelines(t.Context(), ds, 0)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, s := range streams {
		seen[s.f.Key] = true
		if s.rank() == 0 {
			continue
		}
		c, err := curvesOf(t.Context(), ds, s, 0, axis)
		if err != nil {
			t.Fatal(err)
		}
		if s.rank() == 2 {
			if len(c.marks) != s.rows || len(c.names) > 0 {
				t.Errorf("%s: %d marks of %d rows", s.f.Key, len(c.marks), s.rows)
			}
			continue
		}
		if len(c.lines) != s.f.Elements() || len(c.names) != s.f.Elements() {
			t.Errorf("%s: %d curves and %d names of %d channels", s.f.Key, len(c.lines), len(c.names), s.f.Elements())
		}
		line := c.lines[0][0]
		if first, last := axis.seconds(s.times[0]), axis.seconds(s.times[len(s.times)-1]); line[0].X != first || line[len(line)-1].X != last || len(line) != s.rows {
			t.Errorf("%s: %d points from %v to %v s, want %d from %v to %v", s.f.Key, len(line), line[0].X, line[len(line)-1].X, s.rows, first, last)
		}
	}
	for i := range ds.Info().Features {
		if f := &ds.Info().Features[i]; !f.Default && !seen[f.Key] {
			t.Errorf("%s is not drawn", f.Key)
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
	// The legend, at the right, has colours: the frames end above it.
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

// table is a dataset of one float64 stream.
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

// A long stream of many channels is drawn by its extremes; what is left out is said.
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
	values[5_001*channels+1] = math.Inf(1) // and another
	f := &robocache.Feature{Key: "x", Kind: robocache.KindNumeric, DType: robocache.Float64, Shape: []int{channels}}
	s := &timeline{f: f, rows: rows, times: times}
	c, err := curvesOf(t.Context(), table{values: values, channels: channels}, s, 0, span{0, times[rows-1]})
	if err != nil {
		t.Fatal(err)
	}
	peak := 0.0
	for _, p := range c.lines[0][0] {
		peak = max(peak, p.Y)
	}
	if peak != 1e6 || len(c.lines[0][0]) > 2*pointsWide || c.lines[0][0][len(c.lines[0][0])-1].X < 9.99 {
		t.Errorf("the peak is %v, of %d points", peak, len(c.lines[0][0]))
	}
	if len(c.lines) != maxCurves || len(c.lines[1]) != 2 {
		t.Errorf("%d curves, the second in %d parts", len(c.lines), len(c.lines[1]))
	}
	for _, want := range []string{"the other 6 are not drawn", "2 values are missing or not finite"} {
		if !strings.Contains(c.title, want) {
			t.Errorf("%q does not say %q", c.title, want)
		}
	}
}

func TestChannelNames(t *testing.T) {
	for names, want := range map[string]string{
		`["a","b"]`: "a b", `[["a","b"]]`: "a b", `{"motors":["a","b"]}`: "a b", `null`: "0 1", `["a"]`: "0 1", `{"a":0,"b":1}`: "0 1", ``: "0 1",
	} {
		f := &robocache.Feature{Shape: []int{2}, Names: []byte(names)}
		if got := strings.Join(channelNames(f), " "); got != want {
			t.Errorf("%s: %s", names, got)
		}
	}
	if got := strings.Join(channelNames(&robocache.Feature{Shape: []int{2, 2}}), " "); got != "0,0 0,1 1,0 1,1" {
		t.Error(got)
	}
}

// Another suffix is refused before anything is read.
func TestSheetSuffix(t *testing.T) {
	for name, ok := range map[string]bool{"a.png": true, "a.PNG": true, "a": true, "": true, "a.svg": false, "a.jpg": false, "a.b.pdf": false} {
		err := CheckSheet(name)
		if (err == nil) != ok || err != nil && !errors.Is(err, robocache.ErrMisuse) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := ContactSheet(t.Context(), nil, 0, "a.svg"); !errors.Is(err, robocache.ErrMisuse) { // nil: nothing is asked of the dataset
		t.Error(err)
	}
}
