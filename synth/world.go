package synth

import (
	"math"
	"math/rand/v2"
)

// Lengths are in meters, angles in radians. Explicit conversions prevent products from being fused
// into sums, because the bytes must not depend on GOAMD64 (synth.S1).
const (
	link       = 1.0
	gain       = 4.0  // gain of the controller, in 1/s
	fastest    = 2.5  // in rad/s
	near       = 0.05 // in rad: the goal is reached
	rest       = 200  // number of steps for which the arm stays at the goal
	step       = 1_000_000
	discRadius = 0.17
)

// state is the world at one moment.
type state struct {
	q, v  [2]float64            // joint angles and their speeds
	goal  [2]float64            // joint angles that reach the disc of the task
	discs [discCount][2]float64 // positions of the discs
	wave  float64               // ripple of the force sensor
	task  int                   // number of the disc that is the goal
}

// discCount is the number of discs, one of each colour.
const discCount = len(colours)

// command returns the joint speeds that the controller requests, which are the action. They depend
// only on state and goal (synth.S2).
func (s *state) command() [2]float64 {
	var c [2]float64
	for j := range c {
		c[j] = max(-fastest, min(fastest, float64(gain*(s.goal[j]-s.q[j]))))
	}
	return c
}

// wristForce returns the measurement of a sensor in the wrist: the pull towards the goal, and a ripple
// at 40 Hz that slow rows alias.
func (s *state) wristForce() [3]float64 {
	c := s.command()
	return [3]float64{
		float64(0.8*c[0]) + float64(0.3*s.wave),
		float64(0.8*c[1]) - float64(0.3*s.wave),
		9.81 + float64(0.1*s.wave),
	}
}

// armPoints returns the positions of the arm's elbow and tip.
func armPoints(q [2]float64) (elbow, tip [2]float64) {
	elbow = [2]float64{float64(link * math.Cos(q[0])), float64(link * math.Sin(q[0]))}
	tip = [2]float64{
		elbow[0] + float64(link*math.Cos(q[0]+q[1])),
		elbow[1] + float64(link*math.Sin(q[0]+q[1])),
	}
	return elbow, tip
}

// anglesFor returns the joint angles that move the tip to p, with the elbow bent to the left.
func anglesFor(p [2]float64) [2]float64 {
	r2 := float64(p[0]*p[0]) + float64(p[1]*p[1])
	q2 := math.Acos(max(-1, min(1, (r2-2)/2)))
	return [2]float64{math.Atan2(p[1], p[0]) - math.Atan2(math.Sin(q2), 1+math.Cos(q2)), q2}
}

// simulate returns the world of one episode in steps of 1 ms, until one step beyond the end.
func simulate(rng *rand.Rand, colour int, nanos int64) []state {
	s := state{task: colour}
	place := func(i int) {
		// Keep a distance, so that no disc hides another.
		for range 100 {
			r, a := 0.75+float64(1.05*rng.Float64()), math.Pi*(0.12+float64(0.76*rng.Float64()))
			p := [2]float64{float64(r * math.Cos(a)), float64(r * math.Sin(a))}
			free := true
			for k, d := range s.discs {
				if k != i && math.Hypot(d[0]-p[0], d[1]-p[1]) < 2.7*discRadius {
					free = false
				}
			}
			if s.discs[i] = p; free {
				return
			}
		}
	}
	for i := range s.discs {
		s.discs[i] = [2]float64{9, 9}
	}
	for i := range s.discs {
		place(i)
	}
	s.q = [2]float64{math.Pi * (0.1 + float64(0.5*rng.Float64())), 0.4 + float64(1.6*rng.Float64())}
	phase := 2 * math.Pi * rng.Float64()
	// A slow disturbance that the controller does not know adds states away from the direct path.
	push := [2]float64{0.5 * rng.Float64(), 0.5 * rng.Float64()}
	turn := [2]float64{1 + float64(3*rng.Float64()), 1 + float64(3*rng.Float64())}
	n := int(nanos/step) + 2
	out := make([]state, n)
	held := 0
	s.goal = anglesFor(s.discs[colour])
	for i := range out {
		t := float64(i) * 1e-3
		if math.Abs(s.goal[0]-s.q[0]) < near && math.Abs(s.goal[1]-s.q[1]) < near {
			if held++; held > rest {
				held = 0
				place(colour)
				s.goal = anglesFor(s.discs[colour])
			}
		}
		s.wave = math.Sin(float64(2*math.Pi*40*t) + phase)
		c := s.command()
		for j := range s.v {
			want := c[j] + float64(push[j]*math.Sin(float64(turn[j]*t)+phase))
			s.v[j] += float64(0.02 * (want - s.v[j])) // the motors follow within 50 ms
		}
		out[i] = s
		for j := range s.q {
			s.q[j] += float64(1e-3 * s.v[j])
		}
	}
	return out
}

// worldAt returns the world at a time. Continuous values are interpolated between steps; others are
// those of the step before.
func worldAt(world []state, t int64) state {
	t = max(t, 0)
	i := min(int(t/step), len(world)-2)
	s, n := world[i], &world[i+1]
	w := min(1, float64(t-int64(i)*step)/step)
	for j := range s.q {
		s.q[j] += float64(w * (n.q[j] - s.q[j]))
		s.v[j] += float64(w * (n.v[j] - s.v[j]))
	}
	s.wave += float64(w * (n.wave - s.wave))
	return s
}
