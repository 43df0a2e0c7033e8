package loader

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/align"
	"github.com/goatnote-inc/robocache/loader/internal/column"
	"github.com/goatnote-inc/robocache/loader/internal/layout"
)

// lateRobot is a robot whose samples arrive after their timestamps. Samples that arrive after limit
// have the values of row 0.
type lateRobot struct {
	*robot
	arrivals []map[string][]int64 // by episode and clock
	limit    int64
}

// newLateRobot returns recordings in which lag returns the delay of each sample's arrival.
func newLateRobot(lag func(clock string, k int) int64, seconds ...float64) *lateRobot {
	r := &lateRobot{robot: newRobot(seconds...), limit: math.MaxInt64}
	for _, clocks := range r.eps {
		arrivals := map[string][]int64{}
		for clock, stamps := range clocks {
			for k, s := range stamps {
				arrivals[clock] = append(arrivals[clock], s+lag(clock, k))
			}
		}
		r.arrivals = append(r.arrivals, arrivals)
	}
	return r
}

// randomLags returns delays of 5 to 60 ms, also out of order.
func randomLags(seed uint64) func(string, int) int64 {
	rng := rand.New(rand.NewPCG(seed, 3))
	return func(string, int) int64 { return 5e6 + rng.Int64N(55e6) }
}

func (r *lateRobot) arrived(e int, key string) []int64 {
	clock := ""
	if f := r.info.Feature(key); f != nil && f.Clock != r.info.Clock {
		clock = f.Clock
	}
	return r.arrivals[e][clock]
}

func (r *lateRobot) Capabilities() *robocache.Capabilities {
	c := *r.robot.Capabilities()
	c.GatherRagged = r.GatherRagged
	c.Clocks = func(string) []string { return []string{"header", "log"} }
	c.TimesBy = func(ctx context.Context, e int, key, clock string) ([]int64, error) {
		if clock == "log" {
			return slices.Clone(r.arrived(e, key)), nil
		}
		return r.Times(ctx, e, key)
	}
	return &c
}

func (r *lateRobot) knownRows(key string, rows []robocache.Row) []robocache.Row {
	rows = slices.Clone(rows)
	for i, row := range rows {
		if r.arrived(row.Episode, key)[row.Index] > r.limit {
			rows[i].Index = 0
		}
	}
	return rows
}

func (r *lateRobot) Gather(
	ctx context.Context, key string, rows []robocache.Row, dst []byte,
) error {
	return r.robot.Gather(ctx, key, r.knownRows(key, rows), dst)
}

func (r *lateRobot) GatherRagged(
	ctx context.Context, key string, rows []robocache.Row,
) ([]byte, []int, error) {
	return r.robot.GatherRagged(ctx, key, r.knownRows(key, rows))
}

func (r *lateRobot) Text(
	ctx context.Context, key string, rows []robocache.Row,
) ([]string, error) {
	return r.robot.Text(ctx, key, r.knownRows(key, rows))
}

func (r *lateRobot) Frames(
	ctx context.Context, key string, rows []robocache.Row, out []robocache.FrameRef,
) error {
	return r.robot.Frames(ctx, key, r.knownRows(key, rows), out)
}

// forgetAfter returns a copy in which each stream has, after the newest sample that arrived until
// limit, only one sample: the last one.
func (r *lateRobot) forgetAfter(limit int64) *lateRobot {
	out := &lateRobot{robot: &robot{info: r.info, blind: r.blind}, limit: limit}
	for e, clocks := range r.eps {
		stamps, arrivals := map[string][]int64{}, map[string][]int64{}
		for clock, all := range clocks {
			newest := 0
			for k, a := range r.arrivals[e][clock] {
				if a <= limit {
					newest = k
				}
			}
			for k, a := range r.arrivals[e][clock] {
				if k <= newest || k == len(all)-1 {
					stamps[clock] = append(stamps[clock], all[k])
					arrivals[clock] = append(arrivals[clock], a)
				}
			}
		}
		out.eps, out.arrivals = append(out.eps, stamps), append(out.arrivals, arrivals)
	}
	return out
}

