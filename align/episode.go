package align

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/kernel"
)

// Aligned is an episode on one timeline.
type Aligned struct {
	Times   []int64
	Streams []Stream // in the order of the dataset, or of Config.Keys
}

// Stream is one aligned stream. Exactly one of Data, Text and Rows is set.
type Stream struct {
	Key   string
	Kind  robocache.Kind
	Mode  Mode
	Edge  Edge
	DType robocache.DType
	Shape []int    // of one row
	Data  []byte   // numeric: [T, Shape…], little-endian
	Text  []string // text and events
	// frames, point clouds and ragged rows: the row of the stream that has the value; -1 = none
	// (edge mask, or a row without a value)
	Rows  []int32
	Valid []uint8 // [T]: 1 = inside the data and not in a gap
}

// Stream returns the stream with the given key, or nil.
func (a *Aligned) Stream(key string) *Stream {
	for i := range a.Streams {
		if a.Streams[i].Key == key {
			return &a.Streams[i]
		}
	}
	return nil
}

const defaultBudget = 1 << 30

// Episode aligns the streams of the episode at position ep on one timeline. DefaultMode returns the
// default modes.
func Episode(ctx context.Context, ds robocache.Dataset, ep int, cfg Config) (*Aligned, error) {
	out, err := newAligner(ctx, ds, ep, cfg).alignEpisode()
	if err != nil {
		return nil, robocache.At(err, robocache.Where{"episode": ds.Info().EpisodeIndex(ep)})
	}
	return out, nil
}

type aligner struct {
	ctx        context.Context
	ds         robocache.Dataset
	ep         int
	cfg        Config
	budgetLeft int64 // bytes
	streams    []source
	// distinct lists of timestamps or arrivals, which streams may share
	clocks [][]int64
	plans  []cachedPlan
	into   []byte // memory for the values of numeric streams; nil: they are allocated
}

// newAligner returns an aligner with its own budget.
func newAligner(ctx context.Context, ds robocache.Dataset, ep int, cfg Config) *aligner {
	a := &aligner{ctx: ctx, ds: ds, ep: ep, cfg: cfg, budgetLeft: cfg.Budget}
	if a.budgetLeft <= 0 {
		a.budgetLeft = defaultBudget
	}
	return a
}

// source is a stream to be aligned, with its resolved options.
type source struct {
	feature robocache.Feature
	opt     Options
	clock   int   // index into clocks
	arrived int   // index into clocks of the arrivals of a causal stream
	summed  []int // sum: the channels that are summed
}

type cachedPlan struct {
	clock, arrived int
	opt            Options
	plan           *kernel.Plan
}

func (a *aligner) alignEpisode() (_ *Aligned, err error) {
	info := a.ds.Info()
	if a.ep < 0 || a.ep >= info.Episodes {
		return nil, robocache.NotFound("align", robocache.Where{"position": a.ep}, "").
			Expected("a position below "+strconv.Itoa(info.Episodes), strconv.Itoa(a.ep))
	}
	if err := a.cfg.validateNames(info); err != nil {
		return nil, err
	}
	times, err := a.prepareStreams()
	if err != nil {
		return nil, err
	}
	out := &Aligned{Times: times, Streams: make([]Stream, 0, len(a.streams))}
	for i := range a.streams {
		s := &a.streams[i]
		p, err := a.planFor(s, times)
		if err := robocache.At(err, robocache.Where{"stream": s.feature.Key}); err != nil {
			return nil, err
		}
		r, err := a.makeStream(s, p)
		if err := robocache.At(err, robocache.Where{"stream": s.feature.Key}); err != nil {
			return nil, err
		}
		out.Streams = append(out.Streams, *r)
	}
	return out, nil
}

// prepareStreams resolves the options of each stream, reads its timestamps, and returns the
// timeline.
func (a *aligner) prepareStreams() ([]int64, error) {
	for _, f := range a.selectFeatures(a.ds.Info()) {
		s, err := a.openStream(f)
		if err != nil {
			return nil, err
		}
		a.streams = append(a.streams, s)
	}
	return a.makeTimeline()
}

// openStream resolves the options of a stream and reads its timestamps and arrivals.
func (a *aligner) openStream(f robocache.Feature) (s source, err error) {
	if s, err = a.resolveOptions(f); err != nil {
		return s, err
	}
	if s.clock, err = a.clockIndex(f.Key); err != nil {
		return s, err
	}
	s.arrived = s.clock
	if s.opt.IsCausal {
		s.arrived, _, err = a.arrivalIndex(&s)
	}
	return s, err
}

