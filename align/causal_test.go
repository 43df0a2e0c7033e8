package align

import (
	"encoding/json"
	"math/rand"
	"slices"
	"strings"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/kernel"
)

// TestFillCausalOfArrivedSamples compares causal plans with plans over the samples that had arrived,
// which are selected one by one: for every mode and edge, with equal timestamps, stalls and arrivals
// out of order.
func TestFillCausalOfArrivedSamples(t *testing.T) {
	r := rand.New(rand.NewSource(1))
	modes := []Mode{Previous, Nearest, Next, Linear, Slerp, Angle, Mean}
	edges := []Edge{EdgeClamp, EdgeMask, EdgeExtrapolate}
	compared, masked := 0, 0
	for range 3000 {
		n := r.Intn(150)
		stamps, arrivals := make([]int64, n), make([]int64, n)
		at, disorder := int64(1000), []int64{1, 1, 300}[r.Intn(3)]
		for k := range stamps {
			at += []int64{0, 10, 10, 11, 200}[r.Intn(5)]
			stamps[k] = at
			arrivals[k] = at + 5 + r.Int63n(disorder)
		}
		if disorder == 1 {
			slices.Sort(arrivals)
		}
		o := Options{
			Mode: modes[r.Intn(len(modes))], Edge: edges[r.Intn(len(edges))],
			MaxGap: []int64{0, 50}[r.Intn(2)], Hold: r.Intn(8) == 0,
			Causality: Causality{
				IsCausal: true, Delay: r.Int63n(60), MaxAge: []int64{0, 120}[r.Intn(2)],
				ArrivalShift: r.Int63n(20),
			},
		}
		if o.Mode == Mean {
			o.Before, o.After = 30, 30
			slices.Sort(arrivals) // a mean needs samples in order
		}
		targets := make([]int64, 1+r.Intn(20))
		for i := range targets {
			targets[i] = 900 + r.Int63n(at-800)
		}
		p := kernel.MakePlan(o.Mode, len(targets))
		if err := o.FillCausal(p, stamps, NewArrivals(arrivals), targets, targets); err != nil {
			t.Fatal(err)
		}
		for i, target := range targets {
			want := planOfArrived(t, &o, stamps, arrivals, target)
			got := []any{p.Kind[i], p.Left[i], p.Right[i], p.Weight[i], p.Valid[i]}
			if !slices.Equal(got, want) {
				t.Fatalf("%+v\nstamps %v\narrivals %v\ntarget %d\ngot  %v\nwant %v",
					o, stamps, arrivals, target, got, want)
			}
			compared++
			masked += int(1 - p.Valid[i])
		}
	}
	if masked == 0 || masked == compared {
		t.Errorf("%d of %d rows are masked", masked, compared)
	}
}

// planOfArrived decides one row the slow way: it copies the samples that have arrived.
func planOfArrived(
	t *testing.T, o *Options, stamps, arrivals []int64, target int64,
) []any {
	var have []int64
	var index []int32
	for k, a := range arrivals {
		if a+o.ArrivalShift <= target {
			have, index = append(have, stamps[k]), append(index, int32(k))
		}
	}
	at := target - o.Delay
	rule := kernel.Rule{
		Mode: o.Mode, Edge: o.Edge, MaxGap: o.MaxGap, Before: o.Before, After: o.After,
	}
	holds := o.Hold || o.Mode == Previous || o.Mode == Nearest
	if o.Hold {
		rule.Mode = Previous
	}
	if holds {
		rule.Edge, rule.MaxGap = EdgeClamp, 0
	}
	p, err := kernel.NewPlan(have, []int64{at}, rule)
	if err != nil {
		t.Fatal(err)
	}
	if holds {
		p.Valid[0] = 0
		if p.Kind[0] == kernel.Copy {
			s := have[p.Left[0]]
			inGap := o.MaxGap > 0 && (at-s > o.MaxGap || s-at > o.MaxGap)
			isOld := o.MaxAge > 0 && target-s > o.MaxAge
			before := s > at && o.Mode != Nearest
			if o.Hold || !inGap && !isOld && !before {
				p.Valid[0] = 1
			} else if o.Edge == EdgeMask {
				p.Kind[0] = kernel.Zero
			}
		}
	}
	left, right := p.Left[0], p.Right[0]
	switch p.Kind[0] {
	case kernel.Zero:
		left, right = 0, 0
	case kernel.Window:
		left, right = index[left], index[right-1]+1
	default:
		left, right = index[left], index[right]
	}
	return []any{p.Kind[0], left, right, p.Weight[0], p.Valid[0]}
}

