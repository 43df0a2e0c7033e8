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

// native is a stream on a clock of its own: [D] values a sample.
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
	"force": {"observation.force", 3, func(s *state) []float64 { f := s.force(); return f[:] }},
}

const depthKey = "observation.depth.cam_0"

// Streams of random numbers, one a purpose and episode: what one of them draws moves no other.
const (
	drawWorld = iota
	drawRows
	drawState
	drawCamera = 16
	drawLength = 40
	drawDeform = 48  // + index: late starts, drop-outs
	drawClock  = 112 // + index
	drawPoints = 144
	drawSkew   = 80 // + index, of episode 0: offset and speed of a stream's clock
)

func (o *Options) rng(episode, purpose int) *rand.Rand {
	return rand.New(rand.NewPCG(o.Seed, uint64(episode)<<8|uint64(purpose)))
}

// end is when an episode ends: Seconds, or up to Spread of it longer or shorter.
func (o *Options) end(episode int) int64 {
	s := o.Seconds
	if o.Spread > 0 {
		s *= 1 + float64(o.Spread*(2*o.rng(episode, drawLength).Float64()-1))
	}
	return int64(math.Round(s * 1e9))
}

// task of an episode: which text, and the colour that it is about.
func (o *Options) task(episode int) (text, colour int) {
	text = (episode + int(o.Seed%uint64(len(o.Tasks)))) % len(o.Tasks)
	return text, text % discCount
}

// rows of an episode: the grid times of the rows that were recorded.
func (o *Options) rows(episode int, fps robocache.Rate) []int64 {
	return clock(o.rng(episode, drawRows), fps, o.end(episode), 0, o.Gaps)
}

// nativeClock is when the samples of a stream beside the rows were taken: the same whatever holds
// them.
func (o *Options) nativeClock(episode, stream int, rate robocache.Rate) []int64 {
	return clock(o.rng(episode, drawClock+stream), rate, o.end(episode), int64(o.Jitter), o.Gaps)
}

// until counts the samples up to a time. Those of a row come after the row before it, so that no
// sample is lost where rows are.
func until(timestamps []int64, t int64) int {
	return sort.Search(len(timestamps), func(i int) bool { return timestamps[i] > t })
}

// widths finds, for each native stream, the largest number of samples that a row has anywhere in
// the dataset, and says how many come after the last rows.
func (o *Options) widths(fps robocache.Rate) (map[string]int, []robocache.Finding, error) {
	out := map[string]int{}
	var found []robocache.Finding
	for _, name := range o.others() {
		rate, err := rateOf(o.Rates[name])
		if err != nil {
			return nil, nil, err
		}
		k, after := 1, 0
		for e := range o.Episodes {
			timestamps, lo := o.nativeClock(e, streams[name], rate), 0
			for _, t := range o.rows(e, fps) {
				hi := until(timestamps, t)
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
					"%d samples were taken after the last row of their episode: rows hold those up to their own time",
					after,
				),
			})
		}
	}
	return out, found, nil
}

func names(list ...string) json.RawMessage {
	b, _ := json.Marshal(list)
	return b
}

func camera(i int) string { return fmt.Sprintf("observation.images.cam_%d", i) }

func (o *Options) recorded() bool { return o.Jitter > 0 || o.Gaps > 0 }

// features of the dataset, in order.
func (o *Options) features(width map[string]int, fps robocache.Rate) []robocache.Feature {
	numeric := func(key string, d robocache.DType, n json.RawMessage, shape ...int) robocache.Feature {
		return robocache.Feature{
			Key:   key,
			Kind:  robocache.KindNumeric,
			DType: d,
			Shape: shape,
			Names: n,
		}
	}
	out := []robocache.Feature{
		numeric("observation.state", robocache.Float32, names("q0", "q1", "x", "y"), 4),
		numeric("action", robocache.Float32, names("v0", "v1"), 2),
	}
	for i := range o.Cameras {
		out = append(
			out,
			robocache.Feature{
				Key:      camera(i),
				Kind:     robocache.KindImage,
				DType:    robocache.Uint8,
				Shape:    []int{o.Height, o.Width, 3},
				Names:    names("height", "width", "channels"),
				Height:   o.Height,
				Width:    o.Width,
				Channels: 3,
				FPS:      fps,
			},
		)
	}
	for _, name := range o.others() {
		n, k := natives[name], width[name]
		out = append(
			out,
			numeric(n.key, robocache.Float32, nil, k, n.d),
			numeric(n.key+".recorded", robocache.Float64, nil, k),
			numeric(n.key+".count", robocache.Int64, nil, 1),
		)
	}
	if o.recorded() {
		out = append(out, numeric("observation.state.recorded", robocache.Float64, nil, 1))
		for i := range o.Cameras {
			out = append(out, numeric(camera(i)+".recorded", robocache.Float64, nil, 1))
		}
	}
	return append(
		out,
		numeric("next.reward", robocache.Float32, nil, 1),
		numeric("next.done", robocache.Bool, nil, 1),
	)
}

