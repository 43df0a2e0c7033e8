package shard

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// TestBalance checks that each episode is in one shard and that no shard weighs more than 4/3 of
// the lower bound, plus the bound of LPT. Even weights stay in order.
func TestBalance(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	ordered := 0
	for range 3000 {
		weights := make([]int64, 1+rng.IntN(60))
		var total, most int64
		for i := range weights {
			weights[i] = int64(rng.IntN(100))
			if rng.IntN(10) == 0 {
				weights[i] *= 20
			}
			total, most = total+weights[i], max(most, weights[i])
		}
		n := 1 + rng.IntN(len(weights))
		out := balanceShards(weights, n)
		if len(out) != n {
			t.Fatalf("%d shards of %d", len(out), n)
		}
		seen := map[int]bool{}
		var heaviest int64
		flat := []int{}
		for _, s := range out {
			var w int64
			for _, e := range s {
				if seen[e] {
					t.Fatal("an episode is in two shards")
				}
				seen[e], w = true, w+weights[e]
			}
			heaviest = max(heaviest, w)
			flat = append(flat, s...)
		}
		if slices.IsSorted(flat) {
			ordered++
		}
		// The best is at least the mean, the heaviest weight, and the sum of the two lightest of
		// the n+1 heaviest.
		sorted := slices.Clone(weights)
		slices.Sort(sorted)
		best := max((total+int64(n)-1)/int64(n), most)
		if k := len(sorted) - n - 1; k >= 0 {
			best = max(best, sorted[k]+sorted[k+1])
		}
		if len(seen) != len(weights) || float64(heaviest) > 1.334*float64(best)+float64(most)/3 {
			t.Fatalf("%v in %d: %d, best %d", weights, n, heaviest, best)
		}
	}
	if ordered < 1000 {
		t.Errorf("only %d are in order", ordered)
	}
	if out := balanceShards([]int64{5, 5, 5, 5, 5, 5}, 3); !slices.EqualFunc(out,
		[][]int{{0, 1}, {2, 3}, {4, 5}}, slices.Equal) {
		t.Errorf("%v", out)
	}
	if out := balanceShards([]int64{1, 1, 1, 90, 1, 1, 1, 90}, 2); !slices.Contains(out[0], 3) &&
		!slices.Contains(out[1], 3) {
		t.Errorf("%v", out)
	}
}
