package align

import (
	"context"
	"encoding/binary"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/goatnote-inc/robocache"
)

// deltas is a dataset with one stream "action" of float32 rows on its own clock.
type deltas struct {
	robocache.Dataset
	info   robocache.Info
	times  []int64
	values [][]float32
	valid  []uint8
}

func newDeltas(times []int64, width int, r *rand.Rand) *deltas {
	d := &deltas{
		times: times,
		info: robocache.Info{Episodes: 1, Clock: "action", Features: []robocache.Feature{
			{
				Key:   "action",
				Kind:  robocache.KindNumeric,
				DType: robocache.Float32,
				Shape: []int{width},
				Clock: "action",
			},
		}},
	}
	for range times {
		row := make([]float32, width)
		for c := range row {
			row[c] = float32(r.NormFloat64())
		}
		d.values = append(d.values, row)
	}
	return d
}

func (d *deltas) Info() *robocache.Info { return &d.info }
func (d *deltas) Len(int) int           { return len(d.times) }
func (d *deltas) Times(context.Context, int, string) ([]int64, error) {
	return slices.Clone(d.times), nil
}

func (d *deltas) Episode(context.Context, int) (robocache.Episode, error) {
	return robocache.Episode{Length: len(d.times)}, nil
}

func (d *deltas) Gather(_ context.Context, _ string, rows []robocache.Row, dst []byte) error {
	dst = dst[:0]
	for _, r := range rows {
		for _, v := range d.values[r.Index] {
			dst = binary.LittleEndian.AppendUint32(dst, math.Float32bits(v))
		}
	}
	return nil
}

func (d *deltas) Capabilities() *robocache.Capabilities {
	return &robocache.Capabilities{Valid: d.Valid}
}

func (d *deltas) Valid(_ context.Context, _ string, rows []robocache.Row, valid []uint8) error {
	for i, r := range rows {
		valid[i] = 1
		if d.valid != nil {
			valid[i] = d.valid[r.Index]
		}
	}
	return nil
}

// slow returns the sum of a channel over the row [from, to).
func (d *deltas) slow(c int, from, to int64) (sum float64) {
	n := len(d.times)
	for k, start := range d.times {
		end := 2*d.times[n-1] - d.times[n-2]
		if k+1 < n {
			end = d.times[k+1]
		}
		if start < end {
			sum += float64(d.values[k][c]) * max(0,
				float64(min(end, to)-max(start, from))) / float64(end-start)
		}
	}
	return sum
}

// jittered returns timestamps with steps between half and one and a half periods.
func jittered(n int, period int64, r *rand.Rand) []int64 {
	out := make([]int64, n)
	for k := 1; k < n; k++ {
		out[k] = out[k-1] + period/2 + r.Int64N(period)
	}
	return out
}

// TestSumOverRows covers align.A20. It compares Episode with a sum over all samples on jittered
// clocks: on grids, at evenly spaced and at other times. View must give the same rows, in any
// order.
func TestSumOverRows(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for _, hz := range []int64{1, 3, 10, 30, 200} {
		d := newDeltas(jittered(80, 100_000_000, r), 3, r)
		cfg := Config{Modes: map[string]Mode{"action": Sum}, HZ: robocache.Rate{Num: hz, Den: 1}}
		got, err := Episode(t.Context(), d, 0, cfg)
		if err != nil {
			t.Fatal(err)
		}
		check := func(i int, values []float32, from, to int64) {
			t.Helper()
			for c, v := range values {
				if want := d.slow(c, from, to); math.Abs(float64(v)-want) > 1e-5 {
					t.Fatalf("%d Hz, row %d, channel %d: %v, want %v", hz, i, c, v, want)
				}
			}
		}
		x := got.Stream("action")
		for i, at := range got.Times {
			check(i, float32s(x.Data)[3*i:3*i+3], at, at+1e9/hz)
		}
		v, err := View(t.Context(), d, cfg, ViewOptions{})
		if err != nil {
			t.Fatal(err)
		}
		rows := []robocache.Row{
			{Index: 2},
			{Index: 0},
			{Index: len(got.Times) - 1},
			{Index: 1},
			{Index: 2},
		}
		raw := make([]byte, 12*len(rows))
		if err := v.Gather(t.Context(), "action", rows, raw); err != nil {
			t.Fatal(err)
		}
		for i, row := range rows {
			if want := float32s(x.Data)[3*row.Index : 3*row.Index+3]; !slices.Equal(
				float32s(raw)[3*i:3*i+3],
				want,
			) {
				t.Errorf(
					"%d Hz: row %d of the view is %v, want %v",
					hz,
					row.Index,
					float32s(raw)[3*i:3*i+3],
					want,
				)
			}
		}
		times := []int64{0, 1e8, 5e8, 6e8, 2e9}
		got, err = Episode(t.Context(), d, 0, Config{Modes: cfg.Modes, Times: times})
		if err != nil {
			t.Fatal(err)
		}
		for i, at := range times {
			to := 2*at - times[max(i-1, 0)]
			if i+1 < len(times) {
				to = times[i+1]
			}
			check(i, float32s(got.Stream("action").Data)[3*i:3*i+3], at, to)
		}
	}
	d := newDeltas(jittered(9, 1e8, r), 1, r)
	for _, times := range [][]int64{{5}, {2, 1}, {1, 1}} {
		if _, err := Episode(t.Context(), d, 0,
			Config{Modes: map[string]Mode{"action": Sum}, Times: times}); !errors.Is(err,
			robocache.ErrMisuse) {
			t.Errorf("times %v: %v, want misuse", times, err)
		}
	}
}

