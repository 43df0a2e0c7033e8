package loader

import (
	"context"
	"fmt"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/align"
	"github.com/goatnote-inc/robocache/kernel"
	"github.com/goatnote-inc/robocache/loader/internal/options"
)

// timebase is what the samples of a source lie on: the rows of one clock, or a uniform grid. Streams on that clock are read by row; all
// others are brought to the samples' times by their align rules (column.time).
type timebase struct {
	grid    bool   // a uniform timeline (hz)
	key     string // else: the stream whose rows are samples; "" for the episode's own
	clock   string // the clock of those rows
	own     string // Info.Clock: the name of "", where it has one
	several bool   // windows lie in time and not in rows: there are several clocks, or a grid
	shift   int64  // of the anchor's timestamps
}

// timing is how a column goes by time: by which timestamps, and by what rule its values are found or made.
type timing struct {
	native bool   // nothing is computed unless a mode is chosen
	clock  string // the stream whose timestamps count: "" for the task text (its key where its drift is taken off)
	by     string // which of its clocks
	offset int64
	opt    align.Options
	rule   kernel.Rule // of values
	length int64       // sum: the time that a row covers; 0 = up to the next sample
}

// clockOf is the clock of a feature; "" is the episode's own, under whichever name.
func (b *timebase) clockOf(f *robocache.Feature) string {
	if f.Clock == b.own {
		return ""
	}
	return f.Clock
}

// newTimebase settles the timebase of a source. Without hz and anchor it is the dataset's own rows: Info.Clock, where there are several clocks.
func newTimebase(info *robocache.Info, cfg *Config) (timebase, error) {
	b := timebase{grid: cfg.Align != nil && !cfg.Align.HZ.Zero(), own: info.Clock}
	b.several = b.grid || info.Clock != "" || cfg.Anchor != "" || slices.ContainsFunc(info.Features, func(f robocache.Feature) bool { return f.Clock != "" })
	a := cfg.Align
	if cfg.Anchor != "" {
		f := info.Feature(cfg.Anchor)
		switch {
		case f == nil:
			return b, lacks(info, "anchor", cfg.Anchor, keysOf(info))
		case b.grid:
			return b, options.Misuse("anchor", "anchor or hz: samples lie on a stream's rows or on a timeline", "both")
		}
		b.clock = b.clockOf(f)
		if k := f.Key; b.clock != "" || a != nil && (a.Offset[k] != a.Latency[k] || !a.Drift[k].IsZero() || a.Clock[k] != "") {
			b.key = k // its own timestamps, and not those that its clock recorded first
		}
	}
	if a == nil || b.grid {
		return b, nil
	}
	if !b.several && len(cfg.Native) == 0 && !casts(a) {
		return b, options.Misuse("align", "hz, a rate above 0", "none")
	}
	var err error
	b.shift, err = a.Shift(b.key)
	return b, err
}

// casts says that nothing but output types is chosen: that needs no timeline.
func casts(a *align.Config) bool {
	b := *a
	b.DTypes = nil
	return len(a.DTypes) > 0 && len(slices.Concat(b.Named()...)) == 0 && b.Edge.IsZero() && b.MaxGap.IsZero() && b.Window == 0
}

// newTiming returns how a column goes by time, its rule still open; nil if it goes by the rows of the timebase. f is nil for the task text.
func newTiming(b *timebase, f *robocache.Feature, cfg *Config) (*timing, error) {
	key, clock := "", ""
	if f != nil {
		key, clock = f.Key, b.clockOf(f)
	}
	switch {
	case b.grid || clock != b.clock || cfg.Native.Of(key) != nil || b.several && cfg.Deltas.Of(key) != nil:
		return new(timing), nil
	case cfg.Align == nil || key == "":
		return nil, nil
	}
	shift, err := cfg.Align.Shift(key)
	if err != nil || shift == b.shift && cfg.Align.Clock[key] == cfg.Align.Clock[b.key] && cfg.Align.Drift[key] == cfg.Align.Drift[b.key] {
		return nil, err
	}
	return new(timing), nil
}

// timed says whether some column goes by time.
func (src *source) timed() bool {
	return slices.ContainsFunc(src.columns, func(c *column) bool { return c.time != nil })
}

