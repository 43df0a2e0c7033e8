package loader

import (
	"bytes"
	"errors"
	"math"
	"slices"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/align"
	"github.com/goatnote-inc/robocache/loader/internal/column"
	"github.com/goatnote-inc/robocache/loader/options"
)

// loader.L26: to 50 Hz every value is the float64 reference's; masks mark the gap and the late
// start; a known sine is off by less than the bound of linear interpolation, h²/8·max|f″|.
func TestSeveralClocksOnAGrid(t *testing.T) {
	r := newRobot(3.2)
	hz := robocache.Rate{Num: 50, Den: 1}
	gap := align.PerKey[align.Nanos]{Keys: map[string]align.Nanos{"imu": 50e6, "cam": 100e6}}
	m := mustMap(
		t,
		r,
		options.Config{Align: &align.Config{
			Extent: "joints",
			MaxGap: gap,
			Edge:   align.PerKey[align.Edge]{All: align.EdgeMask},
		}, Windows: options.Windows{Hz: &hz}},
	)
	b := allOf(t, m)
	joints, imu, cam := column.Floats32(b.Tensor("joints").Data),
		column.AsSlice[float64](b.Tensor("imu").Data), b.Tensor("cam_is_pad").Data
	gone := b.Tensor("imu_is_pad").Data
	var worst float64
	inGap, late := 0, 0
	timestamps, own := r.eps[0]["imu"], r.eps[0]["joints"]
	for i := range b.Rows {
		at := int64(epoch) + int64(i)*20e6
		for k := range 3 {
			want := interp(
				at,
				own,
				func(j int) float64 { return r.value("joints", robocache.Row{Index: j}, k) },
			)
			if math.Abs(float64(joints[i*3+k])-want) > 1e-4 {
				t.Fatalf("joints %d is %v at %d, expected %v", k, joints[i*3+k], i, want)
			}
		}
		if at < r.eps[0][""][0] {
			late++
			if cam[i] != 1 {
				t.Errorf("place %d lies before the camera's start and is not masked", i)
			}
		} else if cam[i] != 0 {
			t.Errorf("place %d is masked", i)
		}
		k, _ := slices.BinarySearch(timestamps, at)
		dark := k == 0 || k == len(timestamps) ||
			timestamps[k]-timestamps[k-1] > 50e6 && timestamps[k] != at
		if (gone[i] == 1) != dark {
			t.Errorf("inertia at place %d: mask %d", i, gone[i])
		}
		if dark {
			inGap++
			continue
		}
		for c := range 2 {
			want := interp(at, timestamps, func(j int) float64 { return wave(timestamps[j], c) })
			if math.Abs(imu[i*2+c]-want) > 1e-12 {
				t.Fatalf("inertia at %d is %v, expected %v", i, imu[i*2+c], want)
			}
			worst = max(worst, math.Abs(imu[i*2+c]-wave(at, c)))
		}
	}
	h := 3.6e-3 // period and jitter
	if bound := h * h / 8 * math.Pow(2*math.Pi*3, 2); worst > bound {
		t.Errorf("a sine is off by %g, the bound is %g", worst, bound)
	}
	if inGap < 19 || late != 27 {
		t.Errorf("%d places in the gap, %d before the camera's start", inGap, late)
	}
}

