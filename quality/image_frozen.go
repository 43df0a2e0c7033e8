package quality

// frozenMetric is the longest run of frames that do not change while the robot moves. Unit: frames.
// A frame does not change if at most one point of 64 × 64 differs by more than 10 levels, and the
// mean difference is at most 0.75 levels. Source: FFmpeg's freezedetect, with the motion of the
// robot added. Known failure: a camera that cannot see the robot is frozen if it has no noise.
var frozenMetric = metric{
	Metric: Metric{
		Name: "frozen_frames", Group: GroupImages, Unit: "frames", Worse: 1,
		Summary: "Longest run of frames without any change while the robot moves.",
		Source:  "FFmpeg freezedetect",
	},
	rule: &rule{code: "frozen-camera", spread: 6, floor: 0.5, hint: hintLook},
}

// frameChange classifies a frame by its difference to the previous one.
type frameChange uint8

const (
	frameUnknown   frameChange = iota // no frame, no previous frame, or the robot rests
	frameChanged                      // it differs from the previous frame
	frameUnchanged                    // it shows the same although the robot moves
)

// unchangedFrames classifies frames. x may be nil: the robot then always moves.
func unchangedFrames(frames []frameFacts, x *recording) []frameChange {
	moving := x.movingAt(len(frames))
	out := make([]frameChange, len(frames))
	for i := range frames {
		f := &frames[i]
		switch isMoving := moving(f.row); {
		case f.change-f.change != 0: // no previous frame
		case f.change > 0.75 || f.changed*gridSide*gridSide > 2:
			out[i] = frameChanged
		case isMoving:
			out[i] = frameUnchanged
		}
	}
	return out
}

// frozenFrames returns the length of the longest run of unchanged frames.
func frozenFrames(frames []frameChange) float64 {
	if len(frames) == 0 {
		return nan
	}
	longest, run := 0, 0
	for _, c := range frames {
		if run++; c != frameUnchanged {
			run = 0
		}
		longest = max(longest, run)
	}
	return float64(longest)
}
