package quality

// duplicatedMetric is the share of frames that repeat the previous frame while the robot moves, in
// runs of at most 5. Unit: share. Source: FFmpeg's mpdecimate, with the motion of the robot added.
// Known failure: that of frozen_frames.
var duplicatedMetric = metric{
	Metric: Metric{
		Name: "duplicated_frames", Group: GroupImages, Unit: "share", Worse: 1,
		Summary: "Share of frames that repeat the previous one while the robot moves.",
		Source:  "FFmpeg mpdecimate",
	},
	isTimed: true,
	rule:    &rule{code: "duplicated-frames", spread: 6, floor: 0.005, hint: hintLook},
}

const longestRepeat = 5 // frames; longer runs are frozen

// duplicatedFrames returns the share of frames in short runs of unchanged frames.
func duplicatedFrames(frames []frameChange) float64 {
	known, repeated := 0, 0
	for _, c := range frames {
		known += int(oneIf(c != frameUnknown))
	}
	for _, r := range repeatedRuns(frames) {
		repeated += r.to - r.from
	}
	return ratio(float64(repeated), float64(known))
}

// repeatedRuns returns the runs of at most longestRepeat unchanged frames.
func repeatedRuns(frames []frameChange) (out []run) {
	flags := make([]bool, len(frames))
	for i, c := range frames {
		flags[i] = c == frameUnchanged
	}
	for _, r := range runsOf(flags) {
		if r.to-r.from <= longestRepeat {
			out = append(out, r)
		}
	}
	return out
}