// loader.L26: without hz samples are the rows of the dataset's own clock, or of the anchor's;
// streams on it come row by row and unmasked, others by their align rules, as on a grid.
func TestAnchors(t *testing.T) {
	r := newRobot(1.5, 0.9)
	m := mustMap(t, r, options.Config{})
	if m.Len() != int64(r.Len(0)+r.Len(1)) {
		t.Fatalf("%d samples", m.Len())
	}
	b := allOf(t, m)
	if b.Tensor("cam_is_pad") != nil || b.Tensor("exposure_is_pad") != nil ||
		b.Tensor("joints_is_pad") == nil {
		t.Error("masks are of streams on other clocks")
	}
	for i := range b.Rows {
		row, at := robocache.Row{Index: i}, int64(0)
		if i >= r.Len(0) {
			row = robocache.Row{Episode: 1, Index: i - r.Len(0)}
		}
		at = r.eps[row.Episode][""][row.Index]
		if got := column.Floats32(b.Tensor("exposure").Data)[i]; got !=
			float32(r.value("exposure", row, 0)) {
			t.Fatalf("exposure %v at %v", got, row)
		}
		want := interp(
			at,
			r.eps[row.Episode]["joints"],
			func(j int) float64 {
				return r.value("joints", robocache.Row{Episode: row.Episode, Index: j}, 1)
			},
		)
		if got := column.Floats32(b.Tensor("joints").Data)[i*3+1]; math.Abs(float64(got)-want) >
			1e-3 {
			t.Fatalf("joints %v at %v, expected %v", got, row, want)
		}
		q := column.AsSlice[float64](b.Tensor("pose").Data)[i*4:]
		a := float64(at-epoch) * 1e-9 / 2
		if d := math.Abs(q[2]*math.Sin(a) +
			q[3]*math.Cos(a)); b.Tensor("pose_is_pad").Data[i] == 0 && math.Abs(d-1) > 1e-9 ||
			math.Abs(math.Hypot(q[2], q[3])-1) > 1e-12 {
			t.Fatalf("the quaternion at %v is %v, its angle %v", row, q[:4], a)
		}
		if got := b.Text("say")[i]; got != "say "+string(rune('0'+row.Episode))+" 0" {
			t.Fatalf("%q", got)
		}
		c := stillColour(row)
		if p := b.Tensor("cam").Data[i*3*fakeW*fakeH]; p != c.R {
			t.Fatalf("the frame of %v is another's", row)
		}
	}
	// The same through align, at the anchor's timestamps.
	times := slices.Clone(r.eps[0][""][:r.Len(0)])
	want, err := align.Episode(
		bg,
		r,
		0,
		align.Config{Times: times, Keys: []string{"joints", "mode", "imu", "pose"}},
	)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range want.Streams {
		if got := b.Tensor(s.Key).Data[:len(s.Data)]; !bytes.Equal(got, s.Data) {
			t.Errorf("%s differs from align", s.Key)
		}
		for i, v := range s.Valid {
			if b.Tensor(s.Key + "_is_pad").Data[i] == v {
				t.Errorf("the mask of %s at %d", s.Key, i)
			}
		}
	}
	// Another anchor.
	m = mustMap(
		t,
		r,
		options.Config{
			Windows: options.Windows{
				Anchor: "joints",
				Keys:   []string{"joints", "mode", "cam", "say"},
			},
		},
	)
	if n := len(r.eps[0]["joints"]) + len(r.eps[1]["joints"]); m.Len() != int64(n) {
		t.Fatalf("%d samples, expected %d", m.Len(), n)
	}
	b = allOf(t, m)
	if b.Tensor("joints_is_pad") != nil || b.Tensor("cam_is_pad").Data[0] != 1 ||
		b.Tensor("cam_is_pad").Data[60] != 0 {
		t.Error("masks of the anchor joints")
	}
	if got := column.Floats32(b.Tensor("joints").Data)[3*17]; got != 17 {
		t.Errorf("joints of row 17: %v", got)
	}
	// Offsets make a stream on the anchor's clock go by time.
	m = mustMap(
		t,
		r,
		options.Config{
			Align:   &align.Config{Offset: map[string]align.Nanos{"mode": 15e6}},
			Windows: options.Windows{Anchor: "joints", Keys: []string{"joints", "mode"}},
		},
	)
	b = allOf(t, m)
	// timestamped 15 ms later, the previous one
	if got := column.AsSlice[int64](b.Tensor("mode").Data)[17]; got != 15 {
		t.Errorf("mode of row 17: %v", got)
	}
	for _, bad := range []options.Config{
		{Windows: options.Windows{Anchor: "joint"}},
		{Windows: options.Windows{Anchor: "joints", Hz: &robocache.Rate{Num: 5, Den: 1}}},
		{Align: &align.Config{Extent: "union"}},
	} {
		if _, err := NewMap(bg, r, bad); !errors.Is(err, robocache.ErrMisuse) {
			t.Errorf("%+v gives %v", bad, err)
		}
	}
}