// TestFillCausalNeverLooksAhead checks that no row reads a sample that arrives after its tick.
func TestFillCausalNeverLooksAhead(t *testing.T) {
	stamps := []int64{0, 100, 200, 300}
	arrivals := []int64{30, 320, 230, 330} // the second sample is late
	o := Options{Mode: Previous, Causality: Causality{IsCausal: true}}
	p := kernel.MakePlan(o.Mode, 5)
	ticks := []int64{20, 229, 230, 325, 400}
	if err := o.FillCausal(p, stamps, NewArrivals(arrivals), ticks, ticks); err != nil {
		t.Fatal(err)
	}
	if want := []int32{0, 0, 2, 2, 3}; !slices.Equal(p.Left, want) {
		t.Errorf("samples %v, want %v", p.Left, want)
	}
	if want := []uint8{0, 1, 1, 1, 1}; !slices.Equal(p.Valid, want) {
		t.Errorf("valid %v, want %v", p.Valid, want)
	}
}

// TestCausalOptions checks the JSON of causal options and the errors of contradictions.
func TestCausalOptions(t *testing.T) {
	c := mustConfig(t, `{"hz": 10, "causal": true, "delay": {"q": "40ms"}, "max_age": 0.2,
		"stale": "error", "targets": ["goal"], "arrival_delay": {"*": 0.01},
		"latency": {"a": {"measured": true}, "b": {"uniform": [0.01, 0.02]}}}`)
	b, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	again := mustConfig(t, string(b))
	if c.Delay.For("q") != 4e7 || again.Latency["b"].Draw.Uniform[1] != 2e7 ||
		!again.Latency["a"].Draw.Measured || again.MaxAge.For("x") != 2e8 {
		t.Errorf("%s", b)
	}
	if c.IsCausal("goal") || c.IsCausal("action") || !c.IsCausal("observation.state") {
		t.Error("labels may look ahead, observations may not")
	}
	for text, want := range map[string]string{
		`{"hz": 10, "max_age": 1}`:                                "causal: true",
		`{"hz": 10, "causal": true, "stale": "drop"}`:             "mask",
		`{"hz": 10, "causal": true, "delay": -1}`:                 "0 or more",
		`{"hz": 10, "latency": {"joints": {"measured": true}}}`:   "causal: true",
		`{"hz": 10, "causal": true, "modes": {"joints": "next"}}`: "delay",
		`{"hz": 10, "causal": true, "modes": {"joints": "sum"}}`:  "mode sum",
	} {
		cfg := mustConfig(t, text)
		if _, err := Episode(t.Context(), newFake(), 0, cfg); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
	if err := json.Unmarshal(
		[]byte(`{"latency": {"a": {"measured": false}}}`),
		&Config{},
	); err == nil {
		t.Error("a distribution without a kind is accepted")
	}
}

// TestEpisodeCausal checks that a dataset without arrival times holds each stream from its
// timestamp on, that labels are interpolated, and that arrival_delay moves the samples.
func TestEpisodeCausal(t *testing.T) {
	ds := newFake()
	cfg := mustConfig(t, `{"hz": 50, "causal": true, "keys": ["joints", "camera"],
		"arrival_delay": {"camera": 0.05}, "max_age": {"camera": 0.1}}`)
	out, err := Episode(t.Context(), ds, 0, cfg)
	if err != nil {
		t.Fatal(err)
	}
	camera := out.Stream("camera")
	for i, tick := range out.Times {
		want := -1
		for k, s := range ds.clocks["camera"] {
			if s+50e6 <= tick {
				want = k
			}
		}
		if int(camera.Rows[i]) != want {
			t.Fatalf("tick %d: row %d, want %d", tick, camera.Rows[i], want)
		}
	}
	if m := out.Stream("joints").Mode; m != Previous {
		t.Errorf("joints are aligned by %v", m)
	}
	var finding *robocache.Finding
	if finding, err = cfg.LookAhead(t.Context(), ds, nil); err != nil || finding != nil {
		t.Errorf("look-ahead %v, %v", finding, err)
	}
}
