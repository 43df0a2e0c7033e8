package quality

// brightnessMetric is the difference of the mean level to the median of the camera over the set.
// Unit: levels of 255. Source: none, a mean. Known failure: bright or dark objects count like
// light.
var brightnessMetric = metric{
	Metric: Metric{
		Name: "brightness", Group: GroupImages, Unit: "levels", Worse: 1,
		Summary: "How far the mean brightness is from that of the camera in the set.",
		Source:  "difference of means",
	},
	rule: &rule{code: "exposure", spread: 4.5, floor: 2, hint: hintLook},
}

// brightness returns the mean level of the frames that are not black.
func brightness(frames []frameFacts) float64 {
	return meanOf(frames, func(f *frameFacts) float64 {
		if isBlack(f) {
			return nan
		}
		return float64(f.mean)
	})
}
