package quality

// glitchedMetric is the number of frames that resemble neither neighbor although these resemble
// each other: both differences exceed 3 × the local median, and the neighbors differ by less than
// half of that. Unit: count. Source: the impulse detector of film restoration (Kokaram 1998). Known
// failure: a flash is a glitch.
var glitchedMetric = metric{
	Metric: Metric{
		Name:     "glitched_frames",
		Group:    GroupImages,
		Unit:     "count",
		Worse:    1,
		Summary:  "Number of frames that resemble neither the frame before nor the one after.",
		Source:   "Kokaram 1998",
		Inferred: true,
	},
	isTimed: true,
	rule:    &rule{code: "glitched-frames", spread: 6, floor: 0.5, hint: hintLook},
}

// glitchedFrames returns the number of glitches. Fewer than 5 frames have none.
func glitchedFrames(frames []frameFacts) float64 {
	if len(frames) < 5 {
		return nan
	}
	n := 0.0
	for i := 1; i+1 < len(frames); i++ {
		n += oneIf(isGlitch(frames, i))
	}
	return n
}

// isGlitch reports whether frame i is a glitch.
func isGlitch(frames []frameFacts, i int) bool {
	if i < 1 || i+1 >= len(frames) {
		return false
	}
	in, out := float64(frames[i].change), float64(frames[i+1].change)
	change := func(f *frameFacts) float32 { return f.change }
	base := 3 * (localMedian(frames, i, i+1, change) + 0.25)
	return in > base && out > base && float64(frames[i+1].change2) < min(in, out)/2
}
