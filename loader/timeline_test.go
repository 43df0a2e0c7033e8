package loader

import (
	"bytes"
	"errors"
	"slices"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/align"
	"github.com/goatnote-inc/robocache/kernel"
	"github.com/goatnote-inc/robocache/loader/internal/column"
	"github.com/goatnote-inc/robocache/loader/options"
)

// loader.L14: windows and anchors on a timeline of another rate, frames by nearest.
func TestTimeline(t *testing.T) {
	f := newFake(11, 5) // 10 Hz: 1.0 s and 0.4 s
	hz := robocache.Rate{Num: 20, Den: 1}
	m, err := NewMap(
		bg,
		f,
		options.Config{
			Windows: options.Windows{
				Hz:     &hz,
				Keys:   []string{"observation.state", "cam", "count", "label"},
				Deltas: deltas("observation.state", []float64{-0.075, 0, 0.05}),
			},
		},
	)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if m.Len() != 21+9 {
		t.Fatalf("%d samples", m.Len())
	}
	b, err := m.Items(bg, []int64{0, 5, 20, 21, 5})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Release()
	v := column.Floats32(b.Tensor("observation.state").Data)
	mask := b.Tensor("observation.state_is_pad").Data
	// Sample 5 is t = 0.25 s: rows 1.75, 2.5, 3.0.
	for s, want := range map[int][]float32{
		0: {0, 0, 0.5},
		1: {1.75, 2.5, 3},
		2: {9.25, 10, 10},
		3: {1000, 1000, 1000.5},
		4: {1.75, 2.5, 3},
	} {
		for k, x := range want {
			if v[(s*3+k)*3] != x {
				t.Errorf("sample %d step %d is %v, expected %v", s, k, v[(s*3+k)*3], x)
			}
		}
	}
	if want := []byte{1, 0, 0, 0, 0, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0}; !bytes.Equal(mask, want) {
		t.Errorf("mask %v, expected %v", mask, want)
	}
	if c := column.AsSlice[int16](b.Tensor("count").Data); c[1] != 2 || c[2] != 10 {
		t.Errorf("count %v", c)
	}
	if l := b.Text("label"); l[1] != `"label 0 2"` {
		t.Errorf("label %v", l)
	}
	want := make([]byte, 3*fakeW*fakeH)
	fillFrame(want, "v0.mp4", 2) // t = 0.25 s lies between rows 2 and 3: a tie takes the earlier
	if got := b.Tensor("cam").Data[len(want) : 2*len(want)]; !bytes.Equal(got, want) {
		t.Error("the frame of sample 5 is not that of row 2")
	}
	if p := b.Tensor("cam_is_pad"); len(p.Shape) != 1 || p.Data[1] != 0 {
		t.Errorf("cam_is_pad %v", p)
	}
	// The same through a Loader.
	l := mustLoader(
		t,
		f,
		options.Config{
			Windows: options.Windows{Hz: &hz, Keys: []string{"observation.state", "cam"}},
			Order:   options.Order{BatchSize: 7, Shuffle: Global},
			Runtime: options.Runtime{Threads: 3},
		},
	)
	if got, _ := epochOf(t, nil, l); len(got) != 30 {
		t.Errorf("%d samples", len(got))
	}
}

// K9 and K10 on a timeline: values are normalised before the only rounding, and rows without a
// value stay zero bits, in every output type.
func TestTimelineNormalised(t *testing.T) {
	f := newFake(11)
	hz := robocache.Rate{Num: 20, Den: 1}
	norm := Normalize{
		Keys: map[string]Norm{
			"observation.state": {
				Mode: "min_max",
				Low:  []float64{2},
				High: []float64{6},
				Clip: true,
			},
		},
	}
	for _, d := range []robocache.DType{
		robocache.Float32,
		robocache.Float16,
		robocache.BFloat16,
		robocache.Float64,
	} {
		var mask align.PerKey[align.Edge]
		mask.All = align.EdgeMask
		cfg := options.Config{
			Align: &align.Config{
				HZ:     hz,
				Edge:   mask,
				DTypes: map[string]robocache.DType{"observation.state": d},
			},
			Windows: options.Windows{
				Keys:   []string{"observation.state", "label"},
				Deltas: deltas("observation.state", []float64{-1, 0, 0.25}),
			},
			Statistics: options.Statistics{Normalize: norm},
		}
		m, err := NewMap(bg, f, cfg)
		if err != nil {
			t.Fatal(err)
		}
		b, err := m.Items(bg, []int64{5, 20}) // rows 2.5 and 10
		if err != nil {
			t.Fatal(err)
		}
		x := b.Tensor("observation.state")
		if x.DType != d {
			t.Fatalf("%v, expected %v", x.DType, d)
		}
		value := func(i int) float64 {
			switch d {
			case robocache.Float16:
				return float64(kernel.Float16to32(column.AsSlice[uint16](x.Data)[i]))
			case robocache.BFloat16:
				return float64(kernel.BFloat16to32(column.AsSlice[uint16](x.Data)[i]))
			case robocache.Float64:
				return column.AsSlice[float64](x.Data)[i]
			}
			return float64(column.Floats32(x.Data)[i])
		}
		// Sample 5: before the data; 2.5 → -0.75; 5 → 0.5. Sample 20: row 0 → cut to -1; row 10 →
		// cut to 1; behind the data.
		for i, want := range []float64{0, -0.75, 0.5, -1, 1, 0} {
			if got := value(i * 3); got != want {
				t.Errorf("%v: place %d is %v, expected %v", d, i, got, want)
			}
		}
		if want := []byte{
			1,
			0,
			0,
			0,
			0,
			1,
		}; !bytes.Equal(
			b.Tensor("observation.state_is_pad").Data,
			want,
		) {
			t.Errorf("mask %v", b.Tensor("observation.state_is_pad").Data)
		}
		b.Release()
		m.Close()
	}
}

