package align

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/jsonmeta"
)

// Config describes how the streams of an episode are aligned on one timeline. The JSON keys are
// Python's keyword names. Durations in JSON are seconds, or text with a unit.
type Config struct {
	// streams; none = all except the format's bookkeeping columns
	Keys  []string       `json:"keys,omitempty"`
	HZ    robocache.Rate `json:"hz,omitzero"`        // a uniform timeline at this rate, or
	Times []int64        `json:"times_ns,omitempty"` // these times, in any order
	// the extent of a uniform timeline: "intersection" (default), "union", or a stream's key
	Extent string           `json:"extent,omitempty"`
	Modes  map[string]Mode  `json:"modes,omitempty"`
	Edge   PerKey[Edge]     `json:"edge,omitzero"`
	MaxGap PerKey[Nanos]    `json:"max_gap,omitzero"` // 0 = none
	Offset map[string]Nanos `json:"offset,omitempty"` // added to the timestamps of a stream
	// Latency is how old a sample is when it gets its timestamp. It is subtracted from the
	// timestamps of a stream.
	Latency map[string]Latency `json:"latency,omitempty"`
	CausalOptions
	// Drift is the rate error of a stream's clock (robocache.Drift). It is removed before offset and
	// latency are applied: time = at + (timestamp − at)/(1 + ppm/10⁶) + offset − latency. The moment
	// at which the clock was right is at, by default the stream's first timestamp in the episode.
	Drift map[string]robocache.Drift `json:"drift,omitempty"`
	// for formats with several timestamps per row: "header", "publish" or "log"
	// (robocache.Capabilities.Clocks)
	Clock  map[string]string  `json:"clock,omitempty"`
	Window Nanos              `json:"window,omitempty"` // of mean; 0 = the period of hz
	Period map[string]float64 `json:"period,omitempty"` // of angle; missing = 2π
	// Quats names the channels of the quaternions in a stream under slerp. In other streams every
	// four channels are one.
	Quats map[string][][4]int `json:"quats,omitempty"`
	// Rotations names the channels of a stream that are rotations, and their form. Slerp is then the
	// stream's mode, unless another mode is named. Other streams have the rotations that their
	// feature states.
	Rotations map[string][]robocache.Rotation `json:"rotations,omitempty"`
	// Relative states which channels of a stream are relative (delta actions), or that none are. The
	// channels of other streams are relative if the feature or the names of the channels say so
	// (robocache.Feature.RelativeChannels). Relative channels are summed over the time of a row,
	// unless another mode is named.
	Relative map[string]robocache.Relative `json:"relative,omitempty"`
	// DTypes selects an output type. Integers are computed with only if the output type is floating
	// point.
	DTypes map[string]robocache.DType `json:"dtypes,omitempty"`
	// maximal bytes of all results; 0 = 1 GiB
	Budget int64 `json:"memory_budget,omitempty"`
}

// CausalOptions are the options of causal alignment: observations use only samples that have
// arrived at the tick (align.A21).
type CausalOptions struct {
	Causal bool `json:"causal,omitempty"`
	// Delay is how long before the tick a stream is evaluated. Modes other than previous and
	// nearest need it, so that both neighbors of the evaluated time have arrived.
	Delay PerKey[Nanos] `json:"delay,omitzero"`
	// MaxAge is the maximum age of a held sample at the tick: 1 s by default; 0 = no limit.
	MaxAge PerKey[Nanos] `json:"max_age,omitzero"`
	// Stale states what happens to a row whose sample is older, or that has none.
	Stale PerKey[Stale] `json:"stale,omitzero"`
	// Targets names streams that are labels and may look ahead, besides actions and rewards.
	Targets []string `json:"targets,omitempty"`
	// ArrivalDelay is how long a sample takes from its recorded arrival, or from its timestamp if
	// the recording has no arrival times, until a policy can use it.
	ArrivalDelay PerKey[Nanos] `json:"arrival_delay,omitzero"`
}

// Stale states what happens to a causal row if no sample is young enough. "mask" (the default) marks
// the row; with "error" the alignment fails.
type Stale string

// Values of Stale.
const (
	StaleMask  Stale = "mask"
	StaleError Stale = "error"
)

// Latency is the option latency of a stream: a duration, or a distribution of ages. In JSON it is a
// duration, {"measured": true}, or {"uniform": [low, high]}.
type Latency struct {
	Fixed Nanos
	Draw  AgeDraw
}

