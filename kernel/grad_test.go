package kernel

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/goatnote-inc/robocache"
)

// TestGradientIsAdjoint checks <g, Fuse(v)> = <FuseGrad(g), v> in float64, for any g, v, times,
// policy and kind of batch. The equation holds because Fuse is linear in the values.
func TestGradientIsAdjoint(t *testing.T) {
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 17))
		B, S, T, D := 1+rng.IntN(3), rng.IntN(9), rng.IntN(12), 1+rng.IntN(4)
		fill := func(x *Tensor) {
			for o := 0; o < len(x.Data); o += 8 {
				binary.LittleEndian.PutUint64(x.Data[o:], math.Float64bits(rng.NormFloat64()))
			}
		}
		timestamps := make([]int64, 0, B*S)
		for range B {
			now := int64(0)
			for range S {
				now += int64(rng.IntN(20))
				timestamps = append(timestamps, now)
			}
		}
		targets := make([]int64, B*T)
		for i := range targets {
			targets[i] = int64(rng.IntN(20*(S+1))) - 10
		}
		times, aims := int64Tensor(timestamps...), int64Tensor(targets...)
		times.Shape, aims.Shape = []int{B, S}, []int{B, T}
		values := zeros(robocache.Float64, B, S, D)
		out := zeros(robocache.Float64, B, T, D)
		g := zeros(robocache.Float64, B, T, D)
		grad := zeros(robocache.Float64, B, S, D)
		fill(values)
		fill(g)
		fill(grad) // garbage, which must be overwritten
		s := Series{
			Values: *values,
			Times:  times,
			Rule: Rule{
				Mode:   Mode(rng.IntN(4)),
				Edge:   Edge(rng.IntN(3)),
				MaxGap: int64(rng.IntN(2) * 9),
			},
		}
		if rng.IntN(2) == 0 {
			l := make([]int64, B)
			for i := range l {
				l[i] = int64(rng.IntN(S + 1))
			}
			lengths := int64Tensor(l...)
			s.Lengths = &lengths
		}
		if err := (Reference{}).Run(&FuseOp{Series: []Series{s}, Targets: aims, Out: *out}); err !=
			nil {
			t.Fatal(err)
		}
		if err := (Reference{}).Run(&FuseGradOp{
			Series: s, Targets: aims, Out: *g,
			Grad: *grad,
		}); err != nil {
			t.Fatal(err)
		}
		x, y := dot(g, out), dot(grad, values)
		if math.Abs(x-y) > 1e-11*(1+math.Abs(x)) {
			t.Errorf("seed %d, %v %v: %v and %v", seed, s.Rule.Mode, s.Rule.Edge, x, y)
		}
	}
}

// dot returns the dot product of two float64 tensors.
func dot(a, b *Tensor) (sum float64) {
	for o := 0; o < len(a.Data); o += 8 {
		sum += a.float64At(o) * b.float64At(o)
	}
	return sum
}
