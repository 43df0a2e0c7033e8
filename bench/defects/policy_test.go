package defects

import (
	"math/rand/v2"
	"testing"
)

// The script solves the task, a demonstration that never grasps does not, and the gradient of the
// network is that of finite differences.
func TestDemos(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for fault := range demoFaults + 1 {
		d := makeDemo(rng, fault)
		last := d.states[len(d.states)-1]
		reached := (last[3]-goalAt[0])*(last[3]-goalAt[0])+(last[4]-goalAt[1])*(last[4]-goalAt[1]) < 0.01
		if want := fault == 0 || fault == 2 || fault == 3 ||
			fault == 5; reached != want &&
			fault != 2 {
			t.Errorf("fault %d: the object reaches the goal: %v", fault, reached)
		}
	}
	l := newLayer(3, 2, false, rng)
	x := []float64{0.3, -0.2, 0.7}
	loss := func() float64 { out := l.forward(x); return out[0]*out[0]/2 + out[1]*out[1]/2 }
	loss()
	l.backward([]float64{l.output[0], l.output[1]})
	for i := range l.weights {
		const h = 1e-6
		l.weights[i] += h
		upper := loss()
		l.weights[i] -= 2 * h
		lower := loss()
		l.weights[i] += h
		if g := (upper - lower) / (2 * h); g-l.grad[i] > 1e-6 || l.grad[i]-g > 1e-6 {
			t.Errorf("weight %d: gradient %v, want %v", i, l.grad[i], g)
		}
	}
}