// A union of streams reaches beyond some: texts are "" there, frames zero and masked; a text that
// fails is an error, not "".
func TestTimelineBeyondTheRows(t *testing.T) {
	f := newFake(5)
	f.late = func(key string, _ int) int64 {
		if key == "observation.state" {
			return -200_000_000
		}
		return 0
	}
	var mask align.PerKey[align.Edge]
	mask.All = align.EdgeMask
	cfg := options.Config{
		Align:   &align.Config{HZ: robocache.Rate{Num: 10, Den: 1}, Edge: mask, Extent: "union"},
		Windows: options.Windows{Keys: []string{"observation.state", "label", "cam"}},
	}
	m, err := NewMap(bg, f, cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if m.Len() != 7 {
		t.Fatalf("%d samples", m.Len())
	}
	b, err := m.Items(bg, []int64{0, 2, 6})
	if err != nil {
		t.Fatal(err)
	}
	if l := b.Text("label"); l[0] != "" || l[1] != `"label 0 0"` || l[2] != `"label 0 4"` {
		t.Errorf("%q", l)
	}
	if p := b.Tensor("cam_is_pad").Data; !bytes.Equal(p, []byte{1, 0, 0}) {
		t.Errorf("cam_is_pad %v", p)
	}
	if c := b.Tensor(
		"cam",
	); slices.ContainsFunc(
		c.Data[:len(c.Data)/3],
		func(x byte) bool { return x != 0 },
	) {
		t.Error("a place without a frame is not zero")
	}
	b.Release()
	f.shortText = true
	if _, err := m.Items(bg, []int64{0, 2}); !errors.Is(err, robocache.ErrMalformed) {
		t.Errorf("a text is lacking, and Items gives %v", err)
	}
}

// loader.L14: whatever modes, edges, offsets, extents and output types, a Map gives what
// align.Episode gives, to the bit.
func TestTimelineEqualsAlign(t *testing.T) {
	keys := []string{"observation.state", "action", "count", "done", "label", "cam"}
	for i, text := range []string{
		`{"hz": 7}`,
		`{"hz": 4, "modes": {"observation.state": "mean", "action": "angle", "count": "next"}}`,
		`{"hz": 3, "modes": {"observation.state": "mean"}, "window": 0.5, "edge": "mask"}`,
		`{"hz": 25, "extent": "union", "edge": "mask", "offset": {"observation.state": 0.25, "label": -0.33, "cam": 0.2}}`,
		`{"hz": 25, "extent": "union", "edge": "extrapolate", "offset": {"action": -0.45, "count": 0.1}}`,
		`{"hz": "30000/1001", "extent": "action", "offset": {"action": 0.031}, "dtypes": {"count": "float32", "action": "float16"}, "modes": {"count": "linear"}}`,
		`{"hz": 25, "max_gap": 0.05, "modes": {"cam": "previous", "label": "nearest"}}`,
	} {
		f := newFake(9, 14)
		cfg, err := align.ParseConfig([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		m, err := NewMap(bg, f, options.Config{Align: &cfg, Windows: options.Windows{Keys: keys}})
		if err != nil {
			t.Fatal(text, err)
		}
		own := cfg
		own.Keys = keys
		at := int64(0)
		for e := range f.lengths {
			want, err := align.Episode(bg, f, e, own)
			if err != nil {
				t.Fatal(text, err)
			}
			all := make([]int64, len(want.Times))
			for k := range all {
				all[k] = at + int64(k)
			}
			at += int64(len(all))
			if at > m.Len() {
				t.Fatalf("%s: %d samples, align has more", text, m.Len())
			}
			b, err := m.Items(bg, all)
			if err != nil {
				t.Fatal(text, err)
			}
			for _, s := range want.Streams {
				if s.Text != nil {
					if !slices.Equal(b.Text(s.Key), s.Text) {
						t.Errorf(
							"%d: %s of episode %d: %q, align has %q",
							i,
							s.Key,
							e,
							b.Text(s.Key),
							s.Text,
						)
					}
					continue
				}
				mask := b.Tensor(s.Key + "_is_pad").Data
				for k, v := range s.Valid {
					if mask[k] != 1-v {
						t.Errorf("%d: the mask of %s, episode %d, place %d", i, s.Key, e, k)
						break
					}
				}
				if s.Rows == nil {
					if x := b.Tensor(s.Key); x.DType != s.DType || !bytes.Equal(x.Data, s.Data) {
						t.Errorf("%d: %s of episode %d differs from align", i, s.Key, e)
					}
					continue
				}
				const size = 3 * fakeW * fakeH
				for k, r := range s.Rows {
					pic := make([]byte, size)
					if r >= 0 {
						fillFrame(pic, "v0.mp4", f.base(e)+int(r))
					}
					if !bytes.Equal(b.Tensor(s.Key).Data[k*size:(k+1)*size], pic) {
						t.Errorf(
							"%d: the frame of episode %d, place %d is not that of row %d",
							i,
							e,
							k,
							r,
						)
					}
				}
			}
			b.Release()
		}
		if at != m.Len() {
			t.Errorf("%s: %d samples, align has %d", text, m.Len(), at)
		}
		m.Close()
	}
}
