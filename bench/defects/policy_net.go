package defects

import (
	"math"
	"math/rand/v2"
)

const (
	hiddenUnits = 64
	batchRows   = 128
	learnRate   = 2e-3
)

// layer is a fully connected layer with the state of Adam.
type layer struct {
	in, out              int
	weights, grad        []float64 // out × (in + 1); the last of a row is the bias
	firstMean, firstVar  []float64
	input, output, delta []float64 // of the sample in hand
	isLinear             bool
}

func newLayer(in, out int, isLinear bool, rng *rand.Rand) *layer {
	n := out * (in + 1)
	l := &layer{
		in: in, out: out, isLinear: isLinear,
		weights: make([]float64, n), grad: make([]float64, n),
		firstMean: make([]float64, n), firstVar: make([]float64, n),
		output: make([]float64, out), delta: make([]float64, in),
	}
	for i := range l.weights {
		if i%(in+1) != in {
			l.weights[i] = rng.NormFloat64() / math.Sqrt(float64(in))
		}
	}
	return l
}

func (l *layer) forward(x []float64) []float64 {
	l.input = x
	for o := range l.out {
		w := l.weights[o*(l.in+1) : (o+1)*(l.in+1)]
		sum := w[l.in]
		for i, v := range x {
			sum += w[i] * v
		}
		if !l.isLinear {
			sum = math.Tanh(sum)
		}
		l.output[o] = sum
	}
	return l.output
}

// backward adds the gradient, and returns that of the input.
func (l *layer) backward(d []float64) []float64 {
	clear(l.delta)
	for o, g := range d {
		if !l.isLinear {
			g *= 1 - l.output[o]*l.output[o]
		}
		w, grad := l.weights[o*(l.in+1):(o+1)*(l.in+1)], l.grad[o*(l.in+1):(o+1)*(l.in+1)]
		for i, v := range l.input {
			grad[i] += g * v
			l.delta[i] += g * w[i]
		}
		grad[l.in] += g
	}
	return l.delta
}

// update applies Adam with the mean gradient of a batch.
func (l *layer) update(step int, rate float64) {
	a, b := 1-math.Pow(0.9, float64(step)), 1-math.Pow(0.999, float64(step))
	for i, g := range l.grad {
		g /= batchRows
		l.firstMean[i] = 0.9*l.firstMean[i] + 0.1*g
		l.firstVar[i] = 0.999*l.firstVar[i] + 0.001*g*g
		l.weights[i] -= rate * l.firstMean[i] / a / (math.Sqrt(l.firstVar[i]/b) + 1e-8)
		l.grad[i] = 0
	}
}

// clonePolicy is a policy of two hidden layers, trained by behaviour cloning.
type clonePolicy struct{ layers []*layer }

// inputOf returns the input of the network: the state, and the directions to the object.
func inputOf(s [demoState]float64) []float64 {
	return []float64{
		2*s[0] - 1, 2*s[1] - 1, 2*s[2] - 1, 2*s[3] - 1, 2*s[4] - 1,
		4 * (s[3] - s[0]), 4 * (s[4] - s[1]),
	}
}

// trainClone trains on the rows of demonstrations: the squared error of the move, in units of the
// largest move, and of the gripper command.
func trainClone(demos []demo, steps int, rng *rand.Rand) *clonePolicy {
	p := &clonePolicy{layers: []*layer{
		newLayer(7, hiddenUnits, false, rng), newLayer(hiddenUnits, hiddenUnits, false, rng),
		newLayer(hiddenUnits, demoAction, true, rng),
	}}
	var rows [][2]int
	for d := range demos {
		for i := range demos[d].states {
			rows = append(rows, [2]int{d, i})
		}
	}
	for step := 1; step <= steps; step++ {
		for range batchRows {
			r := rows[rng.IntN(len(rows))]
			s, a := demos[r[0]].states[r[1]], demos[r[0]].actions[r[1]]
			out := p.forward(inputOf(s))
			gradient := []float64{
				out[0] - (a[0]-s[0])/largestMove/2,
				out[1] - (a[1]-s[1])/largestMove/2,
				out[2] - a[2],
			}
			for k := len(p.layers) - 1; k >= 0; k-- {
				gradient = p.layers[k].backward(gradient)
			}
		}
		for _, l := range p.layers {
			l.update(step, learnRate*(1-float64(step)/float64(steps+1)))
		}
	}
	return p
}

func (p *clonePolicy) forward(x []float64) []float64 {
	for _, l := range p.layers {
		x = l.forward(x)
	}
	return x
}

// act returns the action for a state.
func (p *clonePolicy) act(s [demoState]float64) [demoAction]float64 {
	out := p.forward(inputOf(s))
	return [demoAction]float64{
		s[0] + 2*largestMove*out[0], s[1] + 2*largestMove*out[1], out[2],
	}
}

// successes returns in how many of n trials the policy solves the task.
func (p *clonePolicy) successes(n int, rng *rand.Rand) (solved int) {
	for range n {
		w := newTableWorld(rng)
		for range tableSteps {
			w.step(p.act(w.observe()))
			if w.isDone() {
				solved++
				break
			}
		}
	}
	return solved
}
