package defects

import (
	"math"
	"math/rand/v2"
)

const (
	rowsHz  = 20
	joints  = 6
	gripper = joints // the last channel: 0 is open, 1 is closed
	dims    = joints + 1
	cameras = 2
)

// pose is one row of the robot: joint angles in radians, and the gripper.
type pose [dims]float64

// episode is one recorded episode, with everything that its images show.
type episode struct {
	task          int
	rng           *rand.Rand
	truth         []pose // what the cameras see
	state, action []pose
	times         []int64            // ns
	shown         [cameras][]int     // for each row, the row of truth that a camera shows
	looks         [cameras]imageLook // conditions of the images
	seed          uint64

	defect   string   // "" is a clean episode
	original *episode // of a copy
	size     int      // index into the sizes of the defect: 0, 1 or 2
}

// imageLook is how a camera sees an episode.
type imageLook struct {
	blur    float64 // standard deviation in pixels
	gain    float64 // factor of the levels
	cast    [3]float64
	noise   float64 // levels
	flicker float64 // levels
	cover   float64 // share of the image that an object covers
	black   map[int]bool
	glitch  map[int]bool

	mirrored bool
}

// task is a script of waypoints.
type task struct {
	text      string
	waypoints []waypoint
}

// waypoint is a target that is reached in a time, and the gripper from then on.
type waypoint struct {
	joints  [joints]float64
	seconds float64
	grip    float64
}

var tasks = []task{
	{"place the red cube into the bowl", []waypoint{
		{[joints]float64{0.5, 0.6, -0.4, 0.3, 0.2, 0.1}, 1.0, 1},
		{[joints]float64{0.2, 0.2, 0.1, 0.5, -0.2, 0.3}, 0.9, 1},
		{[joints]float64{-0.6, 0.5, -0.3, 0.2, 0.3, -0.2}, 1.0, 0},
		{[joints]float64{-0.2, 0, 0, 0, 0, 0}, 0.8, 0},
	}},
	{"stack the green cube on the blue one", []waypoint{
		{[joints]float64{-0.7, 0.7, -0.5, 0.1, 0.4, 0}, 1.1, 1},
		{[joints]float64{-0.1, 0.1, 0.3, 0.4, -0.1, 0.4}, 0.8, 1},
		{[joints]float64{0.4, 0.3, -0.2, 0.3, 0.1, 0.2}, 1.0, 0},
		{[joints]float64{0.1, -0.1, 0.1, 0, 0, 0.1}, 0.7, 0},
	}},
	{"sort both cubes", []waypoint{
		{[joints]float64{0.6, 0.5, -0.3, 0.2, 0.1, 0.3}, 0.8, 1},
		{[joints]float64{-0.3, 0.4, -0.2, 0.3, 0.2, -0.1}, 0.9, 0},
		{[joints]float64{0.1, 0.7, -0.5, 0.2, 0.3, 0.2}, 0.8, 1},
		{[joints]float64{-0.5, 0.2, 0.1, 0.1, -0.1, 0.1}, 0.9, 0},
	}},
}

// makeEpisode returns a clean episode. Waypoints, times, rests, noise and light vary.
func makeEpisode(seed uint64, taskNumber int) *episode {
	rng := rand.New(rand.NewPCG(seed, uint64(taskNumber)))
	e := &episode{task: taskNumber, rng: rng, seed: seed}
	pace := 1 + 0.06*rng.NormFloat64()
	at := pose{0.1 * rng.NormFloat64(), 0.1 * rng.NormFloat64()}
	e.rest(at, 0.15+0.05*math.Abs(rng.NormFloat64()))
	for _, w := range tasks[taskNumber].waypoints {
		target := at
		for j := range joints {
			target[j] = w.joints[j] + 0.05*rng.NormFloat64()
		}
		e.moveTo(at, target, w.seconds*pace*(1+0.05*rng.NormFloat64()))
		closed := target
		closed[gripper] = w.grip
		e.moveTo(target, closed, 0.25)
		at = closed
	}
	e.rest(at, 0.15+0.05*math.Abs(rng.NormFloat64()))
	e.record(math.Exp(0.15 * rng.NormFloat64()))
	for c := range e.looks {
		e.looks[c] = imageLook{
			blur: 0.5 + 0.03*rng.NormFloat64(), gain: 1 + 0.03*rng.NormFloat64(),
			noise:   2 * math.Exp(0.08*rng.NormFloat64()),
			flicker: 0.3 * math.Exp(0.25*rng.NormFloat64()),
			black:   map[int]bool{}, glitch: map[int]bool{},
		}
		for k := range e.looks[c].cast {
			e.looks[c].cast[k] = 1.5 * rng.NormFloat64()
		}
	}
	return e
}

// rest appends rows without a motion.
func (e *episode) rest(at pose, seconds float64) {
	for range int(math.Round(seconds * rowsHz)) {
		e.truth = append(e.truth, at)
	}
}

// moveTo appends the rows of a minimum-jerk motion.
func (e *episode) moveTo(from, to pose, seconds float64) {
	n := max(1, int(math.Round(seconds*rowsHz)))
	for i := 1; i <= n; i++ {
		s := float64(i) / float64(n)
		s = s * s * s * (10 - 15*s + 6*s*s)
		at := from
		for j := range at {
			at[j] += s * (to[j] - from[j])
		}
		e.truth = append(e.truth, at)
	}
}

const (
	commandLead = 2      // rows by which the command leads the state
	sensorNoise = 0.0005 // radians
)

// record fills the streams from truth. The command leads the state; both have noise.
func (e *episode) record(noise float64) {
	n := len(e.truth)
	e.state, e.action = make([]pose, n), make([]pose, n)
	e.times = make([]int64, n)
	for i := range n {
		e.times[i] = int64(i)*1e9/rowsHz + int64(2e5*e.rng.NormFloat64())
		e.state[i], e.action[i] = e.truth[i], e.truth[min(i+commandLead, n-1)]
		for j := range dims {
			e.state[i][j] += noise * sensorNoise * e.rng.NormFloat64()
			e.action[i][j] += noise * sensorNoise * e.rng.NormFloat64()
		}
	}
	e.times[0] = 0
	for c := range e.shown {
		e.shown[c] = make([]int, n)
		for i := range n {
			e.shown[c][i] = i
		}
	}
}

// rows returns the number of rows.
func (e *episode) rows() int { return len(e.state) }

// removeRows removes rows [from, to) of all streams, and keeps the times of the others.
func (e *episode) removeRows(from, to int) {
	e.state = append(e.state[:from:from], e.state[to:]...)
	e.action = append(e.action[:from:from], e.action[to:]...)
	e.times = append(e.times[:from:from], e.times[to:]...)
	for c := range e.shown {
		e.shown[c] = append(e.shown[c][:from:from], e.shown[c][to:]...)
	}
}

// closeClock moves the times after a row, so that no gap remains before it.
func (e *episode) closeClock(row int) {
	gap := e.times[row] - e.times[row-1] - 1e9/rowsHz
	for i := row; i < len(e.times); i++ {
		e.times[i] -= gap
	}
}

// fastest returns the row around which the joints move fastest, away from both ends.
func (e *episode) fastest() int {
	best, at := -1.0, len(e.truth)/2
	for i := len(e.truth) / 5; i < len(e.truth)*3/5; i++ {
		sum := 0.0
		for j := range joints {
			d := e.truth[i+1][j] - e.truth[i-1][j]
			sum += d * d
		}
		if sum > best {
			best, at = sum, i
		}
	}
	return at
}
