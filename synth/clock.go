package synth

import (
	"math"
	"math/rand/v2"

	"github.com/goatnote-inc/robocache"
)

// sampleClock returns the times at which the samples of one stream were recorded: a grid without
// the lost samples, plus jitter. Timestamps increase.
func sampleClock(rng *rand.Rand, rate robocache.Rate, end, jitter int64, gaps float64) []int64 {
	var out []int64
	lost := 0
	for k := int64(0); ; k++ {
		t := rate.Nanos(k)
		if t >= end {
			return out
		}
		// Bursts last a quarter of a second on average. Their rate is chosen so that the share of
		// lost samples is gaps. The first sample is never lost.
		burst := max(1, rate.Float()/4)
		if gaps > 0 && lost == 0 && k > 0 && rng.Float64() < gaps/(1-gaps)/burst {
			lost = 1 + int(rng.ExpFloat64()*burst)
		}
		if lost > 0 {
			lost--
			continue
		}
		t = jitterTime(rng, t, jitter, rate)
		if n := len(out); n > 0 {
			t = max(t, out[n-1]+1000)
		}
		out = append(out, t)
	}
}

// jitterTime moves a timestamp by at most jitter and at most 0.45 of a period, but not before 0.
func jitterTime(rng *rand.Rand, t, jitter int64, rate robocache.Rate) int64 {
	if jitter = min(jitter, rate.Nanos(1)*45/100); jitter > 0 {
		t += rng.Int64N(2*jitter+1) - jitter
	}
	return max(t, 0)
}

// streams numbers the streams that can have their own clocks. Each number has its own random draws,
// so that streams do not affect each other. Cameras start at cameraStream.
var streams = map[string]int{"joints": 1, "force": 2, "cloud": 3, "text": 4}

const cameraStream = 8

// Truth describes how the clock of a stream is distorted. A tool that measures clocks should find
// these values.
type Truth struct {
	Rate robocache.Rate `json:"rate"`
	// timestamp = round(t·(1 + SkewPPM/1e6)) + Offset, where t is the time of the sample
	Offset int64    `json:"offset_ns"`
	Skew   float64  `json:"skew_ppm"`
	Late   int64    `json:"late_ns"`    // delay of the stream's start
	Drop   [2]int64 `json:"dropout_ns"` // start and end of a silent interval
}

// truthOf returns the truth of a stream in an episode.
func (o *Options) truthOf(episode, stream int, rate robocache.Rate) Truth {
	t := Truth{Rate: rate}
	// Offset and skew belong to the clock and are the same in every episode.
	own := o.newRand(0, drawSkew+stream)
	if o.Offset > 0 {
		t.Offset = own.Int64N(2*int64(o.Offset)+1) - int64(o.Offset)
	}
	if o.Skew > 0 {
		t.Skew = float64(o.Skew * (2*own.Float64() - 1))
	}
	rng := o.newRand(episode, drawDeform+stream)
	if o.Late > 0 {
		t.Late = rng.Int64N(int64(o.Late) + 1)
	}
	if o.Dropout > 0 {
		free := max(0, o.endOf(episode)-t.Late-int64(o.Dropout))
		t.Drop[0] = t.Late + rng.Int64N(free+1)
		t.Drop[1] = t.Drop[0] + int64(o.Dropout)
	}
	return t
}

// stampSamples returns the times of the samples that were recorded, and their timestamps.
func (t *Truth) stampSamples(taken []int64) (kept, timestamps []int64) {
	for _, x := range taken {
		if x < t.Late || x >= t.Drop[0] && x < t.Drop[1] {
			continue
		}
		kept = append(kept, x)
		timestamps = append(
			timestamps,
			x+int64(math.Round(float64(float64(x)*t.Skew*1e-6)))+t.Offset,
		)
	}
	return kept, timestamps
}
