package quality

import "math"

// spans returns the parts of the episode to which the values of metrics belong, by name: of frames
// that are frozen, black, missing or cannot be decoded the longest run, of repeated frames and
// glitches the first, and the frame of the largest jump.
func (m *cameraMeter) spans(x *recording) map[string]span {
	at := func(i int, r run) span {
		return m.spanOfFrames(x, run{i, min(i+1, r.to)})
	}
	all := run{0, len(m.facts)}
	unchanged := unchangedFrames(m.facts, x)
	longest := func(matches func(i int) bool) span {
		flags := make([]bool, len(m.facts))
		for i := range flags {
			flags[i] = matches(i)
		}
		var found run
		for _, r := range runsOf(flags) {
			found = longerRun(found, r)
		}
		return m.spanOfFrames(x, found)
	}
	first := noSpan
	for i := len(m.facts) - 1; i > 0; i-- {
		if isGlitch(m.facts, i) {
			first = at(i, all)
		}
	}
	jump := noSpan
	if _, i := frameJump(m.facts); i >= 0 {
		jump = at(i, all)
	}
	repeated := noSpan
	for _, r := range repeatedRuns(unchanged) {
		repeated = m.spanOfFrames(x, r)
		break
	}
	return map[string]span{
		"frozen_frames": longest(func(i int) bool { return unchanged[i] == frameUnchanged }),
		"black_frames": longest(func(i int) bool {
			return isSeen(&m.facts[i]) && isBlack(&m.facts[i])
		}),
		"corrupted_frames":  longest(func(i int) bool { return m.facts[i].isBad }),
		"missing_frames":    longest(func(i int) bool { return m.facts[i].isAbsent }),
		"duplicated_frames": repeated,
		"glitched_frames":   first,
		"frame_jump":        jump,
	}
}

// spanOfFrames returns the time of a run of frames: from the first of them to the frame after the last.
func (m *cameraMeter) spanOfFrames(x *recording, r run) span {
	if r.from >= r.to {
		return noSpan
	}
	last := m.facts[r.to-1]
	end := last.time
	switch {
	case r.to < len(m.facts) && m.facts[r.to].row == last.row+1:
		end = m.facts[r.to].time
	case r.to > 1 && m.facts[r.to-2].row == last.row-1:
		end += last.time - m.facts[r.to-2].time
	}
	return x.spanOf(m.facts[r.from].time, end)
}

// isKnown reports whether both bounds are known.
func (s span) isKnown() bool { return !math.IsNaN(s.from) && !math.IsNaN(s.to) }