// loader.L27: all samples of a span, both ends included, as they are; the lengths say whose they
// are; rows without a value are left out.
func TestSpans(t *testing.T) {
	r := newRobot(1.5, 0.9)
	r.info.Feature("imu").Masked, r.blind["imu"] = true, 5
	cfg := options.Config{
		Windows: options.Windows{Keys: []string{"imu", "joints", "exposure"}, Native: NativeWindows{
			{Key: "imu", Span: &[2]float64{-0.05, 0.01}},
			{Key: "joints", Span: &[2]float64{-0.6, -0.55}},
		}},
	}
	m := mustMap(t, r, cfg)
	b := allOf(t, m)
	for _, key := range []string{"imu", "joints"} {
		f := r.info.Feature(key)
		w := cfg.Native.Of(key)
		lengths := column.AsSlice[int64](b.Tensor(key + "_lengths").Data)
		x := b.Tensor(key)
		at, total := 0, 0
		for i := range b.Rows {
			row := robocache.Row{Index: i}
			if i >= r.Len(0) {
				row = robocache.Row{Episode: 1, Index: i - r.Len(0)}
			}
			now := r.eps[row.Episode][""][row.Index]
			n := 0
			when := column.AsSlice[int64](b.Tensor(key + "_times").Data)
			for j, s := range r.times(row.Episode, key) {
				from := robocache.Row{Episode: row.Episode, Index: j}
				if s < now+options.Seconds(w.Span[0]) || s > now+options.Seconds(w.Span[1]) ||
					r.blinded(key, from) {
					continue
				}
				for k := range f.Elements() {
					want := r.value(key, from, k)
					got := 0.0
					if key == "imu" {
						got = column.AsSlice[float64](x.Data)[at*2+k]
					} else {
						got = float64(column.Floats32(x.Data)[at*3+k])
					}
					if got != want && got != float64(float32(want)) {
						t.Fatalf("%s of sample %d: %v, expected %v", key, i, got, want)
					}
				}
				if when[at] != s-now {
					t.Fatalf(
						"%s of sample %d: %d ns after it, expected %d",
						key,
						i,
						when[at],
						s-now,
					)
				}
				at, n = at+1, n+1
			}
			if lengths[i] != int64(n) {
				t.Fatalf("%s of sample %d: length %d, expected %d", key, i, lengths[i], n)
			}
			total += n
		}
		if x.Shape[0] != total || len(x.Shape) != 2 || b.Tensor(key+"_is_pad") != nil {
			t.Errorf("%s: shape %v, %d rows expected", key, x.Shape, total)
		}
		if key == "joints" && lengths[0] != 0 {
			t.Error("a window before the episode has samples")
		}
	}
	for i, f := range b.Fields {
		if f.Key == "imu" &&
			(!f.Ragged || !slices.Equal(f.Shape, []int{-1, 2}) || !b.Fields[i+1].Lengths ||
				b.Fields[i+1].Key != "imu_lengths" || !b.Fields[i+2].Times ||
				b.Fields[i+2].Key != "imu_times" || b.Tensor("imu_times_lengths") != nil) {
			t.Errorf("%+v", b.Fields)
		}
	}
}

// TestSpansOnATimeline checks loader.L27 on a timeline whose samples are at times without a
// timestamp of any stream.
func TestSpansOnATimeline(t *testing.T) {
	r := newRobot(1.2)
	m := mustMap(
		t,
		r,
		options.Config{
			Windows: options.Windows{
				Hz:     &robocache.Rate{Num: 50, Den: 1},
				Keys:   []string{"imu", "joints"},
				Native: NativeWindows{{Key: "imu", Span: &[2]float64{-0.05, 0.01}}},
			},
		},
	)
	b := allOf(t, m)
	imu, joints := r.eps[0]["imu"], r.eps[0]["joints"]
	t0 := max(imu[0], joints[0])
	lengths, when := column.AsSlice[int64](b.Tensor("imu_lengths").Data),
		column.AsSlice[int64](b.Tensor("imu_times").Data)
	at := 0
	for i := range lengths {
		now := t0 + 20e6*int64(i)
		n := int64(0)
		for _, s := range imu {
			if s < now-50e6 || s > now+10e6 {
				continue
			}
			if when[at] != s-now {
				t.Fatalf("sample %d: %d ns after it, expected %d", i, when[at], s-now)
			}
			at, n = at+1, n+1
		}
		if lengths[i] != n {
			t.Fatalf("sample %d: length %d, expected %d", i, lengths[i], n)
		}
	}
	if len(lengths) != int((min(imu[len(imu)-1], joints[len(joints)-1])-t0)/20e6)+1 ||
		at != len(when) {
		t.Errorf("%d samples, %d of %d rows", len(lengths), at, len(when))
	}
}

