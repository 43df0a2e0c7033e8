package align

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/goatnote-inc/robocache"
)

// recorded is a fake whose streams in arrivals have log times.
type recorded struct {
	*fake
	arrivals map[string][]int64
}

func (r *recorded) Capabilities() *robocache.Capabilities {
	return &robocache.Capabilities{
		Clocks: func(key string) []string {
			if r.arrivals[key] == nil {
				return nil
			}
			return []string{"header", logClock}
		},
		TimesBy: func(_ context.Context, _ int, key, clock string) ([]int64, error) {
			if clock == logClock {
				return slices.Clone(r.arrivals[key]), nil
			}
			return slices.Clone(r.clocks[key]), nil
		},
	}
}

// newRecorded returns a recording with jitter: joints arrive 3 to 9 ms after their timestamps, and
// the camera 40 to 80 ms, some frames out of order.
func newRecorded() *recorded {
	r := &recorded{newFake(), map[string][]int64{}}
	draw := rand.New(rand.NewSource(2))
	for key, lag := range map[string]int64{"joints": 3e6, "camera": 40e6} {
		for k := range r.clocks[key] {
			r.clocks[key][k] += draw.Int63n(1e6)
			late := lag + draw.Int63n(lag)
			r.arrivals[key] = append(r.arrivals[key], r.clocks[key][k]+late)
		}
	}
	slices.Sort(r.arrivals["joints"])
	return r
}

// reportOf returns the part of a report about a stream.
func reportOf(
	t *testing.T, ds robocache.Dataset, text, key string, opt ReportOptions,
) (StreamCausality, *CausalityReport) {
	t.Helper()
	cfg := mustConfig(t, text)
	r, err := cfg.ReportCausality(t.Context(), ds, opt)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	for _, s := range r.Streams {
		if s.Key == key {
			return s, r
		}
	}
	t.Fatalf("%s: no %s in %+v", text, key, r.Streams)
	return StreamCausality{}, nil
}