// selectFeatures returns the features to align. "task" is the text that every row of every dataset
// has.
func (a *aligner) selectFeatures(info *robocache.Info) []robocache.Feature {
	var out []robocache.Feature
	if a.cfg.Keys == nil {
		for _, f := range info.Features {
			if !f.Default {
				out = append(out, f)
			}
		}
		return out
	}
	for _, k := range a.cfg.Keys {
		if f := info.Feature(k); f != nil {
			out = append(out, *f)
		} else {
			out = append(
				out,
				robocache.Feature{
					Key:   k,
					Kind:  robocache.KindText,
					DType: robocache.String,
					Shape: []int{1},
				},
			)
		}
	}
	return out
}

// resolveOptions resolves the options of one stream and rejects those that its kind does not allow
// (align.A12).
func (a *aligner) resolveOptions(f robocache.Feature) (source, error) {
	k := f.Key
	s := source{
		feature: f,
		opt:     Options{Edge: a.cfg.Edge.For(k), MaxGap: int64(a.cfg.MaxGap.For(k)), Stream: k},
	}
	mode, chosen := a.cfg.Mode(&f)
	s.opt.Mode, s.opt.Hold = mode, f.Latched && !chosen
	var err error
	if s.opt.Causality, err = a.cfg.CausalityOf(&f, HasArrivalTimes(a.ds, k)); err != nil {
		return s, err
	}
	if !a.cfg.Latency[k].Draw.IsZero() {
		return s, s.opt.streamError(robocache.ErrUnsupported, nil,
			"a drawn latency: only samples of a loader have random draws", "", "")
	}
	if s.opt.IsCausal && a.cfg.Stale.For(k) == StaleError {
		s.opt.Edge = EdgeError
	}
	if err := a.checkComputable(&f, &s.opt); err != nil {
		return s, err
	}
	switch mode {
	case Sum: // a row sums the samples until the next row
		if !a.cfg.HZ.Zero() {
			s.opt.After = nanos(a.cfg.HZ, 1)
		}
		s.summed, err = a.cfg.Summed(&f)
	case Mean:
		s.opt.Before, s.opt.After, err = a.meanWindow(&s.opt)
	}
	return s, err
}

// checkComputable rejects a mode and an output dtype that the values of a feature do not allow.
func (a *aligner) checkComputable(f *robocache.Feature, opt *Options) error {
	to, hasDType := a.cfg.DTypes[f.Key]
	isDense := f.Kind == robocache.KindNumeric && !f.Ragged()
	switch {
	case opt.Mode.Computes() && (!isDense || f.DType == robocache.Bool):
		what := string(f.Kind)
		if f.Ragged() {
			what = "ragged"
		} else if f.Kind == robocache.KindNumeric {
			what = "boolean"
		}
		return opt.streamError(
			robocache.ErrMisuse,
			nil,
			"a "+what+" stream has no values in between",
			"nearest, previous or next",
			opt.Mode.String(),
		)
	case hasDType && !isDense:
		return opt.streamError(
			robocache.ErrMisuse,
			nil,
			"an output dtype is for numeric streams of one size",
			"",
			string(f.Kind),
		)
	case opt.Mode.Computes() && f.DType.Integer() && !to.Float():
		err := opt.streamError(
			robocache.ErrMisuse,
			nil,
			"unsupported dtype: integers under mode "+opt.Mode.String(),
			"nearest, previous or next, or a floating-point output dtype",
			f.DType.String(),
		)
		err.(*robocache.Error).Hint = "set dtypes[" + f.Key +
			`] to "float32" if the numbers are quantities and not categories`
		return err
	}
	return nil
}

// meanWindow returns how far the window of mode mean reaches before and after a target. By default
// the window is one period of the targets.
func (a *aligner) meanWindow(opt *Options) (before, after int64, err error) {
	width := int64(a.cfg.Window)
	if width == 0 && !a.cfg.HZ.Zero() {
		width = nanos(a.cfg.HZ, 1)
	} else if width == 0 {
		width = evenStep(a.cfg.Times)
	}
	if width == 0 {
		return 0, 0, opt.streamError(
			robocache.ErrMisuse,
			nil,
			"mean needs a window, and the targets have no period",
			"evenly spaced times, or hz",
			"other times",
		)
	}
	before, after = HalfWindows(width)
	return before, after, nil
}

