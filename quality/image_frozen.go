package quality

import "slices"

// frozenMetric is the longest run of frames that do not change while the robot moves and the image
// changes nearby: see unchangedFrames. Unit: frames. Source: FFmpeg's freezedetect, with the motion
// of the robot added. Known failure: a camera that sees the robot only at times is frozen at others.
var frozenMetric = metric{
	Metric: Metric{
		Name: "frozen_frames", Group: GroupImages, Unit: "frames", Worse: 1,
		Summary: "Longest run of frames without any change while the robot moves.",
		Source:  "FFmpeg freezedetect",
	},
	isTimed: true,
	rule:    &rule{code: "frozen-camera", spread: 6, floor: 0.5, hint: hintLook},
}

// frameChange classifies a frame by its difference to the previous one.
type frameChange uint8

const (
	frameUnknown   frameChange = iota // no frame, no previous frame, or the robot rests
	frameChanged                      // it differs from the previous frame
	frameUnchanged                    // it shows the same although the robot moves
)

const (
	changeWindow = 12  // frames before and after by which a frame is judged
	usualShare   = 0.3 // of the usual change, below which a frame rests
	lastMoving   = 3
	visibleShare = 0.013 // of the points; the least usual change
	repeatNoise  = 0.6   // of the noise; independent noise of two frames differs by 1.13 on average
)

// unchangedFrames classifies frames. A frame rests if the share of points that differ by more than 10
// levels is below 0.3 of the usual share: the 75th percentile of the frames around. A codec alters
// many points, but few by that much. A still image that repeats another
// one also repeats its noise. A run of resting frames is unchanged where the robot moves, if
// the frame before it changes by 0.75 of the usual share, and the frame after it by 1.3: a motion
// that ends or begins does so gradually. A run at the end needs lastMoving frames in which the robot
// moves. x may be nil: the robot then always moves.
func unchangedFrames(frames []frameFacts, x *recording) []frameChange {
	moving := x.movingAt(len(frames))
	usual := usualChange(frames)
	isVisible := make([]bool, len(frames))
	out := make([]frameChange, len(frames))
	rests := make([]bool, len(frames))
	for i := range frames {
		// Inside a long freeze, little is usual.
		isVisible[i] = usual[i] >= visibleShare
		usual[i] = max(usual[i], visibleShare)
		if f := &frames[i]; f.changed == f.changed {
			out[i] = frameChanged
			hasNewNoise := f.isStill && f.change > repeatNoise*f.noise
			rests[i] = !hasNewNoise && float64(f.changed) <= usualShare*usual[i]
		}
	}
	exceeds := func(i int, usual float64) bool { return float64(frames[i].changed) >= usual }
	for _, r := range runsOf(rests) {
		before := r.from > 0 && exceeds(r.from-1, 0.75*usual[r.from])
		isLast := r.to == len(frames)
		if r.to-r.from <= longestRepeat && !isVisible[r.from] {
			continue
		}
		if !before || !isLast && !exceeds(r.to, 1.3*usual[r.to-1]) {
			continue
		}
		var moved []int
		for i := r.from; i < r.to; i++ {
			if moving(frames[i].row) {
				moved = append(moved, i)
			}
		}
		for _, i := range moved {
			if !isLast || len(moved) >= lastMoving {
				out[i] = frameUnchanged
			}
		}
	}
	return out
}

// usualChange returns for each frame the 75th percentile of the changed share of the frames around.
func usualChange(frames []frameFacts) []float64 {
	out := make([]float64, len(frames))
	near := make([]float64, 0, 2*changeWindow)
	for i := range frames {
		near = near[:0]
		for k := max(0, i-changeWindow); k <= min(i+changeWindow, len(frames)-1); k++ {
			if v := float64(frames[k].changed); v == v && k != i {
				near = append(near, v)
			}
		}
		slices.Sort(near)
		out[i] = sortedQuantile(near, 0.75)
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
