package quality

// blackMetric is the share of frames with a mean level of at most 16 and a standard deviation of at
// most 4. Unit: share. Source: the rule of FFmpeg's blackframe filter. Known failure: a scene in
// the dark is black.
var blackMetric = metric{
	Metric: Metric{
		Name: "black_frames", Group: GroupImages, Unit: "share", Worse: 1,
		Summary: "Share of frames that show nothing but black.",
		Source:  "FFmpeg blackframe",
	},
	isTimed: true,
	rule:    &rule{code: "black-frames", spread: 6, floor: 0.001, hint: hintLook},
}

func isBlack(f *frameFacts) bool { return f.mean <= 16 && f.spread <= 4 }

// blackFrames returns the share of the frames that are black.
func blackFrames(frames []frameFacts) float64 {
	return meanOf(frames, func(f *frameFacts) float64 { return oneIf(isBlack(f)) })
}
