package quality

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// plant is a defect that is planted into an episode of a fakeSet. size grows with the defect.
type plant struct {
	name  string
	codes []string // the findings that report it
	sizes []float64
	apply func(s *fakeSet, e int, size float64)
}

// eachStream replaces the values of state and action.
func eachStream(s *fakeSet, e int, change func(v []float64) []float64) {
	for _, key := range []string{"observation.state", "action"} {
		s.values[key][e] = change(slices.Clone(s.values[key][e]))
	}
}

// clip limits the values of a channel.
func clip(v []float64, c int, low, high float64) []float64 {
	for i := c; i < len(v); i += 7 {
		v[i] = min(max(v[i], low), high)
	}
	return v
}

var plants = []plant{
	{
		"pause",
		[]string{"pause", "idle"},
		[]float64{0.6, 1, 2},
		func(s *fakeSet, e int, size float64) {
			rows := int(size * fakeRate)
			eachStream(s, e, func(v []float64) []float64 {
				at := len(v) / 14 * 7
				return slices.Concat(v[:at], slices.Repeat(v[at:at+7], rows), v[at:])
			})
		},
	},
	{
		"idle tail",
		[]string{"idle-tail", "idle"},
		[]float64{0.6, 1, 2},
		func(s *fakeSet, e int, size float64) {
			rows := int(size * fakeRate)
			eachStream(s, e, func(v []float64) []float64 {
				return slices.Concat(v, slices.Repeat(v[len(v)-7:], rows))
			})
		},
	},
	{
		"short",
		[]string{"duration"},
		[]float64{0.3, 0.5, 0.7},
		func(s *fakeSet, e int, size float64) {
			eachStream(
				s,
				e,
				func(v []float64) []float64 { return v[:int((1-size)*float64(len(v)/7))*7] },
			)
		},
	},
	{
		"noisy",
		[]string{"noisy", "jerky"},
		[]float64{2e-4, 4e-4, 8e-4},
		func(s *fakeSet, e int, size float64) {
			rng := rand.New(rand.NewPCG(uint64(e), 9))
			eachStream(s, e, func(v []float64) []float64 {
				for i := range v {
					v[i] += size * rng.NormFloat64()
				}
				return v
			})
		},
	},
	{
		"jerky",
		[]string{"jerky", "high-frequency"},
		[]float64{0.01, 0.02, 0.04},
		func(s *fakeSet, e int, size float64) {
			eachStream(s, e, func(v []float64) []float64 {
				for i := range v {
					if i%7 < 6 {
						v[i] += size * math.Sin(2*math.Pi*float64(i/7)*8/fakeRate)
					}
				}
				return v
			})
		},
	},
	{
		"out of sync",
		[]string{"out-of-sync"},
		[]float64{1, 3, 10},
		func(s *fakeSet, e int, size float64) {
			v := s.values["action"][e]
			head := slices.Repeat(v[:7], int(size))
			s.values["action"][e] = append(head, v[:len(v)-len(head)]...)
		},
	},
	{
		"never closes",
		[]string{"gripper-never-closes"},
		[]float64{1},
		func(s *fakeSet, e int, _ float64) {
			eachStream(s, e, func(v []float64) []float64 { return clip(v, 6, 0.95, 2) })
		},
	},
	{
		"jump",
		[]string{"discontinuity", "jump"},
		[]float64{0.1, 0.2, 0.4},
		func(s *fakeSet, e int, size float64) {
			eachStream(s, e, func(v []float64) []float64 {
				for i := len(v) / 14 * 7; i < len(v); i++ {
					v[i] += size * float64(i%7-3) / 3
				}
				return v
			})
		},
	},
	{
		"dropped rows",
		[]string{"discontinuity", "jump", "jerky"},
		[]float64{3, 10},
		func(s *fakeSet, e int, size float64) {
			eachStream(s, e, func(v []float64) []float64 {
				at := (len(v)/14 + 5) * 7
				return slices.Concat(v[:at], v[at+7*int(size):])
			})
		},
	},
	{
		"clipped",
		[]string{"clipped-actions", "saturated"},
		[]float64{0.4, 0.6},
		func(s *fakeSet, e int, size float64) {
			s.values["action"][e] = clip(slices.Clone(s.values["action"][e]), 1, size-1, 1-size)
		},
	},
	{
		"frozen state",
		[]string{"frozen-state"},
		[]float64{6, 12, 24},
		func(s *fakeSet, e int, size float64) {
			v := slices.Clone(s.values["observation.state"][e])
			at := len(v) / 14 * 7
			for k := range int(size) {
				copy(v[at+7*k:at+7*k+7], v[at-7:at])
			}
			s.values["observation.state"][e] = v
		},
	},
	{
		"quantised",
		[]string{"quantised-actions"},
		[]float64{0.05, 0.1},
		func(s *fakeSet, e int, size float64) {
			v := slices.Clone(s.values["action"][e])
			for i := range v {
				v[i] = math.Round(v[i]/size) * size
			}
			s.values["action"][e] = v
		},
	},
	{"dead joint", []string{"dead-channels"}, []float64{1}, func(s *fakeSet, e int, _ float64) {
		eachStream(s, e, func(v []float64) []float64 { return clip(v, 2, 0.3, 0.3) })
	}},
}