// loader.L27: with a count a span is that many times, evenly from end to end, by the align rule;
// offsets give samples, and none is computed unless a mode is chosen. Both are masked outside the
// episode. On a dataset of one clock too.
func TestWindowsInTime(t *testing.T) {
	r := newRobot(1.5)
	cfg := options.Config{
		Windows: options.Windows{
			Keys: []string{"imu", "joints", "cam", "points", "mode"},
			Native: NativeWindows{
				{Key: "imu", Span: &[2]float64{-0.6, 0}, Count: 5},
				{Key: "joints", Offsets: []float64{-0.6, -0.005, 0.003}},
				{Key: "cam", Offsets: []float64{-0.09, 0, 0.02}},
				{Key: "points", Offsets: []float64{-0.1, 0}},
			},
		},
	}
	b := allOf(t, mustMap(t, r, cfg))
	if s := b.Tensor("points_lengths").Shape; !slices.Equal(s, []int{r.Len(0), 2}) {
		t.Errorf("lengths %v", s)
	}
	cloud := 0
	for i := range b.Rows {
		now := r.eps[0][""][i]
		for k := range 5 {
			at := now - 600e6 + int64(k)*150e6
			timestamps := r.eps[0]["imu"]
			want := interp(at, timestamps, func(j int) float64 { return wave(timestamps[j], 1) })
			if got := column.AsSlice[float64](b.Tensor("imu").Data)[(i*5+k)*2+1]; math.Abs(
				got-want,
			) > 1e-12 {
				t.Fatalf("inertia of sample %d, step %d: %v, expected %v", i, k, got, want)
			}
			if pad := b.Tensor("imu_is_pad").Data[i*5+k] == 1; pad != (at < timestamps[0] ||
				at > timestamps[len(timestamps)-1]) {
				t.Fatalf("mask of sample %d, step %d", i, k)
			}
		}
		for k, d := range []int64{-600e6, -5e6, 3e6} {
			timestamps := r.eps[0]["joints"]
			j, _ := slices.BinarySearch(timestamps, now+d+1)
			pad := j == 0 || now+d > timestamps[len(timestamps)-1]
			if got := column.Floats32(b.Tensor("joints").Data)[(i*3+k)*3]; got !=
				float32(max(j-1, 0)) {
				t.Fatalf("joints of sample %d, step %d: %v, expected row %d", i, k, got, j-1)
			}
			if (b.Tensor("joints_is_pad").Data[i*3+k] == 1) != pad {
				t.Fatalf("mask of joints, sample %d, step %d", i, k)
			}
		}
		// 90 ms are nearest to three frames, 20 ms to the next one.
		for k, d := range []int{-3, 0, 1} {
			j := i + d
			pad := k == 0 && i < 3 || k == 2 && i == r.Len(0)-1
			j = min(max(j, 0), r.Len(0)-1)
			if c := stillColour(
				robocache.Row{Index: j},
			); b.Tensor("cam").Data[(i*3+k)*3*fakeW*fakeH+fakeW*fakeH] != c.G {
				t.Fatalf("frame of sample %d, step %d is not that of row %d", i, k, j)
			}
			if (b.Tensor("cam_is_pad").Data[i*3+k] == 1) != pad {
				t.Fatalf("mask of the camera, sample %d, step %d", i, k)
			}
		}
		for k, d := range []int64{-100e6, 0} {
			timestamps := r.eps[0]["points"]
			best := 0
			for j, s := range timestamps {
				if abs(s-now-d) < abs(timestamps[best]-now-d) {
					best = j
				}
			}
			n := pointsOf(robocache.Row{Index: best})
			if got := column.AsSlice[int64](b.Tensor("points_lengths").Data)[i*2+k]; got !=
				int64(n) {
				t.Fatalf(
					"cloud of sample %d, step %d has %d points, row %d has %d",
					i,
					k,
					got,
					best,
					n,
				)
			}
			for p := range n * 4 {
				if got := column.Floats32(b.Tensor("points").Data)[cloud*4+p]; got !=
					float32(best*100+p) {
					t.Fatalf("point of sample %d, step %d: %v", i, k, got)
				}
			}
			cloud += n
		}
	}
	if s := b.Tensor("points").Shape; !slices.Equal(s, []int{cloud, 4}) {
		t.Errorf("points %v, expected %d", s, cloud)
	}
	// One clock.
	f := newFake(11)
	b = allOf(
		t,
		mustMap(
			t,
			f,
			options.Config{
				Windows: options.Windows{
					Keys: []string{"observation.state", "count", "action"},
					Native: NativeWindows{
						{Key: "observation.state", Span: &[2]float64{-0.2, 0}},
						{Key: "count", Offsets: []float64{-0.15}},
					},
					Deltas: deltas("action", []float64{0.1}),
				},
			},
		),
	)
	if l := column.AsSlice[int64](b.Tensor("observation.state_lengths").Data); l[0] != 1 ||
		l[1] != 2 || l[2] != 3 || l[10] != 3 {
		t.Errorf("lengths %v", l)
	}
	if c, p := column.AsSlice[int16](b.Tensor("count").Data), b.Tensor("count_is_pad").Data; c[5] !=
		3 || p[1] != 1 || p[5] != 0 {
		t.Errorf("count %v, masks %v", c, p)
	}
	if a := column.AsSlice[float64](b.Tensor("action").Data); a[2*3] != 4.1 {
		t.Errorf("the window of rows beside it: %v", a[2*3])
	}
	// A mode that is chosen holds for offsets.
	b = allOf(
		t,
		mustMap(
			t,
			f,
			options.Config{
				Align: &align.Config{
					Modes: map[string]align.Mode{"observation.state": align.Linear},
				},
				Windows: options.Windows{
					Keys:   []string{"observation.state"},
					Native: NativeWindows{{Key: "observation.state", Offsets: []float64{-0.05}}},
				},
			},
		),
	)
	if x := column.Floats32(b.Tensor("observation.state").Data); x[3*4] != 3.5 {
		t.Errorf("linear between rows 3 and 4: %v", x[3*4])
	}
}

