package arrivals

import (
	"math"
	"math/rand/v2"
	"reflect"
	"testing"
)

func number(v float64) *float64 { return &v }

// TestSelect compares each part of a rule with values computed by hand (arrivals.C4).
func TestSelect(t *testing.T) {
	list := []Arrival{
		{ID: "0", Time: 0, Version: number(1)},
		{ID: "1", Time: 2e9, Version: number(1), Fails: true},
		{ID: "2", Time: 4e9, Version: number(2)},
		{ID: "3", Time: 8e9},
		{ID: "4", Time: 10e9, Version: number(4)},
		{ID: "5", Time: 10e9, Version: number(9), Fails: true},
	}
	for _, x := range []struct {
		name    string
		rule    Rule
		kept    []int
		weights []float64
	}{
		{"all that pass", Rule{}, []int{0, 2, 3, 4}, nil},
		{"the newest two", Rule{Capacity: 2}, []int{3, 4}, nil},
		{"capacity beyond all", Rule{Capacity: 9}, []int{0, 2, 3, 4}, nil},
		{
			"two versions back, without those that have none",
			Rule{Lag: number(2)},
			[]int{2, 4},
			nil,
		},
		{"half-life of one episode", Rule{HalfLife: 1}, []int{0, 2, 3, 4}, []float64{
			0.125, 0.25, 0.5, 1,
		}},
		{"half-life of two seconds", Rule{HalfLife: 2, Unit: Seconds}, []int{0, 2, 3, 4}, []float64{
			1. / 32, 0.125, 0.5, 1,
		}},
		{
			"half-life of two versions",
			Rule{HalfLife: 2, Unit: Versions, Capacity: 3},
			[]int{2, 3, 4},
			[]float64{0.5, smallestWeight, 1},
		},
		{"episodes within the capacity count", Rule{HalfLife: 1, Capacity: 2}, []int{3, 4}, []float64{
			0.5, 1,
		}},
	} {
		kept, weights := x.rule.Select(list)
		if !reflect.DeepEqual(kept, x.kept) || !reflect.DeepEqual(weights, x.weights) {
			t.Errorf("%s: %v %v, want %v %v", x.name, kept, weights, x.kept, x.weights)
		}
	}
	if kept, weights := (&Rule{HalfLife: 1}).Select(nil); len(kept)+len(weights) > 0 {
		t.Errorf("of no arrivals: %v %v", kept, weights)
	}
}

// TestSelectIgnoresLaterArrivals checks that a prefix alone decides (arrivals.C4).
func TestSelectIgnoresLaterArrivals(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var list []Arrival
	for range 60 {
		a := Arrival{Time: int64(rng.IntN(1e9)), Fails: rng.IntN(4) == 0}
		if rng.IntN(5) > 0 {
			a.Version = number(float64(rng.IntN(9)))
		}
		list = append(list, a)
	}
	rule := Rule{HalfLife: 3, Unit: Seconds, Capacity: 10, Lag: number(4)}
	for n := range list {
		kept, weights := rule.Select(list[:n])
		again, others := rule.Select(append([]Arrival(nil), list[:n]...))
		if !reflect.DeepEqual(kept, again) || !reflect.DeepEqual(weights, others) {
			t.Fatalf("%d arrivals: %v and %v", n, kept, again)
		}
		for k, i := range kept {
			if i >= n || list[i].Fails || !(weights[k] > 0 && weights[k] <= 1) ||
				math.IsNaN(weights[k]) {
				t.Fatalf("%d arrivals: %v %v", n, kept, weights)
			}
		}
	}
}
