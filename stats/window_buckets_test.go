package stats

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// TestBucketsHoldTheWantedRanks compares the values at the ranks of quantiles with those of sorted
// values, for distributions of all kinds.
func TestBucketsHoldTheWantedRanks(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for name, draw := range map[string]func(i int) float64{
		"normal":   func(int) float64 { return rng.NormFloat64() },
		"narrow":   func(int) float64 { return 1000 + rng.NormFloat64()*1e-9 },
		"constant": func(int) float64 { return 3 },
		"zeros":    func(i int) float64 { return math.Copysign(0, float64(i%2)-0.5) },
		"outliers": func(i int) float64 { return rng.NormFloat64() * math.Pow(10, float64(i%97)) },
		"extreme": func(i int) float64 {
			return math.Copysign(math.MaxFloat64, float64(i%2)-0.5) * rng.Float64()
		},
		"tiny":   func(int) float64 { return rng.Float64() * 1e-320 },
		"sorted": func(i int) float64 { return float64(i) },
		"gaps": func(i int) float64 {
			return []float64{math.NaN(), math.Inf(1), rng.Float64(), math.Inf(-1)}[i%4]
		},
		"none": func(int) float64 { return math.NaN() },
	} {
		for _, n := range []int{1, 2, 50, 20000} {
			values := make([]float64, n)
			var finite []float64
			b := &bucketCounter{}
			for i := range values {
				if values[i] = draw(i); values[i]-values[i] == 0 {
					finite = append(finite, values[i])
					if i%7 == 0 {
						b.sample = append(b.sample, values[i])
					}
				}
			}
			b.setRange()
			b.countBuckets(values[:n/3])
			b.countBuckets(values[n/3:])
			if !b.needBuckets(int64(len(finite)), int64(n)) {
				t.Fatalf("%s of %d: the values are left to the search", name, n)
			}
			b.gatherValues(values[:n/2])
			b.gatherValues(values[n/2:])
			for _, near := range b.near {
				slices.Sort(near.values)
			}
			slices.Sort(finite)
			for _, r := range wantedRanks(int64(len(finite))) {
				if len(finite) > 0 && b.valueAtRank(r) != finite[r] {
					t.Errorf("%s of %d: rank %d is %g, want %g", name, n, r, b.valueAtRank(r),
						finite[r])
				}
			}
			if b := (&bucketCounter{}); name == "constant" && n == 20000 {
				b.setRange()
				b.countBuckets(values)
				if b.needBuckets(int64(n), int64(n)-1) {
					t.Error("a full bucket is gathered beyond the limit")
				}
			}
		}
	}
}
