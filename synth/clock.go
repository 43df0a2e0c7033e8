package synth

import (
	"math/rand/v2"

	"github.com/goatnote-inc/robocache"
)

// clock is when the samples of one stream were recorded: a grid, less what the recorder lost, plus jitter. Stamps increase.
func clock(rng *rand.Rand, rate robocache.Rate, end, jitter int64, gaps float64) []int64 {
	var out []int64
	lost := 0
	for k := int64(0); ; k++ {
		t := rate.Nanos(k)
		if t >= end {
			return out
		}
		// Bursts of a quarter of a second on average, so often that the share comes to gaps. The first sample is never lost.
		burst := max(1, rate.Float()/4)
		if gaps > 0 && lost == 0 && k > 0 && rng.Float64() < gaps/(1-gaps)/burst {
			lost = 1 + int(rng.ExpFloat64()*burst)
		}
		if lost > 0 {
			lost--
			continue
		}
		t = shaken(rng, t, jitter, rate)
		if n := len(out); n > 0 {
			t = max(t, out[n-1]+1000)
		}
		out = append(out, t)
	}
}

// shaken moves a stamp by at most jitter and at most 0.45 of a period, not before 0.
func shaken(rng *rand.Rand, t, jitter int64, rate robocache.Rate) int64 {
	if jitter = min(jitter, rate.Nanos(1)*45/100); jitter > 0 {
		t += rng.Int64N(2*jitter+1) - jitter
	}
	return max(t, 0)
}
