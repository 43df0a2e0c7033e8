package loader

import (
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/align"
	"github.com/goatnote-inc/robocache/loader/internal/column"
	"github.com/goatnote-inc/robocache/loader/internal/layout"
	"github.com/goatnote-inc/robocache/loader/options"
)

var backHalf = Window{Span: &[2]float64{-0.15, 0.02}}

func spanOf(key string) Window { w := backHalf; w.Key = key; return w }

// inSpan are the rows of a stream that a sample at some time has in backHalf, by looking at all of
// them.
func inSpan(timestamps []int64, now int64) (rows []int) {
	for i, s := range timestamps {
		if s >= now-150e6 && s <= now+20e6 {
			rows = append(rows, i)
		}
	}
	return rows
}

// checkSpread compares a batch with what inSpan says: frames, points, counts, masks and times.
func checkSpread(
	t *testing.T,
	r *robot,
	b *layout.Batch,
	at func(i int) (episode int, now int64),
	missing func(row int) bool,
) {
	t.Helper()
	places := b.Tensor("cam_is_pad").Shape[1]
	clouds := b.Tensor("points_is_pad").Shape[1]
	if s := b.Tensor("cam").Shape; !slices.Equal(s, []int{b.Rows, places, 3, fakeH, fakeW}) {
		t.Fatalf("frames %v", s)
	}
	fullest, point := 0, 0
	for i := range b.Rows {
		e, now := at(i)
		rows := slices.DeleteFunc(inSpan(r.eps[e][""], now), missing)
		fullest = max(fullest, len(inSpan(r.eps[e][""], now)))
		if got := column.AsSlice[int64](b.Tensor("cam_lengths").Data)[i]; got != int64(len(rows)) {
			t.Fatalf("sample %d has %d frames, expected %d", i, got, len(rows))
		}
		for k := range places {
			pad, when := b.Tensor("cam_is_pad").Data[i*places+
				k], column.AsSlice[int64](b.Tensor("cam_times").Data)[i*places+k]
			pic := b.Tensor("cam").Data[(i*places+k)*3*fakeW*fakeH:][:3*fakeW*fakeH]
			if k >= len(rows) {
				if pad != 1 || when != 0 || slices.Max(pic) != 0 {
					t.Fatalf("sample %d, place %d is not empty: mask %d, time %d", i, k, pad, when)
				}
				continue
			}
			c := stillColour(robocache.Row{Episode: e, Index: rows[k]})
			if pad != 0 || when != r.eps[e][""][rows[k]]-now || pic[fakeW*fakeH] != c.G {
				t.Fatalf(
					"sample %d, place %d is not frame %d: mask %d, time %d",
					i,
					k,
					rows[k],
					pad,
					when,
				)
			}
		}
		rows = inSpan(r.eps[e]["points"], now)
		for k := range clouds {
			n, pad, when := column.AsSlice[int64](b.Tensor("points_lengths").Data)[i*clouds+
				k], b.Tensor("points_is_pad").Data[i*clouds+
				k], column.AsSlice[int64](b.Tensor("points_times").Data)[i*clouds+k]
			if k >= len(rows) {
				if n != 0 || pad != 1 || when != 0 {
					t.Fatalf("sample %d, cloud %d is not empty", i, k)
				}
				continue
			}
			row := robocache.Row{Episode: e, Index: rows[k]}
			if n != int64(pointsOf(row)) || pad != 0 || when != r.eps[e]["points"][rows[k]]-now {
				t.Fatalf("sample %d, cloud %d: %d points, mask %d, time %d", i, k, n, pad, when)
			}
			for p := range int(n) * 4 {
				if got := column.Floats32(b.Tensor("points").Data)[point*4+p]; got !=
					float32(e*10000+rows[k]*100+p) {
					t.Fatalf("sample %d, cloud %d: value %v", i, k, got)
				}
			}
			point += int(n)
		}
	}
	if places < fullest || places > fullest+1 { // counted at any time, not only at those of samples
		t.Errorf("%d places, the fullest span has %d", places, fullest)
	}
}

