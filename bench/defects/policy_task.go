package defects

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"math"
	"math/rand/v2"

	"github.com/goatnote-inc/robocache"
)

// The planar task of the policy experiment: a gripper moves over a table, grasps an object at a
// random place, and carries it to a fixed goal.
const (
	tableSteps   = 90
	largestMove  = 0.04 // of one step
	graspRadius  = 0.05
	goalRadius   = 0.06
	demoState    = 5 // x, y, gripper, object x, object y
	demoAction   = 3 // target x, target y, gripper command
	gripperSpeed = 0.34
)

var goalAt = [2]float64{0.15, 0.85}

// tableWorld is the state of the task. The gripper is closed at 1.
type tableWorld struct {
	hand, object [2]float64
	grip         float64
	isHeld       bool
}

func newTableWorld(rng *rand.Rand) tableWorld {
	return tableWorld{
		hand:   [2]float64{0.1 + 0.2*rng.Float64(), 0.1 + 0.2*rng.Float64()},
		object: [2]float64{0.4 + 0.5*rng.Float64(), 0.2 + 0.5*rng.Float64()},
	}
}

func (w *tableWorld) observe() [demoState]float64 {
	return [demoState]float64{w.hand[0], w.hand[1], w.grip, w.object[0], w.object[1]}
}

// step applies an action: the hand moves towards the target by at most largestMove.
func (w *tableWorld) step(a [demoAction]float64) {
	dx, dy := a[0]-w.hand[0], a[1]-w.hand[1]
	if d := math.Hypot(dx, dy); d > largestMove {
		dx, dy = dx*largestMove/d, dy*largestMove/d
	}
	w.hand[0], w.hand[1] = w.hand[0]+dx, w.hand[1]+dy
	w.grip += min(gripperSpeed, max(-gripperSpeed, min(1, max(0, a[2]))-w.grip))
	near := math.Hypot(w.hand[0]-w.object[0], w.hand[1]-w.object[1]) < graspRadius
	w.isHeld = w.grip > 0.6 && (w.isHeld || near)
	if w.isHeld {
		w.object = w.hand
	}
}

// isDone reports whether the object lies at the goal.
func (w *tableWorld) isDone() bool {
	return !w.isHeld && math.Hypot(w.object[0]-goalAt[0], w.object[1]-goalAt[1]) < goalRadius
}

// expert returns the action of the script.
func (w *tableWorld) expert() [demoAction]float64 {
	target, grip := w.object, 0.0
	switch near := math.Hypot(w.hand[0]-w.object[0], w.hand[1]-w.object[1]); {
	case w.isHeld:
		target, grip = goalAt, 1
		if math.Hypot(w.hand[0]-goalAt[0], w.hand[1]-goalAt[1]) < 0.02 {
			grip = 0
		}
	case near < 0.02:
		grip = 1
	}
	// A motion slows down near its target.
	return [demoAction]float64{
		w.hand[0] + 0.35*(target[0]-w.hand[0]), w.hand[1] + 0.35*(target[1]-w.hand[1]), grip,
	}
}

// demo is a demonstration. fault is 0 for a good one.
type demo struct {
	states  [][demoState]float64
	actions [][demoAction]float64
	fault   int
}

const demoFaults = 5

// makeDemo records a demonstration with a fault: 1 never grasps, 2 waits for most of the time, 3 is
// jerky, 4 ends early, 5 has commands that come 6 steps late.
func makeDemo(rng *rand.Rand, fault int) demo {
	w, d := newTableWorld(rng), demo{fault: fault}
	record := func(a [demoAction]float64) {
		d.states = append(d.states, w.observe())
		d.actions = append(d.actions, a)
		w.step(a)
	}
	for len(d.states) < tableSteps && !w.isDone() {
		a := w.expert()
		for k := range 2 {
			a[k] += 0.003 * rng.NormFloat64()
		}
		switch fault {
		case 1:
			if a[2] = 0; math.Hypot(w.hand[0]-w.object[0], w.hand[1]-w.object[1]) < 0.02 ||
				len(d.states) > 25 {
				a[0], a[1] = w.hand[0]+0.3*(goalAt[0]-w.hand[0]), w.hand[1]+0.3*(goalAt[1]-w.hand[1])
			}
		case 2:
			if n := len(d.states); n == 8 || n == 24 {
				for range 24 {
					record([demoAction]float64{w.hand[0], w.hand[1], w.grip})
				}
				continue
			}
		case 3:
			for k := range 2 {
				a[k] += 0.05 * rng.NormFloat64()
			}
		case 4:
			if len(d.states) > 14 {
				return d
			}
		}
		record(a)
	}
	if fault == 5 {
		for i := len(d.actions) - 1; i >= 0; i-- {
			d.actions[i] = d.actions[max(0, i-6)]
		}
	}
	return d
}

// demoSet is the dataset of demonstrations, without images.
type demoSet struct {
	demos   []demo
	info    robocache.Info
	offered robocache.Capabilities
}

func newDemoSet(demos []demo) *demoSet {
	s := &demoSet{demos: demos}
	fps, _ := robocache.RateOf("10")
	s.info = robocache.Info{
		URI: "memory:demos", Format: "demos", Version: "1", FPS: fps, Episodes: len(demos),
		Tasks: []robocache.Task{{Text: "carry the object to the goal"}},
	}
	add := func(key string, names ...string) {
		text, _ := json.Marshal(names)
		s.info.Features = append(s.info.Features, robocache.Feature{
			Key: key, Kind: robocache.KindNumeric, DType: robocache.Float32,
			Shape: []int{len(names)}, Names: text, FPS: fps,
		})
	}
	add("observation.state", "x", "y", "gripper", "object_x", "object_y")
	add("action", "x", "y", "gripper")
	return s
}

func (s *demoSet) Info() *robocache.Info                          { return &s.info }
func (s *demoSet) Len(e int) int                                  { return len(s.demos[e].states) }
func (s *demoSet) Capabilities() *robocache.Capabilities          { return &s.offered }
func (s *demoSet) Stats(context.Context) (robocache.Stats, error) { return nil, nil }
func (s *demoSet) Close() error                                   { return nil }

func (s *demoSet) Episode(_ context.Context, e int) (robocache.Episode, error) {
	return robocache.Episode{
		Position: e, Index: int64(e), Length: s.Len(e), Tasks: []string{s.info.Tasks[0].Text},
	}, nil
}

func (s *demoSet) Times(_ context.Context, e int, _ string) ([]int64, error) {
	times := make([]int64, s.Len(e))
	for i := range times {
		times[i] = int64(i) * 1e8
	}
	return times, nil
}

func (s *demoSet) Gather(_ context.Context, key string, rows []robocache.Row, dst []byte) error {
	dst = dst[:0]
	for _, r := range rows {
		values := s.demos[r.Episode].states[r.Index][:]
		if key == "action" {
			values = s.demos[r.Episode].actions[r.Index][:]
		}
		for _, v := range values {
			dst = binary.LittleEndian.AppendUint32(dst, math.Float32bits(float32(v)))
		}
	}
	return nil
}

func (s *demoSet) Text(_ context.Context, _ string, rows []robocache.Row) ([]string, error) {
	out := make([]string, len(rows))
	for i := range out {
		out[i] = s.info.Tasks[0].Text
	}
	return out, nil
}

func (s *demoSet) Frames(
	_ context.Context, key string, _ []robocache.Row, _ []robocache.FrameRef,
) error {
	return robocache.NotFound("read", robocache.Where{"stream": key}, "no such stream")
}