// evenStep returns the period of evenly spaced, increasing times, with a tolerance of 1 ns for their
// rounding. For other times it returns 0.
func evenStep(times []int64) int64 {
	n := int64(len(times) - 1)
	if n < 1 {
		return 0
	}
	step := (times[n] - times[0] + n/2) / n
	for i := range n {
		if d := times[i+1] - times[i] - step; d < -1 || d > 1 {
			return 0
		}
	}
	return max(step, 0) // decreasing times have no period
}

// clockIndex reads and checks the timestamps of a stream. It returns the index of its clock, which
// may be shared with other streams.
func (a *aligner) clockIndex(key string) (int, error) {
	timestamps, err := a.cfg.Timestamps(a.ctx, a.ds, a.ep, key)
	if err != nil {
		return 0, robocache.At(err, robocache.Where{"stream": key})
	}
	shift, err := a.cfg.Shift(key)
	if err != nil {
		return 0, err
	}
	if shift != 0 {
		timestamps = slices.Clone(timestamps)
		for i := range timestamps {
			timestamps[i] += shift
		}
		if err := CheckTimestamps(timestamps, key); err != nil {
			return 0, err
		}
	}
	return a.addClock(timestamps), nil
}

// arrivalIndex reads when the samples of a stream arrived. It returns the index of these times in
// clocks, and whether they were recorded. If not, samples arrive with their timestamps, and it
// returns the index of those.
func (a *aligner) arrivalIndex(s *source) (index int, isRecorded bool, err error) {
	k := s.feature.Key
	if !HasArrivalTimes(a.ds, k) {
		return s.clock, false, nil
	}
	times, err := ArrivalTimes(a.ctx, a.ds, a.ep, k, a.cfg.Clock[k])
	return a.addClock(times), true, robocache.At(err, robocache.Where{"stream": k})
}

// addClock returns the index of the given times in clocks, to which it adds them if no other stream
// has the same.
func (a *aligner) addClock(times []int64) int {
	for i, c := range a.clocks {
		if slices.Equal(c, times) {
			return i
		}
	}
	a.clocks = append(a.clocks, times)
	return len(a.clocks) - 1
}

// makeTimeline returns the times of the rows: those of the configuration, or the grid at its rate
// over the extent of the streams.
func (a *aligner) makeTimeline() ([]int64, error) {
	if a.cfg.Times != nil {
		if err := a.reserve(int64(len(a.cfg.Times)) * 8); err != nil {
			return nil, err
		}
		return slices.Clone(a.cfg.Times), nil
	}
	var names []string
	var streams [][]int64
	for i := range a.streams {
		s := &a.streams[i]
		if timestamps := a.clocks[s.clock]; a.cfg.Extent == s.feature.Key ||
			Bounds(&s.feature, timestamps) {
			names, streams = append(names, s.feature.Key), append(streams, a.boundsOf(s))
		}
	}
	if len(streams) == 0 { // if no stream bounds the extent, all streams do
		for _, s := range a.streams {
			names, streams = append(names, s.feature.Key), append(streams, a.clocks[s.clock])
		}
	}
	extent := a.cfg.Extent
	f := a.ds.Info().Feature(extent)
	isStream := f != nil && extent != "intersection" && extent != "union"
	if isStream && !slices.Contains(names, extent) { // a stream that is not aligned itself
		s, err := a.openStream(*f)
		if err != nil {
			return nil, err
		}
		names, streams = append(names, extent), append(streams, a.boundsOf(&s))
	}
	t0, t1, err := Extent(extent, names, streams)
	if err != nil {
		return nil, err
	}
	n := min(UniformCount(t0, t1, a.cfg.HZ), 1<<40) // more than any budget, but n * 8 fits
	if err := a.reserve(n * 8); err != nil {
		return nil, err
	}
	return Uniform(t0, t1, a.cfg.HZ), nil
}

// boundsOf returns the ticks at which a stream bounds the extent (Causality.Usable).
func (a *aligner) boundsOf(s *source) []int64 {
	return s.opt.Usable(a.clocks[s.clock], a.clocks[s.arrived])
}

// reserve counts memory before it is allocated.
func (a *aligner) reserve(n int64) error {
	if n > a.budgetLeft {
		return robocache.ResourceLimit("align", nil, "memory budget exceeded").
			Expected(fmt.Sprintf("at most %d bytes more", a.budgetLeft), strconv.FormatInt(n, 10)).
			WithHint("align fewer streams or a shorter span at a time, or raise memory_budget")
	}
	a.budgetLeft -= n
	return nil
}

