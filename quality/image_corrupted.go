package quality

// corruptedMetric is the share of frames that cannot be decoded. Unit: share. Source: the decoder.
// Known failure: a decoder conceals some damage; glitched_frames may show it.
var corruptedMetric = metric{
	Metric: Metric{
		Name: "corrupted_frames", Group: GroupImages, Unit: "share", Worse: 1,
		Summary: "Share of frames that cannot be decoded.",
		Source:  "the decoder",
	},
	isTimed: true,
	rule:    &rule{code: "corrupted-frames", spread: 6, floor: 0.001, hint: hintLook},
}

// corruptedFrames returns the share of the frames that cannot be decoded.
func corruptedFrames(frames []frameFacts) float64 {
	bad, n := 0.0, 0.0
	for i := range frames {
		bad += oneIf(frames[i].isBad)
		n += oneIf(!frames[i].isAbsent)
	}
	return ratio(bad, n)
}

// missingMetric is the share of rows without a frame. Unit: share. Source: the dataset. Known
// failure: none.
var missingMetric = metric{
	Metric: Metric{
		Name: "missing_frames", Group: GroupImages, Unit: "share", Worse: 1,
		Summary: "Share of rows that have no frame.",
		Source:  "the dataset",
	},
	isTimed: true,
	rule:    &rule{code: "missing-frames", spread: 6, floor: 0.001, hint: hintLook},
}

// missingFrames returns the share of the rows without a frame.
func missingFrames(frames []frameFacts) float64 {
	absent := 0.0
	for i := range frames {
		absent += oneIf(frames[i].isAbsent)
	}
	return ratio(absent, float64(len(frames)))
}
