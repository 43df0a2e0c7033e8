package quality

import (
	"math"
	"slices"
	"testing"
)

// A finding about a part of an episode names it, also after the table was written and read.
func TestFindingsHaveTimes(t *testing.T) {
	s := newFakeSet(40)
	times := make([][]int64, 40)
	for e := range times {
		for i := range s.Len(e) {
			times[e] = append(times[e], 5e9+int64(i)*1e9/fakeRate)
		}
	}
	// plant applies a plant of planted_test.go to an episode.
	plantIn := func(name string, e int, size float64) {
		at := slices.IndexFunc(plants, func(p plant) bool { return p.name == name })
		plants[at].apply(s, e, size)
		for i := len(times[e]); i < s.Len(e); i++ {
			times[e] = append(times[e], 5e9+int64(i)*1e9/fakeRate)
		}
	}
	rows := func(e int) int { return s.Len(e) }
	half := func(e int) float64 { return float64(rows(e)/2) / fakeRate }
	pause, tail, jump, frozen := half(3), float64(rows(5)-1)/fakeRate, half(7), half(9)
	plantIn("pause", 3, 2)
	plantIn("idle tail", 5, 2)
	plantIn("jump", 7, 0.4)
	plantIn("frozen state", 9, 24)
	const gap = int64(1e9)
	for i := 50; i < len(times[11]); i++ {
		times[11][i] += gap
	}
	s.times[""] = times
	table := measureFake(t, s, Options{})
	path := t.TempDir() + "/quality.parquet"
	if err := table.Write(t.Context(), path); err != nil {
		t.Fatal(err)
	}
	table, err := Load(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	episodes := map[string]int64{
		"pause": 3, "idle-tail": 5, "discontinuity": 7, "frozen-state": 9, "gap": 11,
	}
	found := map[string][2]float64{}
	for _, f := range table.Findings() {
		from, hasStart := f.Where["from_s"].(float64)
		to, hasEnd := f.Where["to_s"].(float64)
		if hasStart != hasEnd {
			t.Errorf("%+v", f)
		}
		if e, ok := episodes[f.Code]; ok && hasStart && f.Where["episode"] == e {
			found[f.Code] = [2]float64{from, to}
		}
	}
	const near = 0.25 // the window of stillness, and the smooth end of a motion
	for code, want := range map[string][2]float64{
		"pause":         {pause, pause + 2},
		"idle-tail":     {tail, tail + 2},
		"discontinuity": {jump - 1.0/fakeRate, jump + 1.0/fakeRate},
		"frozen-state":  {frozen, frozen + 24.0/fakeRate},
		"gap":           {49.0 / fakeRate, 50.0/fakeRate + 1},
	} {
		got, ok := found[code]
		if !ok || math.Abs(got[0]-want[0]) > near || math.Abs(got[1]-want[1]) > near {
			t.Errorf("%s: %v, want %v", code, got, want)
		}
	}
	if d := found["gap"][0] - 49.0/fakeRate; math.Abs(d) > 2e-3 {
		t.Errorf("the gap begins %v s late", d)
	}
}

// The parts of frames are those of the run, in seconds of the camera's clock.
func TestFramesHaveTimes(t *testing.T) {
	m := newCameraMeter(40)
	for i := range 40 {
		f := frameFacts{row: i, time: 7e9 + int64(i)*1e8, mean: 90, spread: 20, changed: 0.1}
		switch {
		case i >= 10 && i < 14:
			f.mean, f.spread = 3, 1
		case i >= 20 && i < 28:
			f.changed = 0
		case i == 28:
			f.changed = 0.3
		case i == 33:
			f.isBad = true
		case i >= 38:
			f.isAbsent = true
		}
		m.facts = append(m.facts, f)
	}
	x := &recording{start: 6e9}
	parts := m.spans(x)
	for name, want := range map[string]span{
		"black_frames": {2, 2.4}, "frozen_frames": {3, 3.8}, "corrupted_frames": {4.3, 4.4},
		"missing_frames": {4.8, 5},
	} {
		got := parts[name]
		if !(math.Abs(got.from-want.from) < 1e-9 && math.Abs(got.to-want.to) < 1e-9) {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
	if parts["duplicated_frames"].isKnown() || parts["glitched_frames"].isKnown() {
		t.Errorf("%v", parts)
	}
}