func abs(x int64) int64 { return max(x, -x) }

// Rows without a value: read by row or by time they are masked, and zero; frames that are not there
// too.
func TestMaskedStreams(t *testing.T) {
	r := newRobot(1.5)
	for _, k := range []string{"cam", "exposure", "joints"} {
		r.info.Feature(k).Masked, r.blind[k] = true, 4
	}
	b := allOf(
		t,
		mustMap(
			t,
			r,
			options.Config{
				Windows: options.Windows{
					Keys:   []string{"cam", "exposure", "joints"},
					Native: NativeWindows{{Key: "joints", Offsets: []float64{-0.02, 0}}},
				},
			},
		),
	)
	for i := range b.Rows {
		dark := byte(0)
		if i%4 == 3 {
			dark = 1
		}
		if b.Tensor("cam_is_pad").Data[i] != dark || b.Tensor("exposure_is_pad").Data[i] != dark {
			t.Fatalf(
				"row %d: masks %d, %d",
				i,
				b.Tensor("cam_is_pad").Data[i],
				b.Tensor("exposure_is_pad").Data[i],
			)
		}
		if p := b.Tensor("cam").Data[i*3*fakeW*fakeH : (i+1)*3*fakeW*fakeH]; dark == 1 &&
			slices.Max(p) != 0 {
			t.Fatalf("row %d has a frame", i)
		}
		for k, d := range []int64{-20e6, 0} {
			j, _ := slices.BinarySearch(r.eps[0]["joints"], r.eps[0][""][i]+d+1)
			if got := b.Tensor("joints_is_pad").Data[2*i+k]; (got == 1) != ((j-1)%4 == 3 ||
				r.eps[0][""][i]+d > r.eps[0]["joints"][149]) {
				t.Fatalf("joints of row %d, step %d: mask %d, row %d", i, k, got, j-1)
			}
		}
	}
}

// Misuse of windows, and what there is not.
func TestWindowMisuse(t *testing.T) {
	r := newRobot(1)
	span := func(a, b float64) *[2]float64 { return &[2]float64{a, b} }
	for _, w := range []Window{
		{Key: "imo", Offsets: []float64{0}},
		{Key: "imu"},
		{Key: "imu", Span: span(0, -1)},
		{Key: "imu", Span: span(0, 1), Offsets: []float64{1}},
		{Key: "imu", Offsets: []float64{math.NaN()}},
		{Key: "say", Offsets: []float64{0}},
		{Key: "imu", Span: span(-1, 0), Count: -1},
	} {
		if _, err := NewMap(bg, r,
			options.Config{Windows: options.Windows{Native: NativeWindows{w}}}); !errors.Is(err,
			robocache.ErrMisuse) {
			t.Errorf("%+v gives %v", w, err)
		}
	}
	for _, text := range []string{
		`{"windows": {"imu": {"span": [0]}}}`,
		`{"windows": {"imu": {"span": [0, 1], "cont": 3}}}`,
		`{"windows": {"imu": []}}`,
		`{"windows": {"imu": {"span": [0, 1], "count": 0}}}`,
	} {
		if _, err := options.ParseConfig([]byte(text)); !errors.Is(err, robocache.ErrMisuse) {
			t.Errorf("%s gives %v", text, err)
		}
	}
	c, err := options.ParseConfig(
		[]byte(
			`{"anchor": "joints", "windows": {"imu": {"span": [-0.5, 0], "count": 10}, "cam": [-0.1, 0], "joints": {"span": [-1, 1]}}}`,
		),
	)
	if err != nil {
		t.Fatal(err)
	}
	back, err := c.Native.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	if string(back) !=
		`{"imu":{"count":10,"span":[-0.5,0]},"cam":[-0.1,0],"joints":{"span":[-1,1]}}` {
		t.Errorf("%s", back)
	}
}
