package quality

import "math"

// cameraLagMetric is the time by which the images follow the motion of the state: the lag at which
// the change of luma between frames and the speed correlate best, the mean of all cameras with a
// correlation of at least 0.5. It is NaN if frames are not measured, or only sampled. Known
// failure: other things that move, and exposure that changes.
var cameraLagMetric = metric{
	Metric: Metric{
		Name: "camera_lag", Group: GroupClocks, Unit: "s",
		Summary:  "The time by which the images follow the motion of the robot.",
		Source:   "cross-correlation",
		Inferred: true,
	},
	measure: func(x *recording) float64 {
		sum, count := 0.0, 0
		for i := range x.cameras {
			if lag, correlation := x.lagOfCamera(&x.cameras[i], 0, 1); correlation >= clearLag {
				sum, count = sum+lag, count+1
			}
		}
		if count == 0 {
			return math.NaN()
		}
		return sum / float64(count)
	},
	rule: &rule{code: "camera-out-of-sync", spread: 4.5, floor: 0.015, rows: 0.6, hint: hintShift},
}

// cameraLagCorrelationMetric is the correlation at the best lag; the camera with the smallest
// counts.
var cameraLagCorrelationMetric = metric{
	Metric: Metric{
		Name: "camera_lag_correlation", Group: GroupClocks, Worse: -1,
		Summary: "The correlation of the images' change with the speed of the robot.",
		Source:  "cross-correlation",
	},
	measure: func(x *recording) float64 {
		least := math.NaN()
		for i := range x.cameras {
			if _, c := x.lagOfCamera(&x.cameras[i], 0, 1); !(least <= c) {
				least = c
			}
		}
		return least
	},
}

// cameraDriftMetric is the difference between the lags of the second and the first half of the
// episode; the camera with the largest counts. It is NaN if a correlation is below 0.5.
var cameraDriftMetric = metric{
	Metric: Metric{
		Name: "camera_drift", Group: GroupClocks, Unit: "s",
		Summary:  "The change of the lag of the images from the first half to the second.",
		Source:   "cross-correlation",
		Inferred: true,
	},
	measure: func(x *recording) float64 {
		most := math.NaN()
		for i := range x.cameras {
			before, r := x.lagOfCamera(&x.cameras[i], 0, 0.5)
			after, q := x.lagOfCamera(&x.cameras[i], 0.5, 1)
			if r >= clearLag && q >= clearLag && !(math.Abs(most) >= math.Abs(after-before)) {
				most = after - before
			}
		}
		return most
	},
	rule: &rule{code: "camera-drift", spread: 6, floor: 0.05, rows: 1.5, hint: hintClock},
}

// cameraSkewMetric is the largest lag between two cameras, by the change of their images. It is NaN
// without two cameras whose changes have a correlation of at least 0.5.
var cameraSkewMetric = metric{
	Metric: Metric{
		Name: "camera_skew", Group: GroupClocks, Unit: "s",
		Summary:  "The largest lag between the images of two cameras.",
		Source:   "cross-correlation",
		Inferred: true,
	},
	measure: func(x *recording) float64 {
		most := math.NaN()
		for i := 1; i < len(x.cameras); i++ {
			a, b := &x.cameras[0], &x.cameras[i]
			if len(a.change) < 3*lagRows || len(b.change) < 3*lagRows {
				continue
			}
			period := medianStep(a.seconds)
			other := interpolate(b.seconds, b.change, a.seconds)
			if period <= 0 {
				continue
			}
			lag, r := bestLag([][]float64{centred(a.change)}, [][]float64{centred(other)},
				lagLimit(period, len(a.change)))
			if r >= clearLag && !(math.Abs(most) >= math.Abs(lag*period)) {
				most = lag * period
			}
		}
		return most
	},
	rule: &rule{code: "cameras-out-of-sync", spread: 4.5, floor: 0.015, rows: 0.6, hint: hintShift},
}

// lagOfCamera returns the lag of a camera in seconds and the correlation, over a part of the
// episode from share from to share to.
func (x *recording) lagOfCamera(c *cameraChange, from, to float64) (lag, correlation float64) {
	n := len(c.change)
	a, z := int(from*float64(n)), int(to*float64(n))
	if x.motion == nil || z-a < 3*lagRows {
		return math.NaN(), math.NaN()
	}
	period := medianStep(c.seconds)
	if period <= 0 || x.isBroken(c) {
		return math.NaN(), math.NaN()
	}
	middles := make([]float64, x.motion.rows())
	for i, s := range x.motion.seconds {
		middles[i] = s - x.motion.period/2 // speed[i] is the speed before row i
	}
	speed := interpolate(middles, x.speed, c.seconds[a:z])
	lag, correlation = bestLag([][]float64{centred(speed)}, [][]float64{centred(c.change[a:z])},
		lagLimit(period, z-a))
	return lag * period, correlation
}

// isBroken reports whether frames are missing between the changes, so that a lag in frames has no
// meaning.
func (x *recording) isBroken(c *cameraChange) bool {
	return c.seconds[len(c.seconds)-1]-c.seconds[0] > 1.5*float64(
		len(c.seconds),
	)*medianStep(
		c.seconds,
	)
}
