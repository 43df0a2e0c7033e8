package synth

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"sort"

	"github.com/goatnote-inc/robocache"
)

// native is a stream with its own clock and [D] values per sample.
type native struct {
	key    string
	d      int
	sample func(*state) []float64
}

var natives = map[string]native{
	"joints": {
		"observation.joints",
		4,
		func(s *state) []float64 { return []float64{s.q[0], s.q[1], s.v[0], s.v[1]} },
	},
	"force": {
		"observation.force",
		3,
		func(s *state) []float64 { f := s.wristForce(); return f[:] },
	},
}

const depthKey = "observation.depth.cam_0"

// Each purpose and episode has its own sequence of random numbers, so that purposes do not affect
// each other.
const (
	drawWorld = iota
	drawRows
	drawState
	drawCamera = 16
	drawLength = 40
	drawDeform = 48  // + index: delayed starts, silent intervals
	drawClock  = 112 // + index
	drawPoints = 144
	drawSkew   = 80 // + index, of episode 0: offset and rate of a stream's clock
)

func (o *Options) newRand(episode, purpose int) *rand.Rand {
	return rand.New(rand.NewPCG(o.Seed, uint64(episode)<<8|uint64(purpose)))
}

// endOf returns when an episode ends: after Seconds, varied by at most Spread.
func (o *Options) endOf(episode int) int64 {
	s := o.Seconds
	if o.Spread > 0 {
		s *= 1 + float64(o.Spread*(2*o.newRand(episode, drawLength).Float64()-1))
	}
	return int64(math.Round(s * 1e9))
}

// taskOf returns the task of an episode: the number of its text, and its color.
func (o *Options) taskOf(episode int) (text, colour int) {
	text = (episode + int(o.Seed%uint64(len(o.Tasks)))) % len(o.Tasks)
	return text, text % discCount
}

// rowTimes returns the grid times of the recorded rows of an episode.
func (o *Options) rowTimes(episode int, fps robocache.Rate) []int64 {
	return sampleClock(o.newRand(episode, drawRows), fps, o.endOf(episode), 0, o.Gaps)
}

// nativeClock returns when the samples of a faster stream were taken. It does not depend on the
// format.
func (o *Options) nativeClock(episode, stream int, rate robocache.Rate) []int64 {
	return sampleClock(
		o.newRand(episode, drawClock+stream),
		rate,
		o.endOf(episode),
		int64(o.Jitter),
		o.Gaps,
	)
}

// countUntil returns the number of samples up to a time. A row holds the samples after the previous
// row, so no sample between rows is lost.
func countUntil(timestamps []int64, t int64) int {
	return sort.Search(len(timestamps), func(i int) bool { return timestamps[i] > t })
}

// rowWidths returns, for each native stream, the largest number of samples in any row of the
// dataset. It adds a finding with the number of samples after the last rows.
func (o *Options) rowWidths(fps robocache.Rate) (map[string]int, []robocache.Finding, error) {
	out := map[string]int{}
	var found []robocache.Finding
	for _, name := range o.otherStreams() {
		rate, err := rateOf(o.Rates[name])
		if err != nil {
			return nil, nil, err
		}
		k, after := 1, 0
		for e := range o.Episodes {
			timestamps, lo := o.nativeClock(e, streams[name], rate), 0
			for _, t := range o.rowTimes(e, fps) {
				hi := countUntil(timestamps, t)
				k, lo = max(k, hi-lo), hi
			}
			after += len(timestamps) - lo
		}
		out[name] = k
		if after > 0 {
			found = append(found, robocache.Finding{
				Severity: robocache.SeverityInfo,
				Code:     "samples-after-last-row",
				Where:    robocache.Where{"stream": natives[name].key},
				Count:    int64(after),
				Message: fmt.Sprintf(
					"%d samples were taken after the last row of their episode: "+
						"rows hold those up to their own time",
					after,
				),
			})
		}
	}
	return out, found, nil
}

func jsonNames(list ...string) json.RawMessage {
	b, _ := json.Marshal(list)
	return b
}

func cameraKey(i int) string { return fmt.Sprintf("observation.images.cam_%d", i) }

func (o *Options) isDistorted() bool { return o.Jitter > 0 || o.Gaps > 0 }

