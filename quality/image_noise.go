package quality

import "math"

// noiseMetric is the mean over frames of log2 of Immerkær's estimate of the standard deviation of
// the noise, minus the median of the camera over the set. Unit: octaves. Source: Immerkær 1996,
// "Fast noise variance estimation". Known failure: fine texture counts as noise.
var noiseMetric = metric{
	Metric: Metric{
		Name: "image_noise", Group: GroupImages, Unit: "octaves", Worse: 1,
		Summary: "How much noisier the images are than is usual for their camera.",
		Source:  "Immerkær 1996",
	},
	rule: &rule{code: "noisy-images", spread: 2.8, floor: 0.1, hint: hintLook},
}

// imageNoise returns the mean of log2 of the noise of the frames that are not black. The floor of
// half a level is the error of quantization.
func imageNoise(frames []frameFacts) float64 {
	return meanOf(frames, func(f *frameFacts) float64 {
		if isBlack(f) {
			return math.NaN()
		}
		return math.Log2(math.Hypot(float64(f.noise), 0.5))
	})
}