// alignNotes returns notes with the look-ahead of the observations, and with the streams that are summed as relative.
// Streams of windows= are left out, because their offsets are explicit.
func (src *source) alignNotes(ctx context.Context) (notes []string, err error) {
	keys := []string{}
	for _, c := range src.columns {
		if c.time != nil && src.cfg.Native.Of(c.key) == nil {
			keys = append(keys, c.key)
		}
	}
	cfg := src.cfg.Align
	if cfg == nil {
		cfg = &align.Config{}
	}
	findings := cfg.RelativeNotes(src.ds.Info(), keys)
	if f, err := cfg.LookAhead(ctx, src.ds, keys); err != nil {
		return notes, err
	} else if f != nil {
		findings = append(findings, *f)
	}
	for i := range findings {
		notes = append(notes, findings[i].Message+". "+findings[i].Hint)
	}
	return notes, nil
}

// maxTimeline bounds the rows of one episode's timeline: beyond, a timestamp is wrong.
const maxTimeline = 1 << 31

// checkAlign refuses what a loader's timeline cannot be.
func (c *Config) checkAlign() error {
	a := c.Align
	switch {
	case a == nil:
		return nil
	case a.Times != nil:
		return robocache.Unsupported("loader", nil, "align times= in a loader").
			WithHint("give %s; times= is for one episode's align", robocache.Option("hz"))
	case len(a.Keys) > 0:
		return options.Misuse("align keys", "none: keys= of the loader chooses", fmt.Sprint(a.Keys))
	case !a.HZ.Zero() && (a.HZ.Num < 0 || a.HZ.Den <= 0):
		return options.Misuse("align", "hz, a rate above 0", a.HZ.String())
	case a.HZ.Zero() && a.Extent != "":
		return options.Misuse("align extent", "extent beside hz: it is of a uniform timeline", a.Extent)
	case a.Window < 0:
		return options.Misuse("align window", "0 or more", fmt.Sprint(int64(a.Window)))
	}
	return a.CheckShifts()
}

// alignColumns settles the types that are chosen, and mode, edge and gap of each column that goes by time. The defaults are Episode.align's
// (align.DefaultMode); of windows= with offsets nothing is computed by default.
func (src *source) alignColumns() error {
	cfg := src.cfg.Align
	if cfg == nil {
		cfg = &align.Config{}
	}
	known := append(src.keys(), "task")
	for _, named := range cfg.Named() {
		slices.Sort(named)
		for _, k := range named {
			if !slices.Contains(known, k) && src.ds.Info().Feature(k) == nil {
				return lacks(src.ds.Info(), "align", k, known)
			}
		}
	}
	for _, c := range src.columns {
		k := c.key
		if is[*timesColumn](c) {
			k = c.feature.Key
		} else if to := cfg.DTypes[k]; to != 0 {
			if !c.numbers() || !to.Float() {
				return robocache.Misuse("loader", robocache.Where{"stream": k}, "align: dtypes: %s", to.String()).
					WithHint("float32, float64, float16 or bfloat16, for numeric streams")
			}
			c.cast(to)
		}
		if c.time != nil {
			if err := src.settle(c, k, cfg); err != nil {
				return err
			}
		}
	}
	var before []*tableColumn
	for _, c := range src.columns {
		if rows := c.table(); rows != nil {
			sharePlan(rows, before)
			before = append(before, rows)
		}
	}
	return nil
}