// rowFeatures returns the features of the dataset, in order.
func (o *Options) rowFeatures(width map[string]int, fps robocache.Rate) []robocache.Feature {
	numeric := func(
		key string, d robocache.DType, n json.RawMessage, shape ...int,
	) robocache.Feature {
		return robocache.Feature{
			Key:   key,
			Kind:  robocache.KindNumeric,
			DType: d,
			Shape: shape,
			Names: n,
		}
	}
	out := []robocache.Feature{
		numeric("observation.state", robocache.Float32, jsonNames("q0", "q1", "x", "y"), 4),
		numeric("action", robocache.Float32, jsonNames("v0", "v1"), 2),
	}
	for i := range o.Cameras {
		out = append(
			out,
			robocache.Feature{
				Key:      cameraKey(i),
				Kind:     robocache.KindImage,
				DType:    robocache.Uint8,
				Shape:    []int{o.Height, o.Width, 3},
				Names:    jsonNames("height", "width", "channels"),
				Height:   o.Height,
				Width:    o.Width,
				Channels: 3,
				FPS:      fps,
			},
		)
	}
	for _, name := range o.otherStreams() {
		n, k := natives[name], width[name]
		out = append(
			out,
			numeric(n.key, robocache.Float32, nil, k, n.d),
			numeric(n.key+".recorded", robocache.Float64, nil, k),
			numeric(n.key+".count", robocache.Int64, nil, 1),
		)
	}
	if o.isDistorted() {
		out = append(out, numeric("observation.state.recorded", robocache.Float64, nil, 1))
		for i := range o.Cameras {
			out = append(out, numeric(cameraKey(i)+".recorded", robocache.Float64, nil, 1))
		}
	}
	return append(
		out,
		numeric("next.reward", robocache.Float32, nil, 1),
		numeric("next.done", robocache.Bool, nil, 1),
	)
}

// episode holds everything of one episode except its images.
type episode struct {
	length     int
	rows       []int64 // grid times of the rows
	timestamps []int64 // times at which state and action were recorded
	columns    map[string][]byte
	world      []state
	shots      [][]int64 // for each camera, the time of each row's image
}

// baseEpisode returns an episode without the streams that are faster than the rows.
func (o *Options) baseEpisode(e int, fps robocache.Rate) *episode {
	_, colour := o.taskOf(e)
	ep := &episode{
		columns: map[string][]byte{},
		world:   simulate(o.newRand(e, drawWorld), colour, o.endOf(e)+int64(o.Jitter)),
	}
	rows := o.rowTimes(e, fps)
	ep.length, ep.rows = len(rows), rows
	shake := func(purpose int) []int64 {
		rng := o.newRand(e, purpose)
		out := make([]int64, len(rows))
		for i, t := range rows {
			if out[i] = jitterTime(rng, t, int64(o.Jitter), fps); i > 0 {
				out[i] = max(out[i], out[i-1]+1000)
			}
		}
		return out
	}
	timestamps := shake(drawState)
	ep.timestamps = timestamps
	for i, t := range timestamps {
		s := worldAt(ep.world, t)
		c := s.command()
		// Speeds are left out. The motors follow the command within 50 ms, so a policy could read
		// the action from the speeds without looking at the images.
		_, hand := armPoints(s.q)
		ep.appendFloat32("observation.state", s.q[0], s.q[1], hand[0], hand[1])
		ep.appendFloat32("action", c[0], c[1])
		after := worldAt(ep.world, t+fps.Nanos(1))
		_, tip := armPoints(after.q)
		goal := after.discs[colour]
		ep.appendFloat32("next.reward", -math.Hypot(tip[0]-goal[0], tip[1]-goal[1]))
		done := byte(0)
		if i == len(rows)-1 {
			done = 1
		}
		ep.columns["next.done"] = append(ep.columns["next.done"], done)
		if o.isDistorted() {
			ep.appendSeconds("observation.state.recorded", t)
		}
	}
	for i := range o.Cameras {
		shots := timestamps // camera 0 and the state are recorded together
		if i > 0 {
			shots = shake(drawCamera + i)
		}
		ep.shots = append(ep.shots, shots)
		if o.isDistorted() {
			for _, t := range shots {
				ep.appendSeconds(cameraKey(i)+".recorded", t)
			}
		}
	}
	return ep
}

func (ep *episode) appendFloat32(key string, v ...float64) {
	for _, x := range v {
		ep.columns[key] = binary.LittleEndian.AppendUint32(
			ep.columns[key],
			math.Float32bits(float32(x)),
		)
	}
}

func (ep *episode) appendSeconds(key string, t int64) {
	ep.columns[key] = binary.LittleEndian.AppendUint64(
		ep.columns[key],
		math.Float64bits(float64(t)/1e9),
	)
}

func (o *Options) makeEpisode(e int, fps robocache.Rate, width map[string]int) (*episode, error) {
	ep := o.baseEpisode(e, fps)
	if width == nil { // the faster streams have their own clocks
		return ep, nil
	}
	for _, name := range o.otherStreams() {
		rate, err := rateOf(o.Rates[name])
		if err != nil {
			return nil, err
		}
		nat, timestamps := natives[name], o.nativeClock(e, streams[name], rate)
		last, hi := 0, 0
		for _, t := range ep.rows {
			lo := hi
			hi = countUntil(timestamps, t)
			ep.columns[nat.key+".count"] = binary.LittleEndian.AppendUint64(
				ep.columns[nat.key+".count"],
				uint64(hi-lo),
			)
			for j := range width[name] {
				if lo+j < hi {
					last = lo + j
				}
				s := worldAt(ep.world, timestamps[last])
				ep.appendFloat32(nat.key, nat.sample(&s)...)
				ep.appendSeconds(nat.key+".recorded", timestamps[last])
			}
		}
	}
	return ep, nil
}
