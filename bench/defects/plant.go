package defects

import (
	"math"
	"slices"
)

// defect is a fault that is planted into a clean episode.
type defect struct {
	name    string
	metrics []string // of package quality: those that are meant to find it
	// measure is the quantity of C2; nil: the sizes are frames, or the defect has no size.
	measure func(e *episode) float64
	// less reports that the defect makes the quantity smaller.
	less bool
	// apply plants a strength. Without measure, the strength is a number of frames.
	apply func(e *episode, strength float64)
	// top is the largest strength with a measure; the strength is found by bisection from 0.
	top float64
}

var (
	spreads = []float64{2, 4, 8}
	frames  = []float64{1, 3, 10}
)

// allDefects lists the defects that are planted.
var allDefects = []defect{
	{
		name: "idle",
		metrics: []string{
			"idle",
			"idle_head",
			"idle_tail",
			"idle_middle",
			"hesitations",
			"duration",
		},
		measure: (*episode).restSeconds,
		top:     30,
		apply: func(e *episode, seconds float64) {
			at := len(e.truth) / 2
			pause := slices.Repeat([]pose{e.truth[at]}, int(math.Round(seconds*rowsHz)))
			e.truth = slices.Insert(e.truth, at, pause...)
			e.record(1)
		},
	},
	{
		name:    "too_short",
		metrics: []string{"duration", "path_length", "gripper_events"},
		less:    true,
		top:     0.95,
		measure: func(e *episode) float64 { return float64(e.rows()) / rowsHz },
		apply: func(e *episode, share float64) {
			e.removeRows(max(3, int(float64(e.rows())*(1-share))), e.rows())
		},
	},
	{
		name: "jerk", metrics: jerkMetrics, measure: (*episode).rmsJerk, top: 1,
		apply: func(e *episode, amount float64) { e.shake(amount, true) },
	},
	{
		name: "noise", metrics: jerkMetrics, measure: (*episode).stateNoise, top: 1,
		apply: func(e *episode, amount float64) { e.shake(amount, false) },
	},
	{
		name:    "discontinuity",
		metrics: append([]string{"discontinuities", "largest_jump"}, jerkMetrics...),
		measure: (*episode).largestStep,
		top:     5,
		apply: func(e *episode, amount float64) {
			for i := e.rows() / 2; i < e.rows(); i++ {
				e.state[i][1] += amount
				e.action[i][1] += amount
			}
		},
	},
	{
		name: "saturation", metrics: []string{"saturation", "clipped_actions", "dead_channels"},
		apply: func(e *episode, _ float64) {
			for j := range joints {
				high := 0.0
				for i := range e.state {
					high = max(high, e.state[i][j])
				}
				for i := range e.state {
					e.state[i][j], e.action[i][j] = min(
						e.state[i][j],
						high*0.6,
					), min(
						e.action[i][j],
						high*0.6,
					)
				}
			}
		},
	},
	{
		name: "dead_dimension", metrics: []string{"dead_channels"},
		apply: func(e *episode, _ float64) {
			for i := range e.state {
				e.state[i][2] = e.state[0][2]
			}
		},
	},
	{
		name: "frozen_state", metrics: []string{"frozen_state", "largest_jump", "discontinuities"},
		apply: func(e *episode, n float64) {
			for i := e.fastest(); i < min(e.fastest()+int(n), e.rows()-1); i++ {
				e.state[i] = e.state[e.fastest()-1]
			}
		},
	},
	{
		name:    "gripper_never_closes",
		metrics: []string{"gripper_never_closes", "gripper_events", "gripper_travel"},
		apply: func(e *episode, _ float64) {
			for i := range e.state {
				e.state[i][gripper] = 0.002 * e.rng.NormFloat64()
				e.action[i][gripper], e.truth[min(i, len(e.truth)-1)][gripper] = 0, 0
			}
		},
	},
	{
		name:    "gripper_chatter",
		metrics: []string{"gripper_chatter", "gripper_events", "gripper_commands"},
		apply: func(e *episode, n float64) {
			for i := range int(n) * 2 {
				row := e.rows()/3 + i
				e.state[row][gripper], e.action[row][gripper] = float64(i/1%2), float64(i%2)
			}
		},
	},
	{
		name: "action_lag", metrics: []string{"action_lag", "tracking_error"},
		apply: func(e *episode, n float64) {
			moved := slices.Clone(e.action)
			for i := range e.action {
				e.action[i] = moved[max(0, i-int(n))]
			}
		},
	},
	{
		name: "gap",
		metrics: append([]string{
			"gaps", "longest_gap", "discontinuities", "largest_jump",
			"jitter", "frame_jump",
		}, jerkMetrics...),
		apply: func(e *episode, n float64) { e.removeRows(e.fastest(), e.fastest()+int(n)) },
	},
	{
		name:    "dropped_rows",
		metrics: append([]string{"discontinuities", "largest_jump", "frame_jump"}, jerkMetrics...),
		apply: func(e *episode, n float64) {
			at := e.fastest()
			e.removeRows(at, at+int(n))
			e.closeClock(at)
		},
	},
	{
		name: "out_of_sync", metrics: []string{"camera_lag", "camera_skew", "camera_drift"},
		apply: func(e *episode, n float64) {
			for c := range e.shown {
				for i := range e.shown[c] {
					e.shown[c][i] = max(0, e.shown[c][i]-int(n))
				}
			}
		},
	},
	{
		name: "frozen_camera", metrics: []string{"frozen_frames", "duplicated_frames"},
		apply: func(e *episode, n float64) {
			at := e.fastest()
			for i := at; i < at+int(n); i++ {
				e.shown[0][i] = -at // a copy of row at−1, with its noise
			}
		},
	},
	{
		name: "duplicated_frames", metrics: []string{"duplicated_frames", "frozen_frames"},
		apply: func(e *episode, n float64) {
			for k := range int(n) {
				if at := e.fastest() + 2*k; at < e.rows() {
					e.shown[0][at] = -at
				}
			}
		},
	},
	{
		name: "blur", metrics: []string{"blur"}, less: true, top: 6,
		measure: func(e *episode) float64 { return math.Log2(1 + e.sharpness(0)) },
		apply: func(e *episode, sigma float64) {
			e.looks[0].blur = math.Hypot(e.looks[0].blur, sigma)
		},
	},
	{
		name: "image_noise", metrics: []string{"image_noise"}, top: 60,
		measure: func(e *episode) float64 { return e.looks[0].noise },
		apply: func(e *episode, levels float64) {
			e.looks[0].noise = math.Hypot(e.looks[0].noise, levels)
		},
	},
	{
		name: "black", metrics: []string{"black_frames", "glitched_frames"},
		apply: func(e *episode, n float64) {
			for i := range int(n) {
				e.looks[0].black[e.rows()/2+i] = true
			}
		},
	},
	{
		name: "overexposed", metrics: []string{"brightness", "clipped_pixels"}, top: 4,
		measure: func(e *episode) float64 { return e.looks[0].gain },
		apply:   func(e *episode, gain float64) { e.looks[0].gain += gain },
	},
	{
		name: "flicker", metrics: []string{"flicker"}, top: 60,
		measure: func(e *episode) float64 { return e.looks[0].flicker },
		apply: func(e *episode, levels float64) {
			e.looks[0].flicker = math.Hypot(e.looks[0].flicker, levels)
		},
	},
	{
		name: "colour_cast", metrics: []string{"colour_cast"}, top: 80,
		measure: func(e *episode) float64 { return e.looks[0].cast[2] - e.looks[0].cast[0] },
		apply: func(e *episode, levels float64) {
			e.looks[0].cast[2] += levels / 2
			e.looks[0].cast[0] -= levels / 2
		},
	},
	{
		name: "occlusion", metrics: []string{"occlusion", "brightness"},
		apply: func(e *episode, n float64) { e.looks[0].cover = 0.04 * n },
	},
	{
		name: "corrupted_frames", metrics: []string{"glitched_frames", "corrupted_frames"},
		apply: func(e *episode, n float64) {
			for i := range int(n) {
				e.looks[0].glitch[e.rows()/6+3*i] = true
			}
		},
	},
	{name: "duplicate", metrics: []string{"duplicate"}},
	{name: "mirrored", metrics: []string{"mirrored", "duplicate"}},
	{name: "wrong_task", metrics: []string{"path_outlier", "outlier"}},
}

var jerkMetrics = []string{
	"jerk_rms", "ldj", "sparc", "high_frequency", "reversals", "noise", "speed_p95",
}