// episode is everything of one episode but its images.
type episode struct {
	length     int
	rows       []int64 // the grid times of the rows
	timestamps []int64 // when state and action were recorded
	columns    map[string][]byte
	world      []state
	shots      [][]int64 // when each camera took each row's image
}

// base is an episode without the streams that are faster than the rows.
func (o *Options) base(e int, fps robocache.Rate) *episode {
	_, colour := o.task(e)
	ep := &episode{
		columns: map[string][]byte{},
		world:   simulate(o.rng(e, drawWorld), colour, o.end(e)+int64(o.Jitter)),
	}
	rows := o.rows(e, fps)
	ep.length, ep.rows = len(rows), rows
	shake := func(purpose int) []int64 {
		rng := o.rng(e, purpose)
		out := make([]int64, len(rows))
		for i, t := range rows {
			if out[i] = shaken(rng, t, int64(o.Jitter), fps); i > 0 {
				out[i] = max(out[i], out[i-1]+1000)
			}
		}
		return out
	}
	timestamps := shake(drawState)
	ep.timestamps = timestamps
	for i, t := range timestamps {
		s := at(ep.world, t)
		c := s.command()
		// No speeds: the motors follow the command within 50 ms, so that a policy could read the
		// action off them and never look.
		_, hand := arm(s.q)
		ep.put32("observation.state", s.q[0], s.q[1], hand[0], hand[1])
		ep.put32("action", c[0], c[1])
		after := at(ep.world, t+fps.Nanos(1))
		_, tip := arm(after.q)
		goal := after.discs[colour]
		ep.put32("next.reward", -math.Hypot(tip[0]-goal[0], tip[1]-goal[1]))
		done := byte(0)
		if i == len(rows)-1 {
			done = 1
		}
		ep.columns["next.done"] = append(ep.columns["next.done"], done)
		if o.recorded() {
			ep.put64("observation.state.recorded", t)
		}
	}
	for i := range o.Cameras {
		shots := timestamps // camera 0 and the state are taken together
		if i > 0 {
			shots = shake(drawCamera + i)
		}
		ep.shots = append(ep.shots, shots)
		if o.recorded() {
			for _, t := range shots {
				ep.put64(camera(i)+".recorded", t)
			}
		}
	}
	return ep
}

func (ep *episode) put32(key string, v ...float64) {
	for _, x := range v {
		ep.columns[key] = binary.LittleEndian.AppendUint32(
			ep.columns[key],
			math.Float32bits(float32(x)),
		)
	}
}

func (ep *episode) put64(key string, t int64) {
	ep.columns[key] = binary.LittleEndian.AppendUint64(
		ep.columns[key],
		math.Float64bits(float64(t)/1e9),
	)
}

func (o *Options) episode(e int, fps robocache.Rate, width map[string]int) (*episode, error) {
	ep := o.base(e, fps)
	if width == nil { // they have clocks of their own
		return ep, nil
	}
	for _, name := range o.others() {
		rate, err := rateOf(o.Rates[name])
		if err != nil {
			return nil, err
		}
		nat, timestamps := natives[name], o.nativeClock(e, streams[name], rate)
		last, hi := 0, 0
		for _, t := range ep.rows {
			lo := hi
			hi = until(timestamps, t)
			ep.columns[nat.key+".count"] = binary.LittleEndian.AppendUint64(
				ep.columns[nat.key+".count"],
				uint64(hi-lo),
			)
			for j := range width[name] {
				if lo+j < hi {
					last = lo + j
				}
				s := at(ep.world, timestamps[last])
				ep.put32(nat.key, nat.sample(&s)...)
				ep.put64(nat.key+".recorded", timestamps[last])
			}
		}
	}
	return ep, nil
}
