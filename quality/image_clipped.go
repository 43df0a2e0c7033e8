package quality

// clippedMetric is the mean share of points at either end of the range (2 levels), minus the median
// of the camera over the set. Unit: share. Source: the share of clipped pixels of a histogram.
// Known failure: a scene with truly black or white surfaces is clipped.
var clippedMetric = metric{
	Metric: Metric{
		Name: "clipped_pixels", Group: GroupImages, Unit: "share", Worse: 1,
		Summary: "Share of over- or underexposed pixels, above what is usual for the camera.",
		Source:  "histogram",
	},
	rule: &rule{code: "clipped-images", spread: 6, floor: 0.01, hint: hintLook},
}

// clippedPixels returns the mean share of clipped points of the frames that are not black.
func clippedPixels(frames []frameFacts) float64 {
	return meanOf(frames, func(f *frameFacts) float64 {
		if isBlack(f) {
			return nan
		}
		return float64(f.clipped)
	})
}