// TestSpread: all frames and clouds of a span, on the rows of a stream, on a timeline, and with
// frames that are not there.
func TestSpread(t *testing.T) {
	r := newRobot(1.5, 1.2)
	windows := NativeWindows{spanOf("cam"), spanOf("points")}
	none := func(int) bool { return false }
	keys := []string{"cam", "points"}
	onJoints := func(i int) (int, int64) {
		e := 0
		for n := len(r.eps[e]["joints"]); i >= n; n = len(r.eps[e]["joints"]) {
			i, e = i-n, e+1
		}
		return e, r.eps[e]["joints"][i]
	}
	checkSpread(
		t,
		r,
		allOf(
			t,
			mustMap(
				t,
				r,
				options.Config{
					Windows: options.Windows{Keys: keys, Anchor: "joints", Native: windows},
				},
			),
		),
		onJoints,
		none,
	)
	m := mustMap(
		t,
		r,
		options.Config{
			Align:   &align.Config{HZ: robocache.Rate{Num: 20, Den: 1}, Extent: "joints"},
			Windows: options.Windows{Keys: keys, Native: windows},
		},
	)
	first := (len(r.eps[0]["joints"]) - 1) / 5
	checkSpread(t, r, allOf(t, m), func(i int) (int, int64) {
		e := 0
		if i > first {
			i, e = i-first-1, 1
		}
		return e, r.eps[e]["joints"][0] + int64(i)*50e6
	}, none)
	r.info.Feature("cam").Masked, r.blind["cam"] = true, 4
	checkSpread(
		t,
		r,
		allOf(
			t,
			mustMap(
				t,
				r,
				options.Config{
					Windows: options.Windows{Keys: keys, Anchor: "joints", Native: windows},
				},
			),
		),
		onJoints,
		func(row int) bool { return row%4 == 3 },
	)
}

// TestSpreadBatches: the loader's batches, shuffled, from a pool and resumed from a cache, are
// those of the Map; ragged numbers too.
func TestSpreadBatches(t *testing.T) {
	r := newRobot(1.5, 1.2)
	windows := NativeWindows{spanOf("cam"), spanOf("points"), spanOf("hits")}
	keys := []string{"cam", "points", "hits"}
	m := mustMap(t, r, options.Config{Windows: options.Windows{Keys: keys, Native: windows}})
	for _, cfg := range []options.Config{
		{Order: options.Order{Shuffle: Global}},
		{Order: options.Order{Shuffle: Pool, PoolOrder: options.PoolOrder{PoolEpisodes: 2}}},
		{CacheOptions: options.CacheOptions{Cache: "ram"}},
		{Runtime: options.Runtime{Threads: 1}},
	} {
		cfg.Keys, cfg.Native, cfg.BatchSize, cfg.Seed = keys, windows, 7, 4
		l := mustLoader(t, r, cfg)
		n := int64(0)
		for {
			b, err := l.Next(bg)
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			want, err := m.Items(bg, b.Indices)
			if err != nil {
				t.Fatal(err)
			}
			for i := range want.Tensors {
				if got := b.Tensor(want.Tensors[i].Key); string(got.Data) !=
					string(want.Tensors[i].Data) ||
					!slices.Equal(got.Shape, want.Tensors[i].Shape) {
					t.Fatalf("%+v: %s differs", cfg, want.Tensors[i].Key)
				}
			}
			n += int64(b.Rows)
			want.Release()
			b.Release()
		}
		if n != m.Len() {
			t.Errorf("%d samples of %d", n, m.Len())
		}
	}
}

// TestSpreadRefused: places that two sources count differently, and texts.
func TestSpreadRefused(t *testing.T) {
	a, b := newRobot(1.5), newRobot(1.2)
	b.eps[0][""] = slices.DeleteFunc(b.eps[0][""], func(s int64) bool { return s/100e6%2 == 0 })
	_, err := NewMix(
		bg,
		[]options.Mix{{Dataset: a, Name: "a"}, {Dataset: b, Name: "b"}},
		options.Config{
			Windows: options.Windows{Keys: []string{"cam"}, Native: NativeWindows{spanOf("cam")}},
		},
	)
	if !errors.Is(err, robocache.ErrMisuse) || !strings.Contains(err.Error(), "count") {
		t.Errorf("sources with other numbers of places: %v", err)
	}
	if _, err := NewMap(
		bg,
		a,
		options.Config{Windows: options.Windows{Native: NativeWindows{spanOf("say")}}},
	); !errors.Is(
		err,
		robocache.ErrMisuse,
	) {
		t.Errorf("a text: %v", err)
	}
	a.eps[0][""][3] = a.eps[0][""][1]
	if _, err := NewMap(
		bg,
		a,
		options.Config{Windows: options.Windows{Native: NativeWindows{spanOf("cam")}}},
	); !errors.Is(
		err,
		robocache.ErrMalformed,
	) {
		t.Errorf("timestamps that go backwards: %v", err)
	}
}
