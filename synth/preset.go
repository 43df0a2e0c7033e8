package synth

import (
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/goatnote-inc/robocache"
)

// preset is a dataset of numeric streams, for measuring training. Timestamps and values depend only
// on seed and episode.
type preset struct {
	episodes int
	hz       float64  // rate of the rows; 0 = each trajectory has its own rate
	tasks    []string // the task of episode e is tasks[e % len(tasks)]
	streams  []presetStream
	length   func(o *Options, e int) int
	times    func(o *Options, e int) []int64 // for streams on the clock of the rows
	make     func(o *Options, e int, put func(key string, times []int64, values []float64))
}

// presetStream is one of its streams; hz 0 = the clock of the rows.
type presetStream struct {
	key string
	d   int
	hz  float64
}

const (
	stateKey  = "observation.proprio"
	visionKey = "observation.vision"
	actionKey = "action"
)

var presets = map[string]preset{
	"abc": {
		episodes: 130_000,
		hz:       abcHZ,
		tasks: []string{
			"fold the towel", "pour the rice", "close the box", "sort the screws", "hang the cup",
		},
		streams: []presetStream{
			{"observation.left_arm", abcJoints, abcHZ},
			{"observation.right_arm", abcJoints, abcHZ},
			{actionKey, 2 * abcJoints, 0},
		},
		length: abcRows,
		make:   makeABC,
	},
	"heterogeneous": {
		episodes: 5000,
		tasks:    []string{"follow the waves"},
		streams:  []presetStream{{stateKey, 14, 0}, {actionKey, 7, 0}},
		length:   robotRows,
		times:    robotTimestamps,
		make:     makeRobot,
	},
	"rtx": {
		episodes: 1000,
		hz:       10,
		tasks:    []string{"follow what is seen"},
		streams:  []presetStream{{visionKey, 512, 30}, {stateKey, 14, 100}, {actionKey, 7, 0}},
		length:   func(*Options, int) int { return rtxSeconds * 10 },
		make:     makeRTX,
	},
}

// Presets returns the legal values of Options.Preset.
func Presets() []string { return slices.Sorted(maps.Keys(presets)) }

// GridHZ is the rate at which formats with one clock store a preset.
const GridHZ = "50"

// newPreset returns a dataset of a preset.
func newPreset(o Options) (*Dataset, error) {
	p, ok := presets[o.Preset]
	if !ok {
		return nil, misuseError("preset", strings.Join(Presets(), " or "), strconv.Quote(o.Preset))
	}
	if o.Episodes == 0 {
		o.Episodes = p.episodes
	}
	if o.Episodes < 0 || o.Episodes > maxEpisodes*16 {
		return nil, misuseError(
			"episodes",
			fmt.Sprintf("1 to %d", maxEpisodes*16),
			strconv.Itoa(o.Episodes),
		)
	}
	if o.Cap < 0 || o.Cap == 1 || o.Cap > 0 && p.hz > 0 {
		return nil, misuseError(
			"cap",
			"2 or more rows, of the heterogeneous preset",
			strconv.Itoa(o.Cap),
		)
	}
	o.Robot, o.Tasks = "synthetic", p.tasks
	d := &Dataset{
		options: o,
		preset:  &p,
		streams: map[string]*stream{},
		kept:    map[int]*recording{},
		tasks:   make([]int, o.Episodes),
	}
	d.offered = robocache.Capabilities{GatherRagged: d.GatherRagged}
	if p.hz > 0 {
		d.fps, _ = rateOf(p.hz)
	}
	d.info = robocache.Info{
		URI:      fmt.Sprintf("synth:%s:%d", o.Preset, o.Seed),
		Format:   "synth",
		Version:  "1",
		Robot:    o.Robot,
		FPS:      d.fps,
		Episodes: o.Episodes,
	}
	for i, text := range p.tasks {
		d.info.Tasks = append(d.info.Tasks, robocache.Task{Index: int64(i), Text: text})
	}
	for _, s := range p.streams {
		f := robocache.Feature{
			Key:   s.key,
			Kind:  robocache.KindNumeric,
			DType: robocache.Float32,
			Shape: []int{s.d},
			FPS:   d.fps,
		}
		if s.hz > 0 {
			f.Clock, d.info.Clock = s.key, actionKey
			f.FPS, _ = rateOf(s.hz)
		}
		d.info.Features = append(d.info.Features, f)
		d.streams[s.key] = &stream{feature: f}
	}
	for e := range o.Episodes {
		d.tasks[e] = e % len(p.tasks)
		n := p.length(&o, e)
		d.lengths, d.info.Frames = append(d.lengths, n), d.info.Frames+int64(n)
	}
	return d, nil
}