// TestReportCausality compares the report with the rows of Episode and with an independent search.
func TestReportCausality(t *testing.T) {
	ds := newRecorded()
	for _, text := range []string{
		`{"hz": 50, "keys": ["joints", "camera"]}`,
		`{"hz": 50, "keys": ["joints", "camera"], "extent": "union"}`,
		`{"hz": 50, "keys": ["joints", "camera"], "extent": "union", "edge": "mask"}`,
		`{"hz": 7, "keys": ["joints", "camera"], "modes": {"camera": "next", "joints": "previous"}}`,
		`{"hz": 50, "keys": ["joints", "camera"], "causal": true, "max_age": 0.1}`,
		`{"hz": 50, "keys": ["joints", "camera"], "causal": true, "arrival_delay": 0.02,
			"modes": {"joints": "linear"}, "delay": {"joints": 0.03}}`,
		`{"hz": 50, "keys": ["joints", "camera"], "targets": ["joints"], "causal": true,
			"offset": {"joints": 0.01}}`,
	} {
		cfg := mustConfig(t, text)
		out, err := Episode(t.Context(), ds, 0, cfg)
		if err != nil {
			t.Fatal(err)
		}
		for _, key := range []string{"joints", "camera"} {
			got, report := reportOf(t, ds, text, key, ReportOptions{})
			stream, shift, _ := out.Stream(key), int64(cfg.ArrivalDelay.For(key)), 0
			offset, delay := int64(cfg.Offset[key]), int64(cfg.Delay.For(key))
			var future, late, masked float64
			var aheads []int64
			for i, tick := range out.Times {
				if stream.Rows == nil || stream.Rows[i] != 20 { // a report reads no frames
					masked += float64(1 - stream.Valid[i])
				}
				used := []int{}
				if stream.Rows != nil && stream.Rows[i] >= 0 {
					used = append(used, int(stream.Rows[i]))
				} else if stream.Rows == nil && stream.Mode == Previous {
					used = append(used, max(newestUntil(ds.clocks[key], tick-offset), 0))
					if cfg.IsCausal(key) {
						used[0] = max(newestUntil(ds.arrivals[key], tick-shift), 0)
					}
				} else if stream.Rows == nil && (stream.Valid[i] == 1 || stream.Edge != EdgeMask) {
					last := len(ds.clocks[key]) - 1
					k := newestUntil(ds.clocks[key], tick-delay-offset)
					used = append(used, max(k, 0), min(k+1, last))
					if k >= 0 && ds.clocks[key][k] == tick-delay-offset {
						used = used[:1]
					}
					if cfg.IsCausal(key) && ds.arrivals[key][used[len(used)-1]]+shift > tick {
						used = used[:1]
					}
				}
				if len(used) == 0 {
					continue
				}
				newest := slices.Max(used)
				if d := ds.clocks[key][newest] + offset - tick; d > 0 {
					future++
					aheads = append(aheads, d)
				}
				if slices.ContainsFunc(used, func(k int) bool {
					return ds.arrivals[key][k]+shift > tick
				}) {
					late++
				}
			}
			n := float64(len(out.Times))
			want := []float64{future / n, late / n, masked / n}
			have := []float64{got.FutureShare, got.NotArrivedShare, got.MaskedShare}
			if !slices.Equal(want, have) || got.Ticks != int64(n) || got.Arrivals != "recorded" {
				t.Errorf("%s, %s: got %+v, want shares %v of %v ticks", text, key, got, want, n)
			}
			if cfg.IsCausal(key) && (got.FutureShare != 0 || got.NotArrivedShare != 0) {
				t.Errorf("%s, %s: %+v", text, key, got)
			}
			if len(aheads) > 0 {
				slices.Sort(aheads)
				median := seconds(aheads[(len(aheads)-1)/2])
				if got.MaxLookAhead != seconds(aheads[len(aheads)-1]) ||
					got.MedianLookAhead < median || got.MedianLookAhead > 1.02*median+1e-9 {
					t.Errorf("%s, %s: %+v, want median %g of %v", text, key, got, median, aheads)
				}
			}
			hasFinding := slices.ContainsFunc(report.Findings, func(f robocache.Finding) bool {
				return f.Code == "look-ahead" && f.Severity == robocache.SeverityInfo
			})
			if cfg.Causal && hasFinding {
				t.Errorf("%s: %+v", text, report.Findings)
			}
		}
	}
}

// newestUntil returns the index of the last sorted time at or before t; -1: none.
func newestUntil(times []int64, t int64) int {
	k, _ := slices.BinarySearch(times, t+1)
	return k - 1
}

// TestNeededDelay checks that the delay of a report keeps 99.9 % of the rows at any phase of the
// timeline, and that among given ticks a shorter one does not.
func TestNeededDelay(t *testing.T) {
	ds := newRecorded()
	ds.arrivals["camera"] = nil
	for _, hz := range []string{"7", "50", "61.7", "100", "240"} {
		free := `{"hz": ` + hz + `, "keys": ["joints"]}`
		needed, _ := reportOf(t, ds, free, "joints", ReportOptions{})
		if needed.NeededDelay < 0.009 || needed.NeededDelay > 0.03 {
			t.Errorf("hz %s: %+v", hz, needed)
		}
		for _, more := range []float64{0, 0.0003, 0.0021, 0.004} {
			text := fmt.Sprintf(`{"hz": %s, "keys": ["joints"], "causal": true,
				"modes": {"joints": "linear"}, "delay": %g}`, hz, needed.NeededDelay+more)
			got, report := reportOf(t, ds, text, "joints", ReportOptions{})
			if got.MaskedShare > 0.001 || len(report.Findings) != 1 {
				t.Errorf("%s: %+v %v", text, got, report.Findings)
			}
		}
		short := fmt.Sprintf(`{"hz": %s, "keys": ["joints"], "causal": true,
			"modes": {"joints": "linear"}, "delay": 0.002}`, hz)
		_, report := reportOf(t, ds, short, "joints", ReportOptions{})
		if f := report.Findings[0]; f.Code != "delay-too-short" ||
			!strings.Contains(f.Hint, `"delay":{"joints":0.01`) {
			t.Errorf("%s: %+v", short, report.Findings)
		}
	}
	// Rows as ticks have one phase. 30 Hz rows in the time of joints.
	ticks := func(context.Context, int) ([]int64, error) {
		return Uniform(100e6, 990e6, robocache.Rate{Num: 30, Den: 1}), nil
	}
	opt := ReportOptions{Ticks: ticks}
	needed, _ := reportOf(t, ds, `{"keys": ["joints"]}`, "joints", opt)
	for share, want := range map[float64]bool{1: false, 0.97: true} {
		text := fmt.Sprintf(`{"keys": ["joints"], "causal": true, "modes": {"joints": "linear"},
			"delay": %.9f}`, share*needed.NeededDelay)
		got, _ := reportOf(t, ds, text, "joints", opt)
		if (got.MaskedShare > 0.001) != want {
			t.Errorf("%s: %+v", text, got)
		}
	}
}