// configOf parses the JSON of a configuration.
func configOf(t testing.TB, text string) Config {
	t.Helper()
	cfg, err := ParseConfig([]byte(text))
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return cfg
}

// itemOf returns the entries of one sample as text.
func itemOf(t testing.TB, m *Map, sample int64) string {
	t.Helper()
	b, err := m.Items(bg, []int64{sample})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Release()
	return batchText(b)
}

func batchText(b *layout.Batch) string {
	var out strings.Builder
	for _, f := range b.Fields {
		if f.Text() {
			fmt.Fprintln(&out, f.Key, b.Text(f.Key))
		} else {
			fmt.Fprintln(&out, f.Key, b.Tensor(f.Key).Shape, b.Tensor(f.Key).Data)
		}
	}
	return out.String()
}

var causalConfigs = []string{
	`{"hz": 50, "align": "causal"}`,
	`{"align": "causal"}`,
	`{"hz": 20, "align": {"causal": true, "arrival_delay": 0.02, "max_age": {"joints": 0.05, "cam": 0.1}}}`,
	`{"hz": 50, "align": {"causal": true, "delay": 0.08, "extent": "joints"}}`,
	`{"anchor": "imu", "align": {"causal": true, "modes": {"joints": "linear"},
		"delay": {"joints": 0.05}}}`,
	`{"hz": 50, "delta_timestamps": {"joints": [-0.2, -0.02, 0], "cam": [-0.1, 0]},
		"align": {"causal": true, "delay": {"imu": 0.04}}}`,
	`{"hz": 25, "delta_indices": {"imu": [-3, 0], "points": [-1, 0]}, "align": "causal"}`,
	`{"windows": {"joints": {"span": [-0.3, 0]}, "imu": {"span": [-0.2, 0], "count": 5},
		"cam": [-0.1, 0]}, "align": {"causal": true, "delay": {"imu": 0.07}}}`,
	`{"hz": 50, "align": {"causal": true, "latency": {"joints": {"uniform": [0.06, 0.08]}}}}`,
}

// TestCausalIgnoresLaterSamples checks that no observation depends on a sample that arrives after
// the tick: its value, its timestamp and its existence change nothing.
func TestCausalIgnoresLaterSamples(t *testing.T) {
	rng := rand.New(rand.NewPCG(8, 8))
	for _, text := range causalConfigs {
		lags := randomLags(4)
		if strings.Contains(text, `"span"`) { // a span has no holes
			lags = func(string, int) int64 { return 30e6 }
		}
		ds := newLateRobot(lags, 3.2)
		m := mustMap(t, ds, configOf(t, text))
		distinct := 0
		for range 25 {
			sample := rng.Int64N(m.Len() * 9 / 10)
			r := m.assembler.Sources[0]
			row, place := r.Table.Row(sample)
			tick := r.Table.Start
			now := int64(0)
			if tick != nil {
				now = tick[place] + r.Rate.Nanos(int64(row.Index))
			} else {
				now = ds.eps[0][r.Timebase.Clock][row.Index]
			}
			want := itemOf(t, m, sample)
			ds.limit = now
			got := itemOf(t, m, sample)
			ds.limit = now - 100e6
			if itemOf(t, m, sample) != want {
				distinct++
			}
			ds.limit = math.MaxInt64
			if got != want {
				t.Fatalf("%s: sample %d depends on later values:\n%s\n%s", text, sample, got, want)
			}
			if tick == nil {
				continue // the rows of the anchor are the samples
			}
			short := mustMap(t, ds.forgetAfter(now), configOf(t, text))
			if got := itemOf(t, short, sample); got != want {
				t.Fatalf("%s: sample %d depends on later samples:\n%s\n%s", text, sample, got, want)
			}
		}
		if distinct == 0 {
			t.Errorf("%s: no sample depends on the last 100 ms", text)
		}
	}
	// Without causal the same check fails.
	ds := newLateRobot(randomLags(4), 3.2)
	m := mustMap(t, ds, configOf(t, `{"hz": 50}`))
	want := itemOf(t, m, 60)
	ds.limit = m.assembler.Sources[0].Table.Start[0] + 60*20e6
	if itemOf(t, m, 60) == want {
		t.Error("an interpolated sample does not depend on later values")
	}
}