// recordPreset generates an episode of a preset.
func (d *Dataset) recordPreset(r *recording, e int) {
	r.episode = &episode{columns: map[string][]byte{}}
	d.preset.make(&d.options, e, func(key string, times []int64, values []float64) {
		b := make([]byte, 0, 4*len(values))
		for _, v := range values {
			b = binary.LittleEndian.AppendUint32(b, math.Float32bits(float32(v)))
		}
		r.columns[key], r.clocked[d.streams[key].feature.Clock] = b, &clocked{times, times}
	})
	r.length = d.lengths[e]
}

// robotHZ are the rates of the heterogeneous robots: robot i mod 5.
var robotHZ = []int64{30, 50, 100, 125, 333}

// robotTimes returns the rate, end and row count of a trajectory: 1 to 4 s at the robot's rate. If
// Cap limits the number of rows, they are spread over the same time and end is set.
func robotTimes(o *Options, e int) (robocache.Rate, int64, int) {
	rate := robocache.Rate{Num: robotHZ[e%len(robotHZ)], Den: 1}
	seconds := 1 + float64(3*o.newRand(e, drawLength).Float64())
	n, end := int(seconds*rate.Float()), int64(0)
	if o.Cap > 0 && n > o.Cap {
		n, end = o.Cap, int64(math.Round(seconds*1e9))
	}
	return rate, end, n
}

func robotRows(o *Options, e int) int {
	_, _, n := robotTimes(o, e)
	return n
}

func robotTimestamps(o *Options, e int) []int64 {
	rate, end, n := robotTimes(o, e)
	times := make([]int64, n)
	for k := range times {
		if times[k] = rate.Nanos(int64(k)); end > 0 {
			times[k] = int64(math.Round(float64(end) * float64(k) / float64(n-1)))
		}
	}
	return times
}

// robotPool holds memory for the values, which put copies.
var robotPool = sync.Pool{New: func() any { return new([]float64) }}

// makeRobot moves each of 7 joints by the sum of two sines. The state is this sum with noise, and
// its derivative.
func makeRobot(o *Options, e int, put func(key string, times []int64, values []float64)) {
	times := robotTimestamps(o, e)
	n := len(times)
	rng := o.newRand(e, drawWorld)
	var waves [7][2]wave
	for j := range waves {
		waves[j] = [2]wave{newWave(rng, 0.3, 1, 0.3, 0.8), newWave(rng, 1, 2, 0.1, 0.3)}
	}
	held := robotPool.Get().(*[]float64)
	defer robotPool.Put(held)
	*held = slices.Grow((*held)[:0], 21*n)
	action, state := (*held)[:0:7*n], (*held)[7*n:21*n]
	noise := o.newRand(e, drawState)
	for k, t := range times {
		for j, w := range waves {
			x0, v0 := w[0].valueAt(t)
			x1, v1 := w[1].valueAt(t)
			action = append(action, x0+x1)
			state[14*k+j], state[14*k+7+j] = x0+x1+float64(0.01*noise.NormFloat64()), v0+v1
		}
	}
	put(stateKey, times, state)
	put(actionKey, times, action)
}

