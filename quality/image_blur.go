package quality

import "math"

// blurMetric is the mean over frames of −log2(1 + variance of the Laplacian), minus the median of
// the camera over the set. Unit: octaves; 1 means half of the variance. Source: Pech-Pacheco et al.
// 2000, "Diatom autofocusing in brightfield microscopy". Black frames are left out. Known failure:
// a scene with less texture than the others of its camera looks blurred, and noise hides blur.
var blurMetric = metric{
	Metric: Metric{
		Name: "blur", Group: GroupImages, Unit: "octaves", Worse: 1,
		Summary: "How much less sharp the images are than is usual for their camera.",
		Source:  "Pech-Pacheco et al. 2000",
	},
	rule: &rule{code: "blurred", spread: 4, floor: 0.1, hint: hintLook},
}

// blur returns the mean of −log2(1 + variance of the Laplacian) of the frames that are not black.
func blur(frames []frameFacts) float64 {
	return meanOf(frames, func(f *frameFacts) float64 {
		if isBlack(f) {
			return math.NaN()
		}
		return -math.Log2(1 + float64(f.laplace))
	})
}