// TestCausalWindows compares each step of windows with the newest sample that had arrived: at the
// step's tick for delta_timestamps, at the sample's tick for windows.
func TestCausalWindows(t *testing.T) {
	ds := newLateRobot(randomLags(9), 3.2)
	for _, option := range []string{"delta_timestamps", "windows"} {
		m := mustMap(t, ds, configOf(t, `{"hz": 50, "keys": ["mode"], "align": "causal", "`+option+
			`": {"mode": [-0.2, -0.05, 0]}}`))
		b := allOf(t, m)
		got := column.AsSlice[int64](b.Tensor("mode").Data)
		pads := b.Tensor("mode_is_pad").Data
		stamps, arrivals := ds.eps[0]["joints"], ds.arrivals[0]["joints"]
		start := m.assembler.Sources[0].Table.Start[0]
		for i := range b.Rows {
			tick := start + int64(i)*20e6
			for k, d := range []int64{-200e6, -50e6, 0} {
				now := tick + d
				if option == "windows" {
					now = tick
				}
				want := -1
				for s := range stamps {
					if stamps[s] <= tick+d && arrivals[s] <= now {
						want = s
					}
				}
				if pad := pads[3*i+k] == 1; pad != (want < 0) ||
					!pad && got[3*i+k] != int64(want) {
					t.Fatalf("%s: tick %d, step %d: %d (%d), want %d", option, i, k, got[3*i+k],
						pads[3*i+k], want)
				}
			}
		}
	}
}

// TestCausalWindowAhead checks that windows of observations past the tick are errors, and that
// labels may have them.
func TestCausalWindowAhead(t *testing.T) {
	ds := newLateRobot(randomLags(9), 1.5)
	for _, window := range []string{
		`"delta_timestamps": {"joints": [0, 0.02]}`,
		`"delta_indices": {"joints": [0, 1]}`,
		`"windows": {"joints": [0.02]}`,
		`"windows": {"joints": {"span": [-0.1, 0.02]}}`,
		`"windows": {"joints": {"span": [-0.1, 0.02], "count": 3}}`,
	} {
		for align, want := range map[string]string{
			`"causal"`: `Targets: ["joints"]`, `{"causal": true, "targets": ["joints"]}`: "",
		} {
			text := `{"hz": 50, "keys": ["joints", "mode"], ` + window + `, "align": ` + align + `}`
			m, err := NewMap(bg, ds, configOf(t, text))
			if err == nil {
				_ = m.Close()
			}
			if (err != nil) != (want != "") || err != nil && !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v", text, err)
			}
		}
	}
}

