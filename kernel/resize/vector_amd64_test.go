//go:build !purego

package resize

import (
	"bytes"
	"math/rand/v2"
	"testing"
)

// TestVectorsEqualPlainCode compares both kinds of code for random sizes, parts and layouts.
func TestVectorsEqualPlainCode(t *testing.T) {
	if !hasVectors {
		t.Skip("the processor has no AVX2")
	}
	defer func() { hasVectors = true }()
	rng := rand.New(rand.NewPCG(1, 2))
	side := func() int { return 1 + rng.IntN(90) }
	vectors := map[Filter]int{}
	for range 4000 {
		k := scalerKey{Filters[rng.IntN(len(Filters))], side(), side(), side(), side()}
		src := make([]byte, k.fromHeight*k.fromWidth)
		for i := range src {
			src[i] = byte(rng.Uint32())
			if rng.IntN(2) == 0 { // extremes, which are clipped after lanczos
				src[i] = byte(rng.IntN(2) * 255)
			}
		}
		part := Plane{Left: rng.IntN(k.toWidth), Top: rng.IntN(k.toHeight), Step: 1 + 2*rng.IntN(2)}
		part.Width = rng.IntN(k.toWidth-part.Left) + 1
		part.Height = rng.IntN(k.toHeight-part.Top) + 1
		part.Row = part.Width*part.Step + rng.IntN(5)
		var got [2][]byte
		for i := range got {
			hasVectors = i == 0
			s := newScaler(k)
			if s.X.loads != nil {
				vectors[k.filter]++
			}
			part.Pix = bytes.Repeat([]byte{7}, part.Height*part.Row)
			s.Plane(part, src, k.fromWidth)
			got[i] = part.Pix
		}
		if !bytes.Equal(got[0], got[1]) {
			t.Fatalf("%+v, part %+v: vector instructions differ from plain code", k,
				[]int{part.Left, part.Top, part.Width, part.Height, part.Step})
		}
	}
	for _, f := range Filters {
		if f != Nearest && vectors[f] < 100 {
			t.Errorf("%s: vector instructions ran for %d sizes", f, vectors[f])
		}
	}
}
