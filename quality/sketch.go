package quality

// sketchLayout is the form of the sketches of a dataset: points of the state and of the action,
// evenly spaced over the episode, point by point. Values are scaled (package documentation).
type sketchLayout struct{ points, state, action int }

// layoutOf returns the layout of the sketches of a dataset with a scale.
func layoutOf(roles *streamRoles, scale *Scale) sketchLayout {
	count := func(parts []part) (n int) {
		for _, p := range parts {
			for _, c := range p.channels {
				if scales := scale.Streams[p.feature.Key]; c < len(scales) &&
					scales[c].width() > 0 {
					n++
				}
			}
		}
		return min(n, maxSketchWidth)
	}
	return sketchLayout{scale.SketchPoints, count(roles.state), count(roles.action)}
}

func (l sketchLayout) width() int { return l.points * (l.state + l.action) }

// write writes the sketch of an episode to out, which has width values.
func (l sketchLayout) write(x *recording, out []float32) {
	column := 0
	for _, part := range []struct {
		s     *signal
		width int
	}{{x.state, l.state}, {x.action, l.action}} {
		for c := range part.width {
			if n := part.s.rows(); n > 0 && c < len(part.s.columns) {
				for p := range l.points {
					row := p * (n - 1) / max(1, l.points-1)
					out[p*(l.state+l.action)+column] = float32(part.s.columns[c][row])
				}
			}
			column++
		}
	}
}
