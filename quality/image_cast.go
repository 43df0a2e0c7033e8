package quality

// castMetric is the distance of the mean chroma (Cb, Cr) of an episode to the median of its camera
// over the set. Unit: levels. Source: the gray-world assumption (Buchsbaum 1980), relative to the
// set. Known failure: large coloured objects that other episodes do not have.
var castMetric = metric{
	Metric: Metric{
		Name: "colour_cast", Group: GroupImages, Unit: "levels", Worse: 1,
		Summary: "How far the mean colour is from that of the camera in the set.",
		Source:  "Buchsbaum 1980, relative to the set",
	},
	rule: &rule{code: "colour-cast", spread: 3, floor: 1, hint: hintLook},
}

// castOf returns the mean of one chroma of the frames that are not black.
func castOf(frames []frameFacts, chroma func(f *frameFacts) float32) float64 {
	return meanOf(frames, func(f *frameFacts) float64 {
		if isBlack(f) {
			return nan
		}
		return float64(chroma(f))
	})
}
