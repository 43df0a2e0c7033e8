package quality

import (
	"math"
	"slices"
)

// recording holds the numbers of one episode, from which metrics are computed.
type recording struct {
	rows     int
	start    int64   // first timestamp
	duration float64 // seconds; NaN without rows
	// motion is the movement of the robot: the scaled state, or the positions of the action. nil
	// without either.
	motion *signal
	// state and action are nil if the dataset has none.
	state, action *signal
	isRelative    bool // the action is a change of the state
	// gripperState and gripperCommand are the measured and the commanded grippers.
	gripperState, gripperCommand *signal
	force                        *signal
	clocks                       []clock
	pairs                        []clockPair
	cameras                      []cameraChange
	notFinite, values            int // counts of all numbers of the roles
	// success and reward are the rows of the streams; nil if the episode has none.
	success, reward []float64

	span span // of the metric that is being measured; see markRows

	lagKnown            bool // whether lagOfState was computed
	lag, lagCorrelation float64

	scratch []float64 // see buffer

	speed []float64 // of each row; see speedOf
	still []bool    // of each row; see stillRows
}

// signal is some channels over time.
type signal struct {
	seconds []float64 // from the start of the episode; never descending
	period  float64   // median step in seconds; 0 for fewer than three rows
	// columns are the channels that change in the dataset, scaled. Values that are not finite are
	// replaced by the value before.
	columns [][]float64
	scales  []ChannelScale // of the columns
	dead    int            // channels of the dataset that change, but not in the episode
}

// clock is the timestamps of one clock of an episode, and of the streams that share it.
type clock struct {
	key   string // of the first stream
	times []int64
	// latched clocks, and clocks of text or events, have no rate.
	hasRate bool
	steps   []int64 // see measureSteps
	median  int64
}

// cameraChange is the movement that a camera sees.
type cameraChange struct {
	seconds []float64 // of each pair of consecutive frames: the time between them
	change  []float64 // mean absolute difference of luma
}

// rows returns the number of rows.
func (s *signal) rows() int {
	if s == nil {
		return 0
	}
	return len(s.seconds)
}

// buffer returns n numbers that are valid until the next call.
func (x *recording) buffer(n int) []float64 {
	if cap(x.scratch) < n {
		x.scratch = make([]float64, n)
	}
	return x.scratch[:n]
}

// prepare computes the values that several metrics share.
func (x *recording) prepare() {
	if x.motion == nil || len(x.motion.columns) == 0 || x.motion.rows() < 2 ||
		x.motion.period <= 0 {
		x.motion = nil
		return
	}
	x.speed = speedOf(x.motion)
	x.still = stillRows(x.motion, x.grippersAt(x.motion))
}

// grippersAt returns the gripper columns that have the rows of a signal.
func (x *recording) grippersAt(s *signal) (out [][]float64) {
	for _, g := range []*signal{x.gripperState, x.gripperCommand} {
		if g.rows() == s.rows() {
			out = append(out, g.columns...)
		}
	}
	return out
}

// step returns the seconds from row i-1 to row i, at least a quarter of the period, so that equal
// timestamps give no infinite rates.
func (s *signal) step(i int) float64 { return max(s.seconds[i]-s.seconds[i-1], s.period/4) }

// speedOf returns the Euclidean length of the rate of all channels, in ranges per second. Row 0 has
// the speed of row 1.
func speedOf(s *signal) []float64 {
	out := make([]float64, s.rows())
	for _, v := range s.columns {
		for i := 1; i < len(v); i++ {
			d := v[i] - v[i-1]
			out[i] += d * d
		}
	}
	for i := 1; i < len(out); i++ {
		out[i] = math.Sqrt(out[i]) / s.step(i)
	}
	if len(out) > 1 {
		out[0] = out[1]
	}
	return out
}

const (
	stillSpeed   = 0.02 // ranges per second below which a channel rests
	stillWindow  = 0.1  // seconds before and after a row in which it rests
	gripperMoves = 0.05 // ranges that a gripper moves in the window if the robot is not still
)

// stillRows reports for each row whether no channel moves in the window around it, and no gripper.
func stillRows(s *signal, grippers [][]float64) []bool {
	n := s.rows()
	still := slices.Repeat([]bool{true}, n)
	w := min(max(1, int(math.Round(stillWindow/s.period))), max(1, n/2))
	mark := func(columns [][]float64, limit func(seconds float64) float64) {
		atEnd := func(v []float64, i int) {
			from, to := max(0, i-w), min(n-1, i+w)
			if math.Abs(v[to]-v[from]) > limit(s.period*float64(to-from)) {
				still[i] = false
			}
		}
		inner := limit(s.period * float64(2*w)) // of all rows between the ends
		for _, v := range columns {
			for i := range min(w, n) {
				atEnd(v, i)
			}
			if n > 2*w {
				marks, before := still[w:n-w], v[:n-2*w]
				for i, after := range v[2*w : n] {
					if math.Abs(after-before[i]) > inner {
						marks[i] = false
					}
				}
			}
			for i := max(w, n-w); i < n; i++ {
				atEnd(v, i)
			}
		}
	}
	mark(s.columns, func(seconds float64) float64 { return stillSpeed * seconds })
	mark(grippers, func(float64) float64 { return gripperMoves })
	return still
}

// span is a part of an episode in seconds after its first timestamp. Unknown bounds are NaN.
type span struct{ from, to float64 }

// noSpan is the span of a value that belongs to no part of the episode.
var noSpan = span{math.NaN(), math.NaN()}

// markRows sets the part of the episode to which the value of a metric belongs: rows of a signal. An
// empty run marks nothing.
func (x *recording) markRows(s *signal, r run) {
	if r.from >= r.to {
		return
	}
	end := s.seconds[min(r.to, s.rows()-1)]
	if r.to >= s.rows() {
		end += s.period
	}
	x.span = span{s.seconds[r.from], end}
}

// longerRun returns the longer of two runs; a if they are equal.
func longerRun(a, b run) run {
	if b.to-b.from > a.to-a.from {
		return b
	}
	return a
}

// run is a range of rows [from, to).
type run struct{ from, to int }

// runsOf returns the maximal runs of true.
func runsOf(flags []bool) (out []run) {
	for i := 0; i < len(flags); i++ {
		if !flags[i] {
			continue
		}
		from := i
		for i < len(flags) && flags[i] {
			i++
		}
		out = append(out, run{from, i})
	}
	return out
}

// fillGaps replaces values that are not finite by the value before, and those at the start by the
// first finite one.
func fillGaps(v []float64) {
	last := math.NaN()
	for i, x := range v {
		if x-x != 0 {
			v[i] = last
			continue
		}
		if last != last {
			for k := range i {
				v[k] = x
			}
		}
		last = x
	}
	if last != last {
		for i := range v {
			v[i] = 0
		}
	}
}

// medianOf returns the median, and reorders v. It returns NaN for no values.
func medianOf(v []float64) float64 {
	slices.Sort(v)
	return sortedQuantile(v, 0.5)
}