// TestReportOptions checks the streams, the time budget, windows and episodes that cannot be
// aligned.
func TestReportOptions(t *testing.T) {
	ds := newRecorded()
	delete(ds.arrivals, "joints")
	ds.info.Features = append(ds.info.Features, robocache.Feature{
		Key: "action", Kind: robocache.KindNumeric, DType: robocache.Float32, Shape: []int{1},
	})
	_, report := reportOf(t, ds, `{}`, "joints", ReportOptions{})
	for _, s := range report.Streams {
		if (s.Key == "action") != s.Label || (s.Arrivals == "recorded") != (s.Key == "camera") {
			t.Errorf("%+v", s)
		}
		if s.Key == "action" && (s.Mode != "rows" || s.FutureShare != 0) {
			t.Errorf("the rows are the ticks: %+v", s)
		}
	}
	note := report.Findings[len(report.Findings)-1]
	if note.Code != "arrival-times" || !strings.Contains(note.Message, "joints, force") ||
		strings.Contains(note.Message, "action") || !strings.Contains(note.Hint, "arrival_delay") {
		t.Errorf("%+v", note)
	}
	ahead := func(_ string, ticks []int64) (targets, nows []int64) {
		for _, tick := range ticks {
			targets = append(targets, tick+50e6)
		}
		return targets, targets
	}
	plain, _ := reportOf(t, ds, `{"hz": 50, "keys": ["joints"]}`, "joints", ReportOptions{})
	window, _ := reportOf(t, ds, `{"hz": 50, "keys": ["joints"]}`, "joints",
		ReportOptions{NewestRows: ahead})
	// The last five ticks see the last sample.
	if d := window.MedianLookAhead - plain.MedianLookAhead; d < 0.045 || d > 0.055 {
		t.Errorf("a window that ends 50 ms later looks %g s further ahead", d)
	}
	ds.info.Episodes = 3
	for budget, want := range map[time.Duration]int{0: 3, time.Nanosecond: 1, time.Hour: 3} {
		_, r := reportOf(t, ds, `{"hz": 50}`, "joints", ReportOptions{Budget: budget})
		if r.Episodes != want || r.TotalEpisodes != 3 {
			t.Errorf("budget %v: %d of %d episodes", budget, r.Episodes, r.TotalEpisodes)
		}
	}
	ds.clocks["force"][3] = 0
	bad := mustConfig(t, `{"hz": 50, "keys": ["joints", "force"]}`)
	r, err := bad.ReportCausality(t.Context(), ds, ReportOptions{})
	if err != nil || r.Findings[0].Code != "episode-not-aligned" ||
		r.Findings[0].Where["episode"] != int64(0) {
		t.Errorf("%+v, %v", r, err)
	}
	// A drawn latency is stated, and the recorded arrivals count.
	drawn, _ := reportOf(t, ds, `{"hz": 50, "keys": ["camera"], "causal": true,
		"latency": {"camera": {"measured": true}}}`, "camera", ReportOptions{})
	if !drawn.LatencyDrawn || drawn.NotArrivedShare != 0 {
		t.Errorf("%+v", drawn)
	}
	cfg := mustConfig(t, `{"hz": 50, "keys": ["jonts"]}`)
	if _, err := cfg.ReportCausality(t.Context(), ds, ReportOptions{}); err == nil {
		t.Error("an unknown stream is accepted")
	}
}