// Bytes that an aligner allocates per row.
const (
	planRowBytes = 1 + 4 + 4 + 8 + 1 // Kind, Left, Right, Weight and Valid of kernel.Plan
	sumRowBytes  = 24                // kernel.Plan.Sums
	// a distinct sample (robocache.Row, 16) and its index (4)
	sampleRowBytes = 20
	textRowBytes   = sampleRowBytes + 16 // a string
	frameRowBytes  = sampleRowBytes + 64 // robocache.FrameRef
)

// planBytes returns the size of a row of a plan.
func planBytes(mode Mode) int64 {
	if mode == Sum {
		return planRowBytes + sumRowBytes
	}
	return planRowBytes
}

// planFor returns the plan of a stream. Streams on the same clock with the same options share it
// (align.A1).
func (a *aligner) planFor(s *source, times []int64) (_ *kernel.Plan, err error) {
	opt := s.opt
	opt.Stream = "" // only for errors
	for _, c := range a.plans {
		if c.clock == s.clock && c.arrived == s.arrived && c.opt == opt {
			return c.plan, nil
		}
	}
	if err := a.reserve(int64(len(times)) * planBytes(s.opt.Mode)); err != nil {
		return nil, err
	}
	p, err := a.newPlan(s, times, times)
	if err != nil {
		return nil, err
	}
	a.plans = append(a.plans, cachedPlan{s.clock, s.arrived, opt, p})
	return p, nil
}

// newPlan returns the plan of a stream for rows at times. If the stream is causal, row i uses samples
// that had arrived at nows[i].
func (a *aligner) newPlan(s *source, times, nows []int64) (*kernel.Plan, error) {
	if !s.opt.IsCausal {
		return NewPlan(a.clocks[s.clock], times, s.opt)
	}
	p := kernel.MakePlan(s.opt.Mode, len(times))
	arrivals := NewArrivals(a.clocks[s.arrived])
	return p, s.opt.FillCausal(p, a.clocks[s.clock], arrivals, times, nows)
}

// makeStream computes the values of a stream by its plan.
func (a *aligner) makeStream(s *source, p *kernel.Plan) (_ *Stream, err error) {
	f := &s.feature
	out := &Stream{
		Key:   f.Key,
		Kind:  f.Kind,
		Mode:  s.opt.Mode,
		Edge:  s.opt.Edge,
		DType: f.DType,
		Shape: f.Shape,
	}
	if err := a.reserve(int64(p.Len())); err != nil {
		return nil, err
	}
	if p, err = a.maskPlan(s, p); err != nil {
		return nil, err
	}
	out.Valid = slices.Clone(p.Valid)
	switch {
	case f.Kind == robocache.KindNumeric && !f.Ragged():
		err = a.resampleNumbers(s, p, out)
	case f.Kind == robocache.KindText, f.Kind == robocache.KindEvent:
		err = a.readText(f.Key, p, out)
	default:
		err = a.readFrames(f, p, out)
	}
	if err != nil {
		return nil, err
	}
	return out, nil
}

// rawPool holds memory for the samples that a plan reads. Memory larger than maxPooledBytes is not
// kept.
var rawPool = sync.Pool{New: func() any { return new([]byte) }}

const maxPooledBytes = 4 << 20

func (a *aligner) readText(key string, p *kernel.Plan, out *Stream) error {
	if err := a.reserve(int64(p.Len()) * textRowBytes); err != nil {
		return err
	}
	rows, place := distinctRows(p, a.ep)
	texts, err := a.ds.Text(a.ctx, key, rows)
	if err != nil {
		return err
	}
	out.Text = make([]string, p.Len())
	for i, k := range place {
		if k >= 0 {
			out.Text[i] = texts[k]
		}
	}
	return nil
}

// readFrames sets out.Rows to the rows that have the frames, point clouds or ragged entries, which
// it does not read. A row whose frame is missing from its video is not valid.
func (a *aligner) readFrames(f *robocache.Feature, p *kernel.Plan, out *Stream) error {
	if err := a.reserve(int64(p.Len()) * frameRowBytes); err != nil {
		return err
	}
	rows, place := distinctRows(p, a.ep)
	out.Rows = make([]int32, p.Len())
	for i, k := range place {
		out.Rows[i] = -1
		if k >= 0 {
			out.Rows[i] = int32(rows[k].Index)
		}
	}
	if f.Kind != robocache.KindVideo {
		return nil // the dataset's Valid capability reports missing stills
	}
	refs := make([]robocache.FrameRef, len(rows))
	if err := a.ds.Frames(a.ctx, f.Key, rows, refs); err != nil {
		return err
	}
	for i, k := range place {
		if k >= 0 && refs[k].Missing {
			out.Valid[i] = 0
		}
	}
	return nil
}
