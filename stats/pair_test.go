package stats

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/goatnote-inc/robocache"
)

// S1, S5: columns counted side by side are, to the bit, what each is alone; one that is not finite everywhere is left to column.
func TestPair(t *testing.T) {
	rng := rand.New(rand.NewPCG(31, 32))
	draws := map[string]func(i int) float64{
		"normal": func(int) float64 { return 1000 + 0.01*rng.NormFloat64() }, "zeros": func(i int) float64 { return math.Copysign(0, float64(i%2)-0.5) },
		"wide": func(int) float64 { return float64(float32(math.Exp(20 * rng.NormFloat64()))) }, "huge": func(i int) float64 { return math.MaxFloat64 * float64(1-2*(i%2)) },
		"a NaN": func(i int) float64 { return []float64{float64(i), math.NaN()}[min(1, max(0, i-200))] }, "Inf first": func(i int) float64 { return []float64{math.Inf(1), 2}[min(1, i)] },
		"both Inf": func(i int) float64 { return math.Inf(1 - i%2) },
	}
	for nameA, drawA := range draws {
		for nameB, drawB := range draws {
			pair, alone := NewMoments(4), NewMoments(4)
			for _, n := range []int{1, 0, 300, 7} {
				a, b := make([]float64, n), make([]float64, n)
				finite := true
				for i := range a {
					a[i], b[i] = drawA(i), drawB(i)
					finite = finite && a[i]-a[i] == 0 && b[i]-b[i] == 0
				}
				if pair.pair(1, a, b) {
					if !finite {
						t.Errorf("%s, %s: %d values are taken as finite", nameA, nameB, n)
					}
				} else {
					pair.column(1, a, 1)
					pair.column(2, b, 1)
				}
				alone.column(1, a, 1)
				alone.column(2, b, 1)
			}
			bits := func(m *Moments) (out []uint64) {
				for _, v := range [][]float64{m.Min, m.Max, m.base, m.mean, m.m2} {
					for _, x := range v {
						out = append(out, math.Float64bits(x))
					}
				}
				return out
			}
			if !slices.Equal(bits(pair), bits(alone)) || !slices.Equal(pair.N, alone.N) || pair.NonFinite != alone.NonFinite {
				t.Errorf("%s beside %s: %v, alone %v", nameA, nameB, pair, alone)
			}
		}
	}
	for _, kind := range []robocache.DType{robocache.Float32, robocache.Float64, robocache.Int64} {
		el, _ := elementOf(kind)
		const rows, width = 41, 5
		var raw []byte
		for range rows * width {
			if kind == robocache.Float32 {
				raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(float32(rng.NormFloat64())))
			} else {
				raw = binary.LittleEndian.AppendUint64(raw, math.Float64bits(rng.NormFloat64()))
			}
		}
		for c := range width - 1 {
			a, b := make([]float64, rows), make([]float64, rows)
			if ok := el.both(a, b, raw, c, width); ok != (kind != robocache.Int64) {
				t.Fatalf("%v: %v", kind, ok)
			} else if ok && (!slices.Equal(a, el.finite(nil, raw, c, width)) || !slices.Equal(b, el.finite(nil, raw, c+1, width))) {
				t.Errorf("%v: other values of columns %d and %d", kind, c, c+1)
			}
		}
	}
}