// TestPresetCausal checks the preset in JSON, and the hint that names it.
func TestPresetCausal(t *testing.T) {
	var c struct{ Align *Config }
	if err := json.Unmarshal([]byte(`{"align": "causal"}`), &c); err != nil || !c.Align.Causal {
		t.Errorf("%+v, %v", c.Align, err)
	}
	for text, want := range map[string]string{
		`{"align": "casual"}`:         `expected an object, or "causal", found "casual"`,
		`{"align": {"causl": true}}`:  "causal",
		`{"align": {"causal": "on"}}`: "align.causal",
	} {
		err := json.Unmarshal([]byte(text), &c)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
	cfg := mustConfig(t, `{"hz": 50}`)
	f, err := cfg.LookAhead(t.Context(), newFake(), nil)
	if err != nil || !strings.Contains(f.Hint, "Align: {Causal: true}") {
		t.Errorf("%+v, %v", f, err)
	}
}

// TestCausalOptionsOfLabels checks that a causal option that would be ignored is an error.
func TestCausalOptionsOfLabels(t *testing.T) {
	for _, text := range []string{
		`{"causal": true, "delay": {"action": 0.1}}`,
		`{"causal": true, "targets": ["goal"], "max_age": {"goal": 1}}`,
		`{"causal": true, "latency": {"task": {"uniform": [0.1, 0.2]}}}`,
	} {
		cfg := mustConfig(t, text)
		if err := cfg.CheckCausal(); err == nil || !strings.Contains(err.Error(), "label") {
			t.Errorf("%s: %v", text, err)
		}
	}
	cfg := mustConfig(t, `{"causal": true, "delay": {"*": 0.1}, "targets": ["goal"]}`)
	if err := cfg.CheckCausal(); err != nil {
		t.Error(err)
	}
}

// TestCausalExtent checks that an unselected stream that gives the extent begins with the first
// arrival, like a selected one.
func TestCausalExtent(t *testing.T) {
	ds := newRecorded()
	for _, keys := range []string{`["joints"]`, `["joints", "camera"]`} {
		cfg := mustConfig(t, `{"hz": 50, "causal": true, "extent": "camera", "keys": `+keys+`}`)
		out, err := Episode(t.Context(), ds, 0, cfg)
		if err != nil {
			t.Fatal(err)
		}
		if want := slices.Min(ds.arrivals["camera"]); out.Times[0] != want {
			t.Errorf("%s: begins at %d, want %d", keys, out.Times[0], want)
		}
	}
}

// TestCausalRhythm checks that a stream which always arrives late has gaps only where samples are
// missing.
func TestCausalRhythm(t *testing.T) {
	ds := newRecorded()
	var stamps, arrivals []int64
	for k, s := range ds.clocks["camera"] {
		if k < 30 || k > 45 { // a gap of half a second
			stamps, arrivals = append(stamps, s), append(arrivals, s+250e6)
		}
	}
	ds.clocks["camera"], ds.arrivals["camera"] = stamps, arrivals
	cfg := mustConfig(t, `{"hz": 50, "causal": true, "keys": ["camera"]}`)
	v, err := View(t.Context(), ds, cfg, ViewOptions{Rhythm: true})
	if err != nil {
		t.Fatal(err)
	}
	mask := make([]byte, v.Len(0))
	rows := make([]robocache.Row, v.Len(0))
	for i := range rows {
		rows[i].Index = i
	}
	if err := v.Gather(t.Context(), "camera"+ValidSuffix, rows, mask); err != nil {
		t.Fatal(err)
	}
	times, _ := v.Times(t.Context(), 0, "")
	for i, tick := range times {
		newest := newestUntil(arrivals, tick)
		held := tick - arrivals[newest] // a gap is longer than three periods of 33 ms
		isWrong := held < 97e6 && mask[i] == 0 || held > 103e6 && mask[i] == 1
		if isWrong && newest != 20 { // frame 20 is missing
			t.Fatalf("row %d: valid %d, %d ns after the last arrival", i, mask[i], held)
		}
	}
	if !slices.Contains(mask, 0) {
		t.Error("the gap is not masked")
	}
}