func float32s(b []byte) []float32 {
	out := make([]float32, len(b)/4)
	for i := range out {
		out[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
	}
	return out
}

// TestSumMasked covers align.A14 and align.A20: a row that needs a sample without a value is zero
// and invalid.
func TestSumMasked(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	d := newDeltas([]int64{0, 1e8, 2e8, 3e8, 4e8}, 2, r)
	d.info.Features[0].Masked = true
	d.valid = []uint8{1, 1, 0, 1, 1}
	cfg := Config{
		HZ:       robocache.Rate{Num: 20, Den: 1},
		Relative: map[string]robocache.Relative{"action": {Channels: []int{0}}},
	}
	got, err := Episode(t.Context(), d, 0, cfg)
	if err != nil {
		t.Fatal(err)
	}
	x := got.Stream("action")
	// Row 3 is linear between samples 1 and 2 in its other channel, so it has no value there.
	if want := []uint8{1, 1, 1, 0, 0, 0, 1, 1, 1}; !slices.Equal(x.Valid, want) {
		t.Errorf("valid %v, want %v", x.Valid, want)
	}
	if x.Mode != Sum || !slices.Equal(float32s(x.Data)[6:12], make([]float32, 6)) {
		t.Errorf("mode %v, rows 3 to 5: %v, want zeros", x.Mode, float32s(x.Data)[6:12])
	}
}

// TestRelativeChoices checks the mode of each stream and the findings about it.
func TestRelativeChoices(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 10))
	yes, no := map[string]robocache.Relative{
		"action": {},
	}, map[string]robocache.Relative{
		"action": {None: true},
	}
	for _, c := range []struct {
		name   string
		stated []int
		names  string
		cfg    Config
		mode   Mode
		summed []int
		note   string
	}{
		{
			name: "nothing is known",
			mode: Linear,
			note: "action is interpolated as absolute: nothing says whether its 7 columns are " +
				"relative",
		},
		{
			name:   "the user says it",
			cfg:    Config{Relative: yes},
			mode:   Sum,
			summed: []int{0, 1, 2, 3, 4, 5},
		},
		{
			name:   "the user names the mode",
			cfg:    Config{Modes: map[string]Mode{"action": Sum}},
			mode:   Sum,
			summed: []int{0, 1, 2, 3, 4, 5},
		},
		{
			name:   "the dataset says it",
			stated: []int{0, 2},
			mode:   Sum,
			summed: []int{0, 2},
			note:   "action is relative (as it says): columns 0, 2 of its rows are summed",
		},
		{
			name:   "the user overrides the dataset",
			stated: []int{0, 2},
			cfg:    Config{Relative: no},
			mode:   Linear,
		},
		{
			name:   "another mode overrides it",
			stated: []int{0, 2},
			cfg:    Config{Modes: map[string]Mode{"action": Previous}},
			mode:   Previous,
			note: "action is relative (as it says) and mode previous does not sum its rows: " +
				"totals will not be kept",
		},
		{
			name: "a mode beside the user's word", cfg: Config{
				Modes:    map[string]Mode{"action": Linear},
				Relative: yes,
			}, mode: Linear,
			note: "mode linear does not sum its rows: totals will not be kept",
		},
		{
			name:   "a mode of an absolute stream",
			stated: []int{0, 2},
			cfg:    Config{Modes: map[string]Mode{"action": Previous}, Relative: no},
			mode:   Previous,
		},
		{
			name:   "names say it",
			names:  `["dx","dy","dz","a","b","c","gripper"]`,
			mode:   Sum,
			summed: []int{0, 1, 2},
			note: "action is relative (by the names of its columns: dx, dy, dz): columns 0–2 " +
				"of its rows are summed",
		},
		{
			name:   "the dataset says that it is absolute",
			stated: []int{},
			names:  `["dx","dy","dz","a","b","c","gripper"]`,
			mode:   Linear,
		},
	} {
		d := newDeltas([]int64{0, 1e8, 2e8}, 7, r)
		f := &d.info.Features[0]
		f.Relative, f.RelativeReason, f.Names = c.stated, "as it says", []byte(c.names)
		mode, _ := c.cfg.Mode(f)
		notes := c.cfg.RelativeNotes(&d.info, nil)
		if mode != c.mode || len(notes) > 1 || (c.note == "") != (len(notes) == 0) ||
			c.note != "" && !strings.Contains(notes[0].Message, c.note) {
			t.Errorf("%s: mode %v, notes %+v; want %v, %q", c.name, mode, notes, c.mode, c.note)
		}
		if c.mode != Sum {
			continue
		}
		if got, err := c.cfg.Summed(f); err != nil || !slices.Equal(got, c.summed) {
			t.Errorf("%s: channels %v, %v; want %v", c.name, got, err, c.summed)
		}
		c.cfg.HZ = robocache.Rate{Num: 10, Den: 1}
		v, err := View(t.Context(), d, c.cfg, ViewOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if got := v.Info().Feature("action").Relative; !slices.Equal(got, c.summed) {
			t.Errorf("%s: the view's feature has the channels %v, want %v", c.name, got, c.summed)
		}
	}
	d := newDeltas([]int64{0, 1e8}, 4, r)
	d.info.Features[0].Rotations = []robocache.Rotation{{Form: robocache.FormQuat}}
	if _, err := Episode(t.Context(), d, 0,
		Config{HZ: robocache.Rate{Num: 10, Den: 1}, Relative: yes}); !errors.Is(err,
		robocache.ErrUnsupported) {
		t.Errorf("a relative quaternion: %v, want unsupported", err)
	}
	if c, err := ParseConfig(
		[]byte(`{"hz": 10, "modes": {"a": "sum"}, "relative": {"a": [0, "dx"], "b": false}}`),
	); err != nil || c.Modes["a"] != Sum ||
		!c.Relative["b"].None {
		t.Errorf("%+v, %v", c, err)
	}
}
