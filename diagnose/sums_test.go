package diagnose

import (
	"math"
	"math/rand/v2"
	"testing"
)

// The sums over a range equal those computed point by point, for every lag and every valid range.
func TestSums(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	make1 := func(n int, holes bool) *motion {
		m := &motion{values: make([]float64, n), valid: make([]bool, n)}
		from, to := rng.IntN(n/4), n-rng.IntN(n/4)
		for i := from; i < to; i++ {
			m.values[i], m.valid[i] = rng.NormFloat64(), !holes || rng.IntN(9) > 0
			if !m.valid[i] {
				m.values[i] = 0
			}
		}
		return m
	}
	for round := range 200 {
		n := 40 + rng.IntN(400)
		a, b := make1(n, round%3 == 1), make1(n, round%3 == 2)
		p, q := a.runningSums(), b.runningSums()
		if p.isContiguous != (round%3 != 1) && n > 100 ||
			q.isContiguous != (round%3 != 2) && n > 100 {
			t.Fatal("what is whole is not told")
		}
		if !p.isContiguous || !q.isContiguous {
			continue
		}
		from, to := rng.IntN(n/2), n-rng.IntN(n/2)
		for k := -30; k <= 30; k++ {
			lo, hi := max(from, -k), min(to, n-k)
			got,
				want := p.sumsBetween(q, a, b, max(lo, p.from, q.from-k), min(hi, p.to, q.to-k), k),
				sumPoints(a, b, lo, hi, k)
			for i, d := range []float64{
				got.n - want.n,
				got.a - want.a,
				got.b - want.b,
				got.aa - want.aa,
				got.bb - want.bb,
				got.ab - want.ab,
			} {
				if !(math.Abs(d) < 1e-9) {
					t.Fatalf("round %d, lag %d, sum %d: %+v, want %+v", round, k, i, got, want)
				}
			}
		}
	}
	none := &motion{values: make([]float64, 50), valid: make([]bool, 50)}
	if p := none.runningSums(); !p.isContiguous || p.from < p.to {
		t.Errorf("%+v", p)
	}
}