// settle chooses the rule of a column that goes by time: k is the stream that the choices are of.
func (src *source) settle(c *column, k string, cfg *align.Config) error {
	s := c.time
	s.opt = align.Options{Stream: k, Edge: cfg.Edge.For(k), MaxGap: int64(cfg.MaxGap.For(k)), Mode: align.Previous}
	s.offset, _ = cfg.Shift(k)
	chosen := false
	if c.feature == nil {
		if !cfg.Drift[k].IsZero() {
			s.clock = k
		}
		if m, ok := cfg.Modes[k]; ok {
			s.opt.Mode = m
		}
	} else {
		s.clock, s.by = src.timestampsOf(c.feature), cfg.Clock[k]
		s.opt.Mode, chosen = cfg.Mode(c.feature)
		s.opt.Hold = c.feature.Latched && !chosen
	}
	bad := func(msg, hint string) error {
		return robocache.Misuse("loader", robocache.Where{"stream": k}, "align: %s", msg).
			WithHint("%s", hint)
	}
	computes := s.opt.Mode.Computes()
	switch {
	case c.span != nil || s.native && computes && !chosen: // its samples, as they are
		s.opt.Mode = align.Previous
	case computes && (c.table() == nil || c.stored == robocache.Bool):
		return bad("mode "+s.opt.Mode.String()+": such values are not computed with", "nearest, previous or next")
	case computes && c.stored.Integer() && !cfg.DTypes[k].Float():
		return bad("mode "+s.opt.Mode.String()+" of integers", "nearest, previous or next; or "+robocache.Option("align", "dtypes", k, "float32")+" where they are quantities")
	}
	if s.opt.Mode == align.Mean {
		window := int64(cfg.Window)
		if window == 0 && src.timebase.grid {
			window = cfg.HZ.Nanos(1)
		}
		if window == 0 {
			return bad("mode mean without a rate", robocache.Option("hz")+", or "+robocache.Option("align", "window", "20ms"))
		}
		s.opt.Before, s.opt.After = align.HalfWindows(window)
	}
	s.rule = kernel.Rule{Mode: s.opt.Mode, Period: cfg.Period[k], Quats: cfg.Quats[k]}
	if s.opt.Mode == align.Sum {
		var err error
		if s.rule.Summed, err = cfg.Summed(c.feature); err != nil {
			return err
		}
		s.length = src.sumLength(c)
	}
	if c.feature != nil {
		s.rule.Rotations = cfg.Turned(c.feature)
	}
	return nil
}

// sumLength returns the time that a row of a column covers under sum: the step of a window with a count, else the period
// of hz. It returns 0 if the time varies: a sample covers the time up to the next one.
func (src *source) sumLength(c *column) int64 {
	window := src.windows[c.window].nanos
	native := src.cfg.Native.Of(c.key)
	switch {
	case native != nil && native.Count > 1:
		return window[1] - window[0]
	case src.timebase.grid:
		return src.cfg.Align.HZ.Nanos(1)
	}
	return 0
}

// sharePlan lets a column's values be made by the plan of an earlier one of the same clock, rule and window (A1).
func sharePlan(c *tableColumn, before []*tableColumn) {
	shares := func(c *tableColumn) bool { // a plan depends on time alone, and its clock has a name
		return c.time != nil && c.feature.Clock != "" && !c.feature.Masked
	}
	rule := func(c *tableColumn) align.Options {
		o := c.time.opt
		o.Stream = ""
		return o
	}
	if !shares(c) {
		return
	}
	for _, d := range before {
		if d.leader == d && shares(d) && d.feature.Clock == c.feature.Clock && d.window == c.window && d.steps == c.steps && d.time.offset == c.time.offset && d.time.length == c.time.length &&
			d.time.by == c.time.by && d.time.clock == c.time.clock && rule(d) == rule(c) {
			c.leader = d
			d.shared = append(d.shared, c)
			return
		}
	}
}

// eachEpisode calls fn for the selected episodes of the dataset, several at once: of a folder of recordings the timestamps of each are a file.
func (src *source) eachEpisode(exclude map[int]bool, fn func(e int)) {
	var g errgroup.Group
	g.SetLimit(max(src.cfg.Threads, 1))
	n := src.ds.Info().Episodes
	each := func(e int) {
		if e >= 0 && e < n && !exclude[e] { // the table refuses others
			g.Go(func() error { fn(e); return nil })
		}
	}
	if src.positions == nil {
		for e := range n {
			each(e)
		}
	}
	list := slices.Clone(src.positions)
	slices.Sort(list)
	for _, e := range slices.Compact(list) {
		each(e)
	}
	_ = g.Wait()
}

// counts gives the samples of each episode, and on a grid its start.
func (src *source) counts(ctx context.Context, exclude map[int]bool) func(e int) (int, int64, error) {
	b := &src.timebase
	if !b.grid && b.key == "" {
		return func(e int) (int, int64, error) { return src.ds.Len(e), 0, nil }
	}
	type counted struct {
		n     int
		start int64
		err   error
	}
	src.long = map[int]int{}
	found := make([]counted, src.ds.Info().Episodes)
	timed, anchor := src.timed(), src.ds.Info().Feature(b.key)
	src.eachEpisode(exclude, func(e int) {
		c := &found[e]
		if b.grid {
			c.n, c.start, c.err = src.gridOf(ctx, e)
		} else if !timed {
			c.n, c.err = robocache.RowsIn(ctx, src.ds, e, anchor) // nothing is asked for by time
		} else {
			var t []int64
			t, c.err = src.timestamps.of(ctx, e, b.key)
			c.n = len(t)
		}
	})
	return func(e int) (int, int64, error) {
		c := &found[e]
		if c.err != nil && src.cfg.OnBadEpisode == "skip" && robocache.Bad(c.err) {
			// Its timestamps are bad: it never enters the order.
			src.report.skipped.Add(int64(src.ds.Len(e)))
			src.report.warn(fmt.Sprintf("episode %d is left out: %v", src.ds.Info().EpisodeIndex(e), c.err))
			return 0, 0, nil
		}
		src.long[e] = c.n
		return c.n, c.start, robocache.At(c.err, robocache.Where{"episode": src.ds.Info().EpisodeIndex(e)})
	}
}