// TestPlantedDefects checks recall and false alarms: of every kind and size, 5 of 200 episodes are
// damaged. It prints the table with -v.
func TestPlantedDefects(t *testing.T) {
	clean := measureFake(t, newFakeSet(300), Options{})
	alarms := map[any][]string{}
	for _, f := range clean.Findings() {
		alarms[f.Where["episode"]] = append(alarms[f.Where["episode"]], f.Code)
	}
	if share := float64(len(alarms)) / 300; share > 0.02 {
		t.Errorf("false alarms on %.1f %% of the clean episodes: %v", 100*share, alarms)
	}
	const each = 5
	s := newFakeSet(200)
	type damage struct {
		plant *plant
		size  float64
	}
	damaged := map[int64]damage{}
	next := 0
	for i := range plants {
		for _, size := range plants[i].sizes {
			for range each {
				if next >= 200 {
					t.Fatal("too many defects")
				}
				plants[i].apply(s, next, size)
				damaged[int64(next)] = damage{&plants[i], size}
				next++
			}
		}
	}
	for e := range 200 { // clean episodes after the damaged ones
		state := fakeEpisode(1000 + e)
		action := append(slices.Clone(state[14:]), state[len(state)-14:]...)
		s.addEpisode(state, action)
	}
	table := measureFake(t, s, Options{})
	found := map[int64][]string{}
	for _, f := range table.Findings() {
		e := f.Where["episode"].(int64)
		found[e] = append(found[e], f.Code)
	}
	hits := map[string]int{}
	falseAlarms := 0
	for e := range table.Episodes {
		d, isDamaged := damaged[int64(e)]
		codes := found[int64(e)]
		if !isDamaged {
			if e >= 200 && len(codes) > 0 {
				falseAlarms++
			}
			continue
		}
		if slices.ContainsFunc(
			codes,
			func(c string) bool { return slices.Contains(d.plant.codes, c) },
		) {
			hits[fmt.Sprintf("%s %g", d.plant.name, d.size)]++
		}
	}
	var report strings.Builder
	total, recalled := 0, 0
	for i := range plants {
		for _, size := range plants[i].sizes {
			n := hits[fmt.Sprintf("%s %g", plants[i].name, size)]
			fmt.Fprintf(&report, "%-14s %-6g %d of %d\n", plants[i].name, size, n, each)
			total, recalled = total+each, recalled+n
		}
	}
	t.Logf("\n%sfalse alarms: %d of 200", report.String(), falseAlarms)
	if float64(recalled) < 0.95*float64(total) {
		t.Errorf("%d of %d defects were found\n%s", recalled, total, report.String())
	}
	if falseAlarms > 4 {
		t.Errorf("%d false alarms on 200 clean episodes", falseAlarms)
	}
}
