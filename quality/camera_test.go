package quality

import (
	"math"
	"math/rand/v2"
	"testing"
)

// movingRecording returns a recording of fakeEpisode, and what a camera sees that is late by some
// frames: the speed of the arm with noise.
func movingRecording(episode int, frames float64) *recording {
	state := fakeEpisode(episode)
	n := len(state) / 7
	s := &signal{seconds: make([]float64, n), period: 1.0 / fakeRate}
	for c := range 6 {
		column := make([]float64, n)
		for i := range column {
			column[i] = state[7*i+c] / 2
		}
		s.columns = append(s.columns, column)
	}
	for i := range s.seconds {
		s.seconds[i] = float64(i) / fakeRate
	}
	x := &recording{rows: n, motion: s, state: s}
	x.prepare()
	rng := rand.New(rand.NewPCG(uint64(episode), 3))
	var c cameraChange
	for i := 1; i < n; i++ {
		c.seconds = append(c.seconds, (float64(i)-0.5)/fakeRate)
		at := min(max(0, i-int(frames)), n-1)
		c.change = append(c.change, 3+4*x.speed[at]+0.3*rng.NormFloat64())
	}
	x.cameras = []cameraChange{c}
	return x
}

// A camera that is late by 1, 3 or 10 frames has that lag.
func TestCameraLagIsFound(t *testing.T) {
	for _, frames := range []float64{-3, 0, 1, 3, 10} {
		for e := range 10 {
			x := movingRecording(e, frames)
			lag := cameraLagMetric.measure(x) * fakeRate
			if !(math.Abs(lag-frames) < 0.4) {
				t.Errorf("episode %d: a lag of %.2f frames, want %g", e, lag, frames)
			}
			if drift := cameraDriftMetric.measure(x); math.Abs(drift) > 0.05 {
				t.Errorf("episode %d: a drift of %.3f s", e, drift)
			}
		}
	}
	x := movingRecording(1, 0)
	x.cameras = append(x.cameras, movingRecording(1, 3).cameras...)
	if skew := cameraSkewMetric.measure(x) * fakeRate; math.Abs(skew-3) > 0.4 {
		t.Errorf("a skew of %.2f frames, want 3", skew)
	}
}

// The spectral arc length of a bell is that of the reference, and more peaks make it longer.
func TestSpectralArcLength(t *testing.T) {
	bell := make([]float64, 200)
	for i := range bell {
		d := (float64(i)/100 - 1) / 0.2
		bell[i] = math.Exp(-5 * d * d)
	}
	// sparc(movement, fs=100., padlevel=2, fc=10.0, amp_th=0.05) of the paper's authors, in NumPy.
	if got, want := spectralArcLength(bell, 100), -1.4160297872456888; math.Abs(got-want) > 1e-9 {
		t.Errorf("%v, want %v", got, want)
	}
	for i := range bell {
		bell[i] *= 1 + math.Sin(float64(i)/2)
	}
	if got, want := spectralArcLength(bell, 100), -1.603787334083392; math.Abs(got-want) > 1e-9 {
		t.Errorf("of a speed with ripples: %v, want %v", got, want)
	}
}
