package align

import (
	"errors"
	"math"
	"math/big"
	"math/rand/v2"
	"testing"

	"github.com/goatnote-inc/robocache"
)

// TestUniform covers align.A10 with rounding by big.Rat.
func TestUniform(t *testing.T) {
	rates := []robocache.Rate{
		{Num: 30, Den: 1},
		{Num: 30000, Den: 1001},
		{Num: 2997, Den: 100},
		{Num: 1000, Den: 1},
		{Num: 333, Den: 1},
		{Num: 1, Den: 7},
		{Num: 3_000_000_000, Den: 1},
		{Num: 1_000_000_007, Den: 1_000_003},
	}
	for _, r := range rates {
		for _, k := range []int64{0, 1, 2, 3, 29, 30, 180_000, 1_234_567_891} {
			// floor(k·1e9·den/num + 1/2)
			x := new(big.Rat).SetFrac(new(big.Int).Mul(big.NewInt(k*1),
				new(big.Int).Mul(big.NewInt(1e9), big.NewInt(r.Den))), big.NewInt(r.Num))
			x.Add(x, big.NewRat(1, 2))
			want := new(big.Int).Div(x.Num(), x.Denom())
			if !want.IsInt64() {
				continue
			}
			if got := nanos(r, k); got != want.Int64() {
				t.Errorf("rate %v row %d: %d, want %v", r, k, got, want)
			}
		}
	}
	for seed := range uint64(2000) {
		rng := rand.New(rand.NewPCG(seed, 2))
		r := rates[rng.IntN(len(rates)-2)]
		t0 := rng.Int64N(1e18) - 5e17
		t1 := t0 + rng.Int64N(2e9) - 1000
		if rng.IntN(2) == 0 {
			// on the last row, or slightly before it
			t1 = t0 + nanos(r, int64(rng.IntN(50))) - int64(rng.IntN(2))
		}
		g := Uniform(t0, t1, r)
		if int64(len(g)) != UniformCount(t0, t1, r) {
			t.Fatalf("%v: %d rows, counted %d", r, len(g), UniformCount(t0, t1, r))
		}
		if t1 < t0 {
			if len(g) != 0 {
				t.Fatalf("%d rows before the start", len(g))
			}
			continue
		}
		if len(g) == 0 || g[0] != t0 || g[len(g)-1] > t1 || t0+nanos(r, int64(len(g))) <= t1 {
			t.Fatalf("rate %v over %d ns: %d rows", r, t1-t0, len(g))
		}
	}
	if g := Uniform(0, 1e9, robocache.Rate{}); len(g) != 0 {
		t.Errorf("a zero rate gave %d rows", len(g))
	}
	// An hour at an odd rate ends without drift.
	if n := UniformCount(0, 3600e9, robocache.Rate{Num: 30000, Den: 1001}); n != 107893 {
		t.Errorf("an hour at 29.97 Hz: %d rows", n)
	}
	if n := UniformCount(math.MinInt64, math.MaxInt64, robocache.Rate{Num: 1 << 60, Den: 1}); n !=
		math.MaxInt64 {
		t.Errorf("a hopeless grid counts %d rows", n)
	}
}

func TestExtent(t *testing.T) {
	names := []string{"camera", "joints", "late", "none"}
	streams := [][]int64{{0, 100}, {-10, 90}, {50, 200}, {}}
	for _, c := range []struct {
		kind   string
		n      int
		t0, t1 int64
		empty  bool
	}{
		{"intersection", 3, 50, 90, false},
		{"", 2, 0, 90, false},
		{"union", 4, -10, 200, false},
		{"late", 4, 50, 200, false},
		{"intersection", 4, 0, 0, true},
		{"none", 4, 0, 0, true},
		{"intersection", 0, 0, 0, true},
		{"union", 0, 0, 0, true},
	} {
		t0, t1, err := Extent(c.kind, names[:c.n], streams[:c.n])
		if err != nil || (t1 < t0) != c.empty || !c.empty && (t0 != c.t0 || t1 != c.t1) {
			t.Errorf("%q of %d: [%d, %d] %v", c.kind, c.n, t0, t1, err)
		}
	}
	if _, _, err := Extent("jionts", names, streams); !errors.Is(err, robocache.ErrMisuse) ||
		!contains(err, "did you mean joints") {
		t.Errorf("%v", err)
	}
}

// TestOnGrid covers align.A13: at hz = rate every row is aligned to itself in every mode, although
// float32 moved most timestamps.
func TestOnGrid(t *testing.T) {
	for _, r := range []robocache.Rate{
		{Num: 30, Den: 1},
		{Num: 2997, Den: 100},
		{Num: 50, Den: 1},
		{Num: 15, Den: 1},
	} {
		n := 20_000
		timestamps := make([]int64, n)
		moved := 0
		for k := range timestamps {
			timestamps[k] = int64(math.RoundToEven(float64(float32(float64(k)/r.Float())) * 1e9))
			if timestamps[k] != nanos(r, int64(k)) {
				moved++
			}
		}
		if moved == 0 {
			t.Fatal("float32 moved nothing: the test is void")
		}
		got := OnGrid(timestamps, r)
		for k := range got {
			if got[k] != nanos(r, int64(k)) {
				t.Fatalf("rate %v row %d: %d, want %d", r, k, got[k], nanos(r, int64(k)))
			}
		}
		for _, change := range []int64{5_000_000, -4000} {
			other := append([]int64(nil), timestamps...)
			other[1] += change
			if again := OnGrid(other, r); again[1] != other[1] || again[7] != other[7] {
				t.Errorf("rate %v: timestamps off the grid were changed", r)
			}
		}
	}
	for _, s := range [][]int64{{}, {0, 0}, {0, 33_333_333, 33_333_333}} {
		if got := OnGrid(s, robocache.Rate{Num: 30, Den: 1}); len(got) != len(s) || len(s) > 0 &&
			got[len(s)-1] != s[len(s)-1] {
			t.Errorf("%v became %v", s, got)
		}
	}
}