// wave is a sine with frequency in rad/s, amplitude and phase.
type wave struct{ w, a, phase float64 }

func newWave(rng *rand.Rand, f0, f1, a0, a1 float64) wave {
	between := func(lo, hi float64) float64 { return lo + float64((hi-lo)*rng.Float64()) }
	return wave{2 * math.Pi * between(f0, f1), between(a0, a1), between(0, 2*math.Pi)}
}

// valueAt returns the value and its derivative.
func (w *wave) valueAt(t int64) (x, v float64) {
	s, c := math.Sincos(float64(w.w*float64(t)*1e-9) + w.phase)
	return float64(w.a * s), float64(float64(w.a*w.w) * c)
}

// Constants of the preset abc: small episodes of two arms with seven joints and a gripper each.
const (
	abcHZ     = 10
	abcJoints = 8
)

// abcRows returns the number of rows of an episode: 1 to 3 s.
func abcRows(o *Options, e int) int {
	return abcHZ + int(2*abcHZ*o.newRand(e, drawLength).Float64())
}

// makeABC moves each joint of the arms by a sine. The action is the position of the joints at the
// next row.
func makeABC(o *Options, e int, put func(key string, times []int64, values []float64)) {
	rng := o.newRand(e, drawWorld)
	var waves [2 * abcJoints]wave
	for i := range waves {
		waves[i] = newWave(rng, 0.2, 1, 0.3, 1)
	}
	rate := robocache.Rate{Num: abcHZ, Den: 1}
	n := abcRows(o, e)
	times := make([]int64, n)
	var arms [2][]float64
	var action []float64
	for k := range times {
		times[k] = rate.Nanos(int64(k))
		for i := range waves {
			x, _ := waves[i].valueAt(times[k])
			next, _ := waves[i].valueAt(rate.Nanos(int64(k + 1)))
			arms[i/abcJoints] = append(arms[i/abcJoints], x)
			action = append(action, next)
		}
	}
	put("observation.left_arm", times, arms[0])
	put("observation.right_arm", times, arms[1])
	put(actionKey, times, action)
}

const (
	rtxSeconds = 5
	rtxSeen    = 8 // number of vision values that matter; the others are noise
)

// makeRTX generates three streams, each with its own rate. The action is tanh of a fixed linear map
// of the state and of the first vision values.
func makeRTX(o *Options, e int, put func(key string, times []int64, values []float64)) {
	rng := o.newRand(e, drawWorld)
	var waves [14 + rtxSeen]wave
	for i := range waves {
		waves[i] = newWave(rng, 0.2, 1.5, 0.3, 1)
	}
	grid := func(hz int64) (times []int64) {
		for k := range rtxSeconds * hz {
			times = append(times, robocache.Rate{Num: hz, Den: 1}.Nanos(k))
		}
		return times
	}
	seen, felt, acted := grid(30), grid(100), grid(10)
	noise := o.newRand(e, drawState)
	vision := make([]float64, 0, 512*len(seen))
	state := make([]float64, 0, 14*len(felt))
	action := make([]float64, 7*len(acted))
	for _, t := range seen {
		for i := range 512 {
			x := noise.NormFloat64()
			if i < rtxSeen {
				x, _ = waves[14+i].valueAt(t)
			}
			vision = append(vision, x)
		}
	}
	for _, t := range felt {
		for i := range 14 {
			x, _ := waves[i].valueAt(t)
			state = append(state, x)
		}
	}
	weights := rand.New(rand.NewPCG(0, 0)) // a fixed seed, so that the map is the same in every set
	for i := range waves {
		for j := range 7 {
			weight := float64(0.5 * weights.NormFloat64())
			for k, t := range acted {
				x, _ := waves[i].valueAt(t)
				action[7*k+j] += float64(weight * x)
			}
		}
	}
	for i, x := range action {
		action[i] = math.Tanh(x)
	}
	put(visionKey, seen, vision)
	put(stateKey, felt, state)
	put(actionKey, acted, action)
}