// AgeDraw states from which distribution the loader draws, for each training sample, how old the
// newest usable sample is. The zero value draws nothing.
type AgeDraw struct {
	Measured bool     // one of the delays between a timestamp and its arrival in the episode
	Uniform  [2]Nanos // evenly between two ages
}

// IsZero reports whether nothing is drawn.
func (d AgeDraw) IsZero() bool { return d == AgeDraw{} }

// latencyJSON is the JSON of a drawn latency.
type latencyJSON struct {
	Measured bool     `json:"measured,omitempty"`
	Uniform  [2]Nanos `json:"uniform,omitzero"`
}

// UnmarshalJSON reads a duration or a distribution.
func (l *Latency) UnmarshalJSON(b []byte) error {
	*l = Latency{}
	if b = bytes.TrimSpace(b); len(b) == 0 || b[0] != '{' {
		return l.Fixed.UnmarshalJSON(b)
	}
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.DisallowUnknownFields()
	var j latencyJSON
	if err := dec.Decode(&j); err != nil {
		return err
	}
	low, high := j.Uniform[0], j.Uniform[1]
	isUniform := j.Uniform != [2]Nanos{}
	if j.Measured == isUniform || low < 0 || high < low {
		return robocache.Misuse("align", nil, "latency").
			Expected(`a duration, {"measured": true} or {"uniform": [low, high]}`, string(b))
	}
	l.Draw = AgeDraw(j)
	return nil
}

// MarshalJSON writes the form that UnmarshalJSON reads.
func (l Latency) MarshalJSON() ([]byte, error) {
	if l.Draw.IsZero() {
		return l.Fixed.MarshalJSON()
	}
	return json.Marshal(latencyJSON(l.Draw))
}

// Nanos is a duration in ns. In JSON it is seconds, or text with a unit (robocache.ParseDuration).
type Nanos int64

// UnmarshalJSON reads a duration.
func (n *Nanos) UnmarshalJSON(b []byte) error {
	ns, err := robocache.ParseDuration(b)
	*n = Nanos(ns)
	return err
}

// MarshalJSON writes the form that UnmarshalJSON reads, without loss.
func (n Nanos) MarshalJSON() ([]byte, error) { return json.Marshal(robocache.NanosText(int64(n))) }

// PerKey is one value for all streams, or one value per stream. In JSON it is the value itself, or
// an object.
type PerKey[T comparable] struct {
	All  T
	Keys map[string]T
	Said bool // All was given explicitly, even if it is zero
}

// Says reports whether a value was chosen for a stream.
func (p *PerKey[T]) Says(key string) bool {
	_, ok := p.Keys[key]
	return ok || p.hasDefault()
}

// hasDefault reports whether a value was chosen for the streams that Keys does not name.
func (p *PerKey[T]) hasDefault() bool { return p.Said || p.All != *new(T) }

// For returns the value for a stream.
func (p *PerKey[T]) For(key string) T {
	if v, ok := p.Keys[key]; ok {
		return v
	}
	return p.All
}

// IsZero reports whether nothing was chosen.
func (p PerKey[T]) IsZero() bool { return p.Keys == nil && !p.hasDefault() }

// UnmarshalJSON reads a value or an object of values. The key "*" of the object is the value for
// the other streams.
func (p *PerKey[T]) UnmarshalJSON(b []byte) error {
	*p = PerKey[T]{}
	switch b = bytes.TrimSpace(b); {
	case bytes.Equal(b, []byte("null")):
		return nil
	case len(b) == 0 || b[0] != '{':
		p.Said = true
		return json.Unmarshal(b, &p.All)
	}
	err := json.Unmarshal(b, &p.Keys)
	p.All, p.Said = p.Keys["*"] // the value, and whether the object has the key
	delete(p.Keys, "*")
	return err
}

// MarshalJSON is the inverse of UnmarshalJSON.
func (p PerKey[T]) MarshalJSON() ([]byte, error) {
	if p.Keys == nil {
		return json.Marshal(p.All)
	}
	m := maps.Clone(p.Keys)
	if p.hasDefault() {
		m["*"] = p.All
	}
	return json.Marshal(m)
}

// PresetCausal is the name of the configuration {"causal": true} in JSON.
const PresetCausal = "causal"

// UnmarshalJSON reads the forms of ParseConfig.
func (c *Config) UnmarshalJSON(b []byte) (err error) {
	*c, err = ParseConfig(b)
	return err
}

