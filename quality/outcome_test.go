package quality

import (
	"math"
	"testing"

	"github.com/goatnote-inc/robocache"
)

// What the dataset states about the result of an episode is in the table.
func TestOutcome(t *testing.T) {
	s := newFakeSet(10)
	plain := measureFake(t, s, Options{})
	for _, key := range []string{"next.success", "next.reward", "reward_model.score"} {
		s.info.Features = append(s.info.Features, robocache.Feature{
			Key: key, Kind: robocache.KindNumeric, DType: robocache.Float64, Shape: []int{1},
		})
		for e := range 10 {
			s.values[key] = append(s.values[key], make([]float64, s.Len(e)))
		}
	}
	nan := math.NaN()
	s.values["next.success"][3][50] = 1 // also if it is false again at the end
	copy(s.values["next.reward"][4], []float64{1, nan, 2.5, -0.25})
	last := s.Len(4) - 1
	s.values["next.reward"][4][last-1], s.values["next.reward"][4][last] = 7, nan
	for i := range s.values["next.reward"][5] {
		s.values["next.reward"][5][i] = nan
	}
	table := measureFake(t, s, Options{})
	for e := range 10 {
		want := map[string]float64{"success": 0, "reward_sum": 0, "reward_last": 0}
		switch e {
		case 3:
			want["success"] = 1
		case 4:
			want["reward_sum"], want["reward_last"] = 10.25, 7
		case 5:
			want["reward_sum"], want["reward_last"] = nan, nan
		}
		for name, w := range want {
			if v := table.Columns[name][e]; v != w && (v == v || w == w) {
				t.Errorf("episode %d: %s %v, want %v", e, name, v, w)
			}
		}
	}
	// They are no fault of an episode, and other columns do not change.
	if codes := codesOf(table, 3); len(codes) > len(codesOf(plain, 3)) {
		t.Error(codes)
	}
	for e := range 10 {
		a, b := table.Columns["outlier"][e], plain.Columns["outlier"][e]
		if a != b || !math.IsNaN(plain.Columns["success"][e]) {
			t.Errorf("episode %d: outlier %v, without outcomes %v", e, a, b)
		}
	}
}
