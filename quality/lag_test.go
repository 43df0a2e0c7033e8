package quality

import (
	"math"
	"math/rand/v2"
	"testing"
)

// Sums of several lags at once have the bits of one sum after the other.
func TestCrossProductsKeepTheOrder(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		n, channels := 1+rng.IntN(40), 1+rng.IntN(3)
		a, b := make([][]float64, channels), make([][]float64, channels)
		for c := range a {
			for range n {
				a[c], b[c] = append(a[c], rng.NormFloat64()), append(b[c], rng.NormFloat64())
			}
		}
		first := rng.IntN(2*n+8) - n - 4
		var got [lagsAtOnce]float64
		crossProducts(a, b, first, &got)
		for j := range got {
			k, want := first+j, 0.0
			for c := range a {
				for i := max(0, -k); i < min(n, n-k); i++ {
					want += a[c][i] * b[c][i+k]
				}
			}
			if math.Float64bits(got[j]) != math.Float64bits(want) {
				t.Fatalf("%d rows, lag %d: %v, want %v", n, k, got[j], want)
			}
		}
	}
}

// Rows are still as their definition states, also at the ends and in short episodes.
func TestStillRows(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for range 300 {
		n := 1 + rng.IntN(40)
		s := &signal{period: 0.01 + 0.09*rng.Float64(), columns: make([][]float64, 2)}
		grippers := make([][]float64, 1)
		for i := range n {
			s.seconds = append(s.seconds, s.period*float64(i))
			for c := range s.columns {
				s.columns[c] = append(s.columns[c], 0.002*rng.NormFloat64())
			}
			grippers[0] = append(grippers[0], 0.03*rng.NormFloat64())
		}
		w := min(max(1, int(math.Round(stillWindow/s.period))), max(1, n/2))
		for i, still := range stillRows(s, grippers) {
			from, to := max(0, i-w), min(n-1, i+w)
			want := math.Abs(grippers[0][to]-grippers[0][from]) <= gripperMoves
			for _, v := range s.columns {
				limit := stillSpeed * (s.period * float64(to-from))
				want = want && math.Abs(v[to]-v[from]) <= limit
			}
			if still != want {
				t.Fatalf("%d rows, window %d, row %d: still %v, want %v", n, w, i, still, want)
			}
		}
	}
}