// ParseConfig reads a configuration from JSON: an object, or PresetCausal. An unknown key is an
// error that suggests the nearest known one.
func ParseConfig(b []byte) (Config, error) {
	if text := string(bytes.TrimSpace(b)); text == strconv.Quote(PresetCausal) {
		return Config{CausalOptions: CausalOptions{Causal: true}}, nil
	} else if strings.HasPrefix(text, `"`) {
		return Config{}, robocache.Misuse("align", nil, "align").
			Expected(`an object, or "causal"`, text)
	}
	type plainConfig Config // without UnmarshalJSON
	var c plainConfig
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&c); err != nil {
		var e *robocache.Error
		if !errors.As(jsonmeta.OptionError("align", "align", b, err), &e) {
			return Config{}, err
		}
		var keys map[string]json.RawMessage
		_ = json.Unmarshal(b, &keys)
		var known []string
		for _, f := range reflect.VisibleFields(reflect.TypeFor[Config]()) {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			known = append(known, name)
		}
		for k := range keys {
			if !slices.Contains(known, k) {
				e.Hint = nearestHint(k, known)
			}
		}
		return Config{}, e
	}
	if _, err := dec.Token(); err != io.EOF {
		return Config{}, robocache.Misuse(
			"align",
			nil,
			"the configuration goes on after its object",
		).
			Expected("one object", "")
	}
	return Config(c), nil
}

// validateNames checks the settings that need no data: the named streams, and the timeline.
func (c *Config) validateNames(info *robocache.Info) error {
	names := append(featureKeys(info), "task")
	for _, l := range append(c.namedByOption(), namedStreams{"keys", slices.Clone(c.Keys)}) {
		slices.Sort(l.keys)
		for _, k := range l.keys {
			if !slices.Contains(names, k) {
				return robocache.Misuse(
					"align",
					robocache.Where{"stream": k},
					"%s names a stream that the dataset does not have",
					l.option,
				).
					WithHint("%s", nearestHint(k, names))
			}
		}
	}
	misuse := func(msg, want, got string) error {
		return robocache.Misuse("align", nil, "%s", msg).Expected(want, got)
	}
	switch {
	case c.HZ.Zero() && c.Times == nil:
		return misuse("", "either hz or times", "neither")
	case !c.HZ.Zero() && c.Times != nil:
		return misuse("", "either hz or times", "both")
	case !c.HZ.Zero() && (c.HZ.Num < 0 || c.HZ.Den <= 0):
		return misuse("hz", "a rate > 0", c.HZ.String())
	case c.Times != nil && c.Extent != "":
		return misuse("extent has no meaning beside times", "one of them", "both")
	case c.Window < 0:
		return misuse("window", "0 or more ns", strconv.FormatInt(int64(c.Window), 10))
	}
	if err := c.CheckCausal(); err != nil {
		return err
	}
	return c.CheckShifts()
}

func featureKeys(info *robocache.Info) (keys []string) {
	for i := range info.Features {
		keys = append(keys, info.Features[i].Key)
	}
	return keys
}

// namedStreams is the streams that an option names.
type namedStreams struct {
	option string
	keys   []string
}

func (c *Config) namedByOption() []namedStreams {
	return []namedStreams{
		{"modes", keysOf(c.Modes)},
		{"edge", keysOf(c.Edge.Keys)},
		{"max_gap", keysOf(c.MaxGap.Keys)},
		{"offset", keysOf(c.Offset)},
		{"latency", keysOf(c.Latency)},
		{"delay", keysOf(c.Delay.Keys)},
		{"max_age", keysOf(c.MaxAge.Keys)},
		{"stale", keysOf(c.Stale.Keys)},
		{"arrival_delay", keysOf(c.ArrivalDelay.Keys)},
		{"targets", slices.Clone(c.Targets)},
		{"drift", keysOf(c.Drift)},
		{"clock", keysOf(c.Clock)},
		{"period", keysOf(c.Period)},
		{"quats", keysOf(c.Quats)},
		{"rotations", keysOf(c.Rotations)},
		{"relative", keysOf(c.Relative)},
		{"dtypes", keysOf(c.DTypes)},
	}
}

func keysOf[V any](m map[string]V) []string { return slices.Collect(maps.Keys(m)) }

// Named returns one list of streams for each option that can name some.
func (c *Config) Named() (out [][]string) {
	for _, l := range c.namedByOption() {
		out = append(out, l.keys)
	}
	return out
}
