package kernel

import (
	"math"
	"math/rand/v2"
	"testing"
)

// TestRemainder checks that remainder equals IEEE's remainder to the bit, including multiples and
// halves of the period and their neighbors.
func TestRemainder(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 5))
	for range 200000 {
		p := []float64{
			2 * math.Pi,
			1,
			360,
			math.Pi,
			0.1,
			1e-310,
			5e-324,
			1e308,
			r.ExpFloat64(),
		}[r.IntN(9)]
		x := p * 4 * (r.Float64() - 0.5)
		switch r.IntN(4) {
		case 0:
			x = float64(r.IntN(9)-4) * p / 2
		case 1:
			x = math.Nextafter(float64(r.IntN(9)-4)*p/2, 9e99*(r.Float64()-0.5))
		}
		got, want := remainder(x, p), math.Remainder(x, p)
		if math.Float64bits(got) != math.Float64bits(want) {
			t.Fatalf("remainder(%v, %v) = %v, want %v", x, p, got, want)
		}
	}
	for _, x := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
		if got := remainder(x, 1); got == got {
			t.Errorf("remainder(%v, 1) = %v", x, got)
		}
	}
}