// TestCausalOptionsOfLoader checks that a loader rejects causal options that contradict each other.
func TestCausalOptionsOfLoader(t *testing.T) {
	ds := newLateRobot(randomLags(9), 1.5)
	for align, want := range map[string]string{
		`{"max_age": 0.1}`: "causal: true",
		`{"latency": {"joints": {"measured": true}}}`:     "causal: true",
		`{"causal": true, "delay": -1}`:                   "0 or more",
		`{"causal": true, "modes": {"joints": "linear"}}`: "needs a delay",
		`{"causal": true, "targets": ["jonts"]}`:          "joints",
		`{"causal": true, "delay": {"joints": 1}, "max_age": {"joints": 0.001},
			"stale": "error", "modes": {"joints": "previous"}}`: "young enough",
	} {
		text := `{"hz": 50, "keys": ["joints"], "align": ` + align + `}`
		m, err := NewMap(bg, ds, configOf(t, text))
		if err == nil {
			_, err = m.Items(bg, []int64{0})
			_ = m.Close()
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
	measured := configOf(t, `{"hz": 50, "align": {"causal": true,
		"latency": {"joints": {"measured": true}}}}`)
	if _, err := NewMap(bg, newRobot(1.5), measured); err == nil ||
		!strings.Contains(err.Error(), "no arrival times") {
		t.Errorf("measured without arrival times: %v", err)
	}
}

// epochItems returns the entries of each sample of an epoch, by its number.
func epochItems(t *testing.T, l *Loader) map[int64]string {
	t.Helper()
	out := map[int64]string{}
	for {
		b, err := l.Next(bg)
		if err == io.EOF {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		for i, sample := range b.Indices {
			var text strings.Builder
			for _, f := range b.Fields {
				x := b.Tensor(f.Key)
				size := len(x.Data) / b.Rows
				fmt.Fprintln(&text, f.Key, x.Data[i*size:(i+1)*size])
			}
			out[sample] = text.String()
		}
		b.Release()
	}
}

// TestDrawnLatencyIsPure checks that drawn latencies depend on seed, epoch and sample only.
func TestDrawnLatencyIsPure(t *testing.T) {
	ds := newLateRobot(randomLags(11), 1.7, 2.3)
	const align = `"hz": 50, "align": {"causal": true, "extent": "joints", "latency": {"joints": {"measured": true},
		"mode": {"measured": true}, "imu": {"uniform": [0.01, 0.09]}}}`
	epochs := func(text string) (out []map[int64]string) {
		l := mustLoader(t, ds, configOf(t, text))
		return append(out, epochItems(t, l), epochItems(t, l))
	}
	keys := `, "keys": ["joints", "imu", "mode"]`
	want := epochs(`{"batch_size": 7, "seed": 1, "threads": 1, ` + align + keys + `}`)
	for _, other := range []string{
		`{"batch_size": 64, "seed": 1, "threads": 5, "prefetch": 9, ` + align + keys + `}`,
		`{"batch_size": 5, "seed": 1, "shuffle": false, ` + align + keys + `}`,
	} {
		for epoch, got := range epochs(other) {
			for sample, text := range got {
				if text != want[epoch][sample] {
					t.Fatalf("%s: sample %d of epoch %d is another", other, sample, epoch)
				}
			}
		}
	}
	differ := func(a, b map[int64]string) (n int) {
		for sample := range a {
			if a[sample] != b[sample] {
				n++
			}
		}
		return n
	}
	seed := epochs(`{"batch_size": 7, "seed": 2, ` + align + keys + `}`)
	if n, all := differ(want[0], want[1]), len(want[0]); n < all/2 {
		t.Errorf("%d of %d samples change with the epoch", n, all)
	}
	if n, all := differ(want[0], seed[0]), len(want[0]); n < all/2 {
		t.Errorf("%d of %d samples change with the seed", n, all)
	}
	// A selection of streams does not change the draws, and streams of one clock share them.
	few := mustLoader(t, ds, configOf(t, `{"seed": 1, `+align+`, "keys": ["mode", "joints"]}`))
	for sample, text := range epochItems(t, few) {
		for line := range strings.Lines(text) {
			if !strings.Contains(want[0][sample], line) {
				t.Fatalf("sample %d depends on the selection: %s", sample, line)
			}
		}
	}
	l := mustLoader(t, ds, configOf(t, `{"seed": 1, `+align+`, "keys": ["mode", "joints"]}`))
	b, err := l.Next(bg)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Release()
	joints := column.Floats32(b.Tensor("joints").Data)
	rows, _ := l.Rows(b.Indices)
	for i, mode := range column.AsSlice[int64](b.Tensor("mode").Data) {
		if want := float64(
			rows[i].Episode,
		)*1000 + float64(
			mode%1000,
		); b.Tensor("mode_is_pad").Data[i] ==
			0 &&
			float64(joints[3*i]) != want {
			t.Fatalf("sample %d: joints of %v, mode of row %d", i, joints[3*i], mode)
		}
	}
}

// TestMeasuredLatencyDistribution checks that the ages of the newest usable samples have the
// distribution of the recorded delays.
func TestMeasuredLatencyDistribution(t *testing.T) {
	// 60 % of the samples at 100 Hz arrive after 15 ms, 30 % after 55 ms and 10 % after 155 ms.
	lag := func(_ string, k int) int64 {
		return []int64{15e6, 15e6, 55e6, 15e6, 15e6, 155e6, 55e6, 15e6, 15e6, 55e6}[k%10]
	}
	ds := newLateRobot(lag, 12)
	text := `{"hz": 100, "keys": ["mode"], "batch_size": 256, "align": {"causal": true,
		"extent": "mode", "latency": {"mode": {"measured": true}}}}`
	l := mustLoader(t, ds, configOf(t, text))
	src := l.assembler.Sources[0]
	last := ds.eps[0]["joints"][len(ds.eps[0]["joints"])-1]
	counts, total := map[int64]float64{}, 0.0
	for range 4 {
		for {
			b, err := l.Next(bg)
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			rows, _ := l.Rows(b.Indices)
			for i, k := range column.AsSlice[int64](b.Tensor("mode").Data) {
				tick := src.Table.Start[0] + src.Rate.Nanos(int64(rows[i].Index))
				if b.Tensor("mode_is_pad").Data[i] == 1 || tick > last {
					continue
				}
				// The newest sample at or before tick-lag, one in 10 ms.
				counts[(tick-ds.eps[0]["joints"][k])/10e6*10]++
				total++
			}
			b.Release()
		}
	}
	// The first tick is 15 ms after a sample, so that all ages are 5 ms from a step.
	want := map[int64]float64{10: 0.6, 50: 0.3, 150: 0.1}
	for age, n := range counts {
		p := want[age]
		if math.Abs(n/total-p) > 4*math.Sqrt(p*(1-p)/total) {
			t.Errorf("age %d ms: %.3f of %v samples, want %.2f", age, n/total, total, p)
		}
	}
	if len(counts) != 3 {
		t.Errorf("ages %v", counts)
	}
}

// TestDrawnSpanHasItsTimes checks that the samples of a span and their times share the drawn age.
func TestDrawnSpanHasItsTimes(t *testing.T) {
	ds := newLateRobot(func(_ string, k int) int64 { return 10e6 * int64(1+k%9) }, 3)
	text := `{"hz": 20, "keys": ["joints"], "windows": {"joints": {"span": [-0.3, 0]}},
		"align": {"causal": true, "latency": {"joints": {"measured": true}}}}`
	b := allOf(t, mustMap(t, ds, configOf(t, text)))
	times, values := b.Tensor("joints_times"), b.Tensor("joints")
	if !slices.Equal(times.Shape[:1], values.Shape[:1]) {
		t.Fatalf("%v times of %v rows", times.Shape, values.Shape)
	}
	lengths := column.AsSlice[int64](b.Tensor("joints_lengths").Data)
	if slices.Max(lengths) == slices.Min(lengths[len(lengths)/2:]) {
		t.Errorf("lengths %v: no age is drawn", lengths)
	}
	at, first := 0, column.Floats32(values.Data)
	for i, n := range lengths {
		for k := at; k < at+int(n); k++ {
			row := int(first[3*k])
			tick := ds.eps[0]["joints"][row] - column.AsSlice[int64](times.Data)[k]
			if k > at && tick != ds.eps[0]["joints"][int(first[3*at])]-
				column.AsSlice[int64](times.Data)[at] {
				t.Fatalf("sample %d: the times are of other rows", i)
			}
		}
		at += int(n)
	}
}

// TestCausalOneClock checks causal alignment without hz on a dataset with one clock: each row is its
// own sample, and with arrival_delay an earlier one.
func TestCausalOneClock(t *testing.T) {
	f := newFake(11, 5) // 10 Hz
	plain := mustMap(t, f, configOf(t, `{"keys": ["count", "cam"]}`))
	causal := mustMap(t, f, configOf(t, `{"keys": ["count", "cam"], "align": "causal"}`))
	late := mustMap(t, f, configOf(t, `{"keys": ["count", "cam"],
		"align": {"causal": true, "arrival_delay": 0.15}}`))
	if plain.Len() != causal.Len() || plain.Len() != late.Len() {
		t.Fatal("another number of samples")
	}
	frame := 3 * fakeW * fakeH
	want, same, held := allOf(t, plain), allOf(t, causal), allOf(t, late)
	if !bytes.Equal(want.Tensor("cam").Data, same.Tensor("cam").Data) ||
		!bytes.Equal(want.Tensor("count").Data, same.Tensor("count").Data) {
		t.Error("rows of one clock change under causal")
	}
	for i := range held.Rows {
		row := i
		if i >= 11 {
			row = i - 11
		}
		pad := held.Tensor("cam_is_pad").Data[i] == 1
		if pad != (row < 2) {
			t.Errorf("sample %d: mask %v", i, pad)
		}
		if !pad && !bytes.Equal(held.Tensor("cam").Data[i*frame:(i+1)*frame],
			want.Tensor("cam").Data[(i-2)*frame:(i-1)*frame]) {
			t.Errorf("sample %d is not the frame of two rows before", i)
		}
	}
}

// TestLoaderCausality checks the report of a loader: its streams, episodes, windows and sources.
func TestLoaderCausality(t *testing.T) {
	ds := newLateRobot(randomLags(5), 2, 3, 2.5)
	reportOf := func(text string) map[string]align.StreamCausality {
		l := mustLoader(t, ds, configOf(t, text))
		r, err := l.Causality(bg, 0)
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		out := map[string]align.StreamCausality{}
		for _, s := range r.Streams {
			out[s.Key] = s
		}
		if len(out) == 0 || r.Episodes != r.TotalEpisodes {
			t.Errorf("%s: %+v", text, r)
		}
		return out
	}
	free := reportOf(`{"hz": 50, "keys": ["joints", "cam"]}`)
	if len(free) != 2 || free["joints"].FutureShare < 0.5 || free["cam"].NotArrivedShare < 0.9 {
		t.Errorf("%+v", free)
	}
	some := reportOf(`{"hz": 50, "keys": ["joints"], "episodes": [1]}`)
	l := mustLoader(t, ds, configOf(t, `{"hz": 50, "keys": ["joints"], "episodes": [1]}`))
	if some["joints"].Ticks != l.Samples() {
		t.Errorf("%d ticks of %d samples", some["joints"].Ticks, l.Samples())
	}
	for _, text := range causalConfigs {
		for key, s := range reportOf(text) {
			if s.FutureShare != 0 || s.NotArrivedShare != 0 && !s.LatencyDrawn {
				t.Errorf("%s, %s: %+v", text, key, s)
			}
		}
	}
	ahead := reportOf(`{"hz": 50, "keys": ["joints", "exposure", "mode"],
		"delta_timestamps": {"joints": [-0.1, 0.2], "exposure": [-0.2, -0.1]},
		"windows": {"mode": {"span": [-0.1, 0.3]}}}`)
	if d := ahead["joints"].MaxLookAhead; d < 0.2 || d > 0.211 {
		t.Errorf("a window of 0.2 s looks %g s ahead", d)
	}
	if d := ahead["mode"].MaxLookAhead; d < 0.29 || d > 0.301 {
		t.Errorf("a span of 0.3 s looks %g s ahead", d)
	}
	if s := ahead["exposure"]; s.FutureShare != 0 {
		t.Errorf("a window in the past: %+v", s)
	}
	rows := reportOf(`{"keys": ["cam", "joints"]}`)
	if s := rows["cam"]; s.Mode != "rows" || s.FutureShare != 0 || s.NotArrivedShare != 1 {
		t.Errorf("rows that are the samples: %+v", s)
	}
	mix, err := NewMix(bg, []Mix{{Dataset: ds, Name: "a"}, {Dataset: newRobot(2), Name: "b"}},
		configOf(t, `{"hz": 50, "keys": ["joints"], "align": "causal"}`))
	if err != nil {
		t.Fatal(err)
	}
	defer mix.Close()
	r, err := mix.Causality(bg, 0)
	if err != nil || len(r.Streams) != 2 || r.Episodes != 4 || r.Streams[1].Source != "b" ||
		r.Streams[0].Arrivals != "recorded" || r.Streams[1].Arrivals != "assumed" {
		t.Errorf("%+v, %v", r, err)
	}
	if notes := strings.Join(mix.Notes(), "\n"); !strings.Contains(notes,
		"joints are assumed to arrive with their timestamps") {
		t.Errorf("notes: %s", notes)
	}
}
