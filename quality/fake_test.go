package quality

import (
	"context"
	"encoding/binary"
	"math"
	"math/rand/v2"
	"sync/atomic"

	"github.com/goatnote-inc/robocache"
)

// fakeSet is a dataset in memory: an arm of six joints and a gripper that reaches some poses,
// grasps and returns. The action is the state two rows later.
type fakeSet struct {
	info    robocache.Info
	offered robocache.Capabilities
	tasks   []string
	// values of each stream and episode, row by row
	values map[string][][]float64
	times  map[string][][]int64 // by clock; nil: a grid of 30 Hz
	reads  atomic.Int64
	fail   map[int]error // of Gather, by episode
}

const fakeRate = 30

var fakeNames = []byte(`["j0", "j1", "j2", "j3", "j4", "j5", "gripper"]`)

// newFakeSet returns n episodes.
func newFakeSet(n int) *fakeSet {
	s := &fakeSet{
		values: map[string][][]float64{},
		times:  map[string][][]int64{},
		fail:   map[int]error{},
	}
	for _, key := range []string{"observation.state", "action"} {
		s.info.Features = append(s.info.Features, robocache.Feature{
			Key: key, Kind: robocache.KindNumeric, DType: robocache.Float64, Shape: []int{7},
			Names: fakeNames,
		})
	}
	s.info.URI, s.info.Format = "fake", "fake"
	s.info.FPS = robocache.Rate{Num: fakeRate, Den: 1}
	for e := range n {
		state := fakeEpisode(e)
		action := make([]float64, len(state))
		for i := range action {
			action[i] = state[min(i+14, len(state)-7+i%7)]
		}
		s.addEpisode(state, action)
	}
	return s
}

func (s *fakeSet) addEpisode(state, action []float64) {
	s.values["observation.state"] = append(s.values["observation.state"], state)
	s.values["action"] = append(s.values["action"], action)
	s.tasks = append(s.tasks, "pick")
	s.info.Episodes++
	s.info.Frames += int64(len(state) / 7)
}

// fakeEpisode returns the state of an episode: five moves of minimum jerk, with a gripper that
// closes after the second and opens after the fourth.
func fakeEpisode(e int) []float64 {
	rng := rand.New(rand.NewPCG(uint64(e), 1))
	var pose [6]float64
	var out []float64
	gripper := 1.0
	for move := range 5 {
		var next [6]float64
		for j := range next {
			next[j] = math.Sin(float64(7*move+j)) + 0.1*rng.NormFloat64()
		}
		rows := 30 + rng.IntN(8)
		for i := range rows {
			t := float64(i) / float64(rows)
			w := t * t * t * (10 - 15*t + 6*t*t)
			if target := 1.0; true {
				if move == 2 || move == 3 {
					target = 0.2
				}
				gripper += 0.3 * (target - gripper)
			}
			for j := range pose {
				out = append(out, pose[j]+w*(next[j]-pose[j])+1e-4*rng.NormFloat64())
			}
			out = append(out, gripper+1e-4*rng.NormFloat64())
		}
		pose = next
	}
	return out
}

func (s *fakeSet) Info() *robocache.Info                 { return &s.info }
func (s *fakeSet) Capabilities() *robocache.Capabilities { return &s.offered }
func (s *fakeSet) Close() error                          { return nil }

func (s *fakeSet) Len(e int) int { return len(s.values[s.info.Features[0].Key][e]) / 7 }

func (s *fakeSet) Episode(_ context.Context, e int) (robocache.Episode, error) {
	return robocache.Episode{
		Position: e, Index: s.info.EpisodeIndex(e), Length: s.Len(e), Tasks: []string{s.tasks[e]},
	}, nil
}

func (s *fakeSet) Times(_ context.Context, e int, key string) ([]int64, error) {
	clock := ""
	if f := s.info.Feature(key); f != nil {
		clock = f.Clock
	}
	if t := s.times[clock]; t != nil {
		return t[e], nil
	}
	if s.info.FPS.Zero() {
		return nil, robocache.NoClock("times", nil, "no clock")
	}
	out := make([]int64, s.Len(e))
	for i := range out {
		out[i] = s.info.FPS.Nanos(int64(i))
	}
	return out, nil
}

func (s *fakeSet) Gather(_ context.Context, key string, rows []robocache.Row, dst []byte) error {
	d := s.info.Feature(key).Elements()
	values := s.values[key]
	if len(rows) > 0 && s.fail[rows[0].Episode] != nil { // all rows are of one episode
		return s.fail[rows[0].Episode]
	}
	s.reads.Add(int64(len(rows)))
	for i, r := range rows {
		for c := range d {
			v := values[r.Episode][r.Index*d+c]
			binary.LittleEndian.PutUint64(dst[8*(i*d+c):], math.Float64bits(v))
		}
	}
	return nil
}

func (s *fakeSet) Text(context.Context, string, []robocache.Row) ([]string, error) {
	return nil, robocache.Unsupported("text", nil, "no text")
}

func (s *fakeSet) Frames(context.Context, string, []robocache.Row, []robocache.FrameRef) error {
	return robocache.Unsupported("frames", nil, "no frames")
}

func (s *fakeSet) Stats(context.Context) (robocache.Stats, error) { return nil, nil }
