package kernel

import (
	"math"
	"testing"
)

// TestPhilox checks the known answers of Random123 (kat_vectors, philox4x32 10).
func TestPhilox(t *testing.T) {
	const all = 0xffffffff
	for _, c := range []struct {
		counter [4]uint32
		key     [2]uint32
		want    [4]uint32
	}{
		{[4]uint32{}, [2]uint32{}, [4]uint32{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
		{
			[4]uint32{all, all, all, all},
			[2]uint32{all, all},
			[4]uint32{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd},
		},
		{
			[4]uint32{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
			[2]uint32{0xa4093822, 0x299f31d0},
			[4]uint32{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1},
		},
	} {
		if got := Philox(c.counter, c.key); got != c.want {
			t.Errorf("%x %x: %x, want %x", c.counter, c.key, got, c.want)
		}
	}
}

// TestDraws checks the distributions of kernel.K16, and that other samples, rows, epochs, ops and
// seeds give other draws.
func TestDraws(t *testing.T) {
	a := &Augment{Seed: 5, Noise: 1, Dropout: .3, ScaleLo: .5, ScaleHi: 1.5}
	key := a.Key()
	const n = 200_000
	var g [4]float32
	var sum, square float64
	dropped := 0
	for i := range n / 4 {
		a.Normals(g[:], key, int64(i%100), i/100, 0)
		for _, x := range g {
			sum += float64(x)
			square += float64(x) * float64(x)
		}
		if a.Drops(key, int64(i), 3) {
			dropped++
		}
		if s := a.Scale(key, int64(i)); s < .5 || s > 1.5 {
			t.Fatalf("scale %v", s)
		}
	}
	// The bounds are five standard deviations of the estimates.
	if mean := sum / n; math.Abs(mean) > 5/math.Sqrt(n) {
		t.Errorf("mean %v", mean)
	}
	if v := square / n; math.Abs(v-1) > 5*math.Sqrt(2./n) {
		t.Errorf("variance %v", v)
	}
	if p := float64(dropped) / (n / 4); math.Abs(p-.3) > 5*math.Sqrt(.21/(n/4)) {
		t.Errorf("dropped %v", p)
	}
	// Splitting the columns into several calls gives the same draws.
	whole, pieces := make([]float32, 23), make([]float32, 23)
	a.Normals(whole, key, 9, 4, 0)
	for from := 0; from < 23; from += 3 {
		a.Normals(pieces[from:min(from+3, 23)], key, 9, 4, from)
	}
	for i := range whole {
		if whole[i] != pieces[i] {
			t.Errorf("column %d: %v, in pieces %v", i, whole[i], pieces[i])
		}
	}
	seen := map[float32]string{}
	for name, b := range map[string]Augment{
		"seed":       {Seed: 6},
		"seed high":  {Seed: 5 | 1<<40},
		"epoch":      {Seed: 5, Epoch: 1},
		"epoch high": {Seed: 5, Epoch: 1 << 40},
		"op":         {Seed: 5, Op: 1},
		"itself":     {Seed: 5},
	} {
		var x [1]float32
		b.Normals(x[:], b.Key(), 1, 2, 3)
		if other, ok := seen[x[0]]; ok {
			t.Errorf("%s draws as %s", name, other)
		}
		seen[x[0]] = name
	}
}