// widestSpans counts, for each span of frames or of rows of varying length, the samples of the fullest one of its length in the selected episodes:
// frames are decoded straight into places of the batch, as those of any window are.
func (src *source) widestSpans(ctx context.Context) error {
	src.widest = map[string]int{}
	info := src.ds.Info()
	for i := range src.cfg.Native {
		w := &src.cfg.Native[i]
		f := info.Feature(w.Key)
		if f == nil || w.Span == nil || w.Count != 0 || f.Kind == robocache.KindText || f.Kind == robocache.KindEvent || f.Kind == robocache.KindNumeric && !f.Ragged() ||
			src.cfg.Keys != nil && !slices.Contains(src.cfg.Keys, w.Key) {
			continue
		}
		if _, err := w.Nanos(); err != nil {
			return robocache.At(err, robocache.Where{"stream": w.Key})
		}
		length, stream := options.Seconds(w.Span[1])-options.Seconds(w.Span[0]), src.timestampsOf(f)
		counts, errs := make([]int, info.Episodes), make([]error, info.Episodes)
		src.eachEpisode(nil, func(e int) {
			var t []int64
			t, errs[e] = src.timestamps.of(ctx, e, stream)
			from := 0
			for k := range t {
				for t[from] < t[k]-length {
					from++
				}
				counts[e] = max(counts[e], k-from+1)
			}
		})
		for e, err := range errs {
			if err != nil && !(src.cfg.OnBadEpisode == "skip" && robocache.Bad(err)) {
				return err
			}
			src.widest[w.Key] = max(src.widest[w.Key], counts[e])
		}
		if n := src.widest[w.Key]; n > options.MaxSteps {
			return options.Misuse("windows", "a span of at most 2^20 samples of "+w.Key, fmt.Sprint(n))
		}
	}
	return nil
}

// gridOf counts the rows of an episode's grid and finds its start.
func (src *source) gridOf(ctx context.Context, episode int) (n int, start int64, err error) {
	cfg := src.cfg.Align
	if src.ds.Len(episode) == 0 {
		return 0, 0, nil
	}
	var names []string
	var streams [][]int64
	add := func(key string, always bool) error {
		t, err := src.timestamps.of(ctx, episode, key)
		if err != nil {
			return err
		}
		if f := src.ds.Info().Feature(key); f != nil && !always && !align.Bounds(f, t) {
			return nil
		}
		if off, _ := cfg.Shift(key); off != 0 && len(t) > 0 {
			t = []int64{t[0] + off, t[len(t)-1] + off}
		}
		names, streams = append(names, key), append(streams, t)
		return nil
	}
	for _, c := range src.columns {
		if c.feature != nil && !is[*timesColumn](c) && !is[*countColumn](c) && (!c.feature.Default || src.cfg.Keys != nil) {
			if err := add(c.key, c.key == cfg.Extent); err != nil {
				return 0, 0, err
			}
		}
	}
	if k := cfg.Extent; !slices.Contains(names, k) && src.ds.Info().Feature(k) != nil && k != "intersection" && k != "union" {
		if err := add(k, true); err != nil {
			return 0, 0, err
		}
	}
	if len(streams) == 0 {
		if err := add("", true); err != nil {
			return 0, 0, err
		}
	}
	t0, t1, err := align.Extent(cfg.Extent, names, streams)
	if err != nil {
		return 0, 0, err
	}
	count := align.UniformCount(t0, t1, cfg.HZ)
	if count > maxTimeline {
		return 0, 0, robocache.Malformed("loader", robocache.Where{"episode": src.ds.Info().EpisodeIndex(episode)}, "a timeline of %d rows from %d to %d ns", count, t0, t1).
			WithHint("a timestamp is wrong: %s", robocache.Command("doctor"))
	}
	return int(count), t0, nil
}
