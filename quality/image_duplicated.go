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
	rule: &rule{code: "duplicated-frames", spread: 6, floor: 0.005, hint: hintLook},
}

const longestRepeat = 5 // frames; longer runs are frozen

// duplicatedFrames returns the share of frames in short runs of unchanged frames.
func duplicatedFrames(frames []frameChange) float64 {
	known, repeated, run := 0, 0, 0
	for i, c := range frames {
		known += int(oneIf(c != frameUnknown))
		if c == frameUnchanged {
			run++
		}
		if c != frameUnchanged || i == len(frames)-1 {
			if run <= longestRepeat {
				repeated += run
			}
			run = 0
		}
	}
	return ratio(float64(repeated), float64(known))
}
