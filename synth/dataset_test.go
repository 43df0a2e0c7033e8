package synth

import (
	"bytes"
	"context"
	"errors"
	"image"
	"math"
	"reflect"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/goatnote-inc/robocache"
)

// bent are options in which every stream has its own clock.
var bent = Options{
	Episodes: 3,
	Seconds:  1.5,
	Spread:   0.5,
	Seed:     11,
	Rates:    map[string]float64{"camera": 30, "joints": 100, "force": 333, "cloud": 10, "text": 4},
	Jitter:   time.Millisecond,
	Gaps:     0.02,
	Late:     200 * time.Millisecond,
	Offset:   5 * time.Millisecond,
	Skew:     80,
	Dropout:  100 * time.Millisecond,
	Depth:    true,
}

func made(t *testing.T, opt Options) *Dataset {
	t.Helper()
	d, err := New(opt)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// all reads everything of a stream in an episode.
func all(
	t *testing.T,
	d robocache.Dataset,
	e int,
	f *robocache.Feature,
) (times []int64, values any) {
	t.Helper()
	ctx := context.Background()
	times, err := d.Times(ctx, e, f.Key)
	if err != nil {
		t.Fatal(err)
	}
	rows := make([]robocache.Row, len(times))
	for i := range rows {
		rows[i] = robocache.Row{Episode: e, Index: i}
	}
	switch {
	case f.Ragged():
		data, counts, err := robocache.GatherRagged(ctx, d, f.Key, rows)
		if err != nil {
			t.Fatal(err)
		}
		return times, []any{data, counts}
	case f.Kind == robocache.KindNumeric:
		dst := make([]byte, len(rows)*f.RowBytes())
		if err := d.Gather(ctx, f.Key, rows, dst); err != nil {
			t.Fatal(err)
		}
		return times, dst
	case f.Kind == robocache.KindImage:
		out := make([]robocache.FrameRef, len(rows))
		if err := d.Frames(ctx, f.Key, rows, out); err != nil {
			t.Fatal(err)
		}
		return times, out
	}
	text, err := d.Text(ctx, f.Key, rows)
	if err != nil {
		t.Fatal(err)
	}
	return times, text
}

// TestDatasetSameRows covers synth.S7: the same options give the same rows, in any order and from
// any number of goroutines.
func TestDatasetSameRows(t *testing.T) {
	for _, codec := range []string{"png", "jpeg", "raw"} {
		opt := bent
		opt.Codec = codec
		a, b := made(t, opt), made(t, opt)
		type part struct {
			times  []int64
			values any
		}
		want := map[string]part{}
		for e := range opt.Episodes {
			for _, f := range a.Info().Features {
				times, values := all(t, a, e, &f)
				want[f.Key+string(rune('0'+e))] = part{times, values}
			}
		}
		var wg sync.WaitGroup
		for e := opt.Episodes - 1; e >= 0; e-- {
			for _, f := range slices.Backward(b.Info().Features) {
				wg.Add(1)
				go func() {
					defer wg.Done()
					times, values := all(t, b, e, &f)
					if w := want[f.Key+string(rune('0'+e))]; !reflect.DeepEqual(w,
						part{times, values}) {
						t.Errorf("%s: %s of episode %d differs", codec, f.Key, e)
					}
				}()
			}
		}
		wg.Wait()
	}
}

// TestDatasetIsWrite checks that rows without own clocks are those that Write stores in LeRobot,
// including images.
func TestDatasetIsWrite(t *testing.T) {
	opt := Options{Episodes: 3, Seconds: 1, Seed: 5, Spread: 0.3}
	_, _, disk := inMemory(t, opt)
	d := made(t, opt)
	if d.Info().Clock != "" || d.Info().Frames != disk.Info().Frames {
		t.Fatalf("%+v, %+v", d.Info(), disk.Info())
	}
	for _, f := range d.Info().Features {
		if f.Clock != "" {
			t.Errorf("%s has a clock", f.Key)
		}
		for e := range opt.Episodes {
			_, got := all(t, d, e, &f)
			_, want := all(t, disk, e, disk.Info().Feature(f.Key))
			if !reflect.DeepEqual(got, want) {
				t.Errorf("%s of episode %d differs", f.Key, e)
			}
		}
	}
}

// TestClocks covers synth.S8: rates, lengths, gaps, delayed starts, silent intervals, offsets and
// skew are those of Truth, and timestamps increase.
func TestClocks(t *testing.T) {
	d := made(t, bent)
	lengths := map[int]bool{}
	skewed := 0
	for e := range bent.Episodes {
		lengths[d.Len(e)] = true
		for _, f := range d.Info().Features {
			times, err := d.Times(t.Context(), e, f.Key)
			if err != nil {
				t.Fatal(err)
			}
			truth, err := d.Truth(e, f.Key)
			if err != nil {
				t.Fatal(err)
			}
			if f.Clock == "" {
				if len(times) != d.Len(e) || truth.Skew != 0 {
					t.Errorf("%s: %d timestamps, %d rows", f.Key, len(times), d.Len(e))
				}
				continue
			}
			if truth.Skew != 0 && truth.Offset != 0 {
				skewed++
			}
			for i, x := range times {
				taken := float64(x-truth.Offset) / (1 + truth.Skew*1e-6)
				if i > 0 && x <= times[i-1] {
					t.Fatalf("%s: timestamp %d does not increase", f.Key, i)
				}
				if slack := 2.0; taken < float64(truth.Late)-slack ||
					taken > float64(truth.Drop[0])+slack && taken < float64(truth.Drop[1])-slack {
					t.Fatalf(
						"%s: timestamp %d (%v) is before the start or in the drop-out: %+v",
						f.Key,
						i,
						x,
						truth,
					)
				}
			}
			span := float64(times[len(times)-1]-times[0])/1e9 - bent.Dropout.Seconds()
			if n := span * truth.Rate.Float(); math.Abs(n-float64(len(times))) > 0.35*n+5 {
				t.Errorf("%s: %d samples in %v s at %v", f.Key, len(times), span, truth.Rate)
			}
		}
	}
	if len(lengths) != bent.Episodes || skewed == 0 {
		t.Errorf("lengths %v, %d skewed", lengths, skewed)
	}
	one, _ := d.Truth(0, "observation.force")
	two, _ := d.Truth(1, "observation.force")
	if one.Skew != two.Skew || one.Offset != two.Offset || one.Late == two.Late {
		t.Errorf("a clock is the same in all episodes, a late start is not: %+v %+v", one, two)
	}
}

// TestDatasetCodes covers synth.S3 for images that are generated when they are read: for each
// camera, on its own rows.
func TestDatasetCodes(t *testing.T) {
	for _, codec := range []string{"png", "jpeg", "raw"} {
		opt := bent
		opt.Codec = codec
		d := made(t, opt)
		o := d.Options()
		for c := range o.Cameras {
			_, refs := all(t, d, 1, d.Info().Feature(cameraKey(c)))
			for i, r := range refs.([]robocache.FrameRef) {
				rgb := make([]byte, o.Width*o.Height*3)
				if r.Raw != nil {
					copy(rgb, r.Raw.Pix)
				} else {
					m, _, err := image.Decode(bytes.NewReader(r.Encoded))
					if err != nil {
						t.Fatal(err)
					}
					for p := range o.Width * o.Height {
						x, y, z, _ := m.At(p%o.Width, p/o.Width).RGBA()
						rgb[3*p], rgb[3*p+1], rgb[3*p+2] = byte(x>>8), byte(y>>8), byte(z>>8)
					}
				}
				if e, row, ok := ReadCode(rgb, o.Width, o.Height); !ok || e != 1 || row != i {
					t.Fatalf("%s: camera %d row %d shows %d, %d, %v", codec, c, i, e, row, ok)
				}
			}
		}
	}
}

// TestManyTrajectories checks that 5,000 trajectories of varying length open quickly and can be
// read one by one.
func TestManyTrajectories(t *testing.T) {
	d := made(
		t,
		Options{
			Episodes: 5000,
			Seconds:  0.8,
			Spread:   0.75,
			Cameras:  -1,
			Rates:    map[string]float64{"joints": 100, "force": 333},
		},
	)
	lengths := map[int]bool{}
	for e := range 5000 {
		lengths[d.Len(e)] = true
	}
	if d.Info().Episodes != 5000 || len(lengths) < 30 || len(d.kept) != 0 {
		t.Errorf("%d lengths, %d kept", len(lengths), len(d.kept))
	}
	for e := 0; e < 5000; e += 100 {
		if times, err := d.Times(t.Context(), e, "observation.force"); err != nil ||
			len(times) < 50 {
			t.Fatalf("%d %v", len(times), err)
		}
	}
	if len(d.kept) > keptRecordings {
		t.Errorf("%d episodes are kept", len(d.kept))
	}
}

func TestDatasetErrors(t *testing.T) {
	for name, o := range map[string]Options{
		"codec":  {Codec: "av1"},
		"rate":   {Rates: map[string]float64{"sonar": 1}},
		"spread": {Spread: 1},
		"late":   {Late: -1},
		"skew":   {Skew: math.NaN()},
		"points": {Points: -1},
	} {
		if _, err := New(o); !errors.Is(err, robocache.ErrMisuse) {
			t.Errorf("%s: %v", name, err)
		}
	}
	// Options that LeRobot's rows cannot hold.
	for name, o := range map[string]Options{
		"late":  {Late: 1},
		"cloud": {Rates: map[string]float64{"cloud": 10}},
		"depth": {Depth: true},
	} {
		if _, err := Write(t.Context(), "mem://never", o); !errors.Is(err, robocache.ErrMisuse) {
			t.Errorf("%s: %v", name, err)
		}
	}
	d := made(t, bent)
	ctx := t.Context()
	one := []robocache.Row{{}}
	for name, err := range map[string]error{
		"episode": d.Gather(ctx, "action", []robocache.Row{{Episode: 9}}, make([]byte, 8)),
		"row":     d.Gather(ctx, "action", []robocache.Row{{Index: 1 << 20}}, make([]byte, 8)),
		"size":    d.Gather(ctx, "action", one, make([]byte, 7)),
		"kind":    d.Gather(ctx, cameraKey(0), one, nil),
		"frames":  d.Frames(ctx, "action", one, make([]robocache.FrameRef, 1)),
	} {
		if !errors.Is(err, robocache.ErrMisuse) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := d.Times(ctx, 0, "nothing"); !errors.Is(err, robocache.ErrNotFound) {
		t.Errorf("%v", err)
	}
}
