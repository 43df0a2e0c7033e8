package plan

import (
	"context"
	"fmt"
	"slices"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/align"
	"github.com/goatnote-inc/robocache/kernel"
	"github.com/goatnote-inc/robocache/loader/internal/column"
	"github.com/goatnote-inc/robocache/loader/internal/options"
	"golang.org/x/sync/errgroup"
)

// newTimebase settles the timebase of a source. Without hz and anchor it is the dataset's own rows: Info.Clock, where there are several clocks.
func newTimebase(info *robocache.Info, cfg *options.Config) (column.Timebase, error) {
	b := column.Timebase{IsGrid: cfg.Align != nil && !cfg.Align.HZ.Zero(), DatasetClock: info.Clock}
	b.IsTimed = b.IsGrid || info.Clock != "" || cfg.Anchor != "" || slices.ContainsFunc(info.Features, func(f robocache.Feature) bool { return f.Clock != "" })
	a := cfg.Align
	if cfg.Anchor != "" {
		f := info.Feature(cfg.Anchor)
		switch {
		case f == nil:
			return b, options.MissingKey(info, "anchor", cfg.Anchor, options.FeatureKeys(info))
		case b.IsGrid:
			return b, options.Misuse("anchor", "anchor or hz: samples lie on a stream's rows or on a timeline", "both")
		}
		b.Clock = b.ClockOf(f)
		if k := f.Key; b.Clock != "" || a != nil && (a.Offset[k] != a.Latency[k] || !a.Drift[k].IsZero() || a.Clock[k] != "") {
			b.Key = k // its own timestamps, and not those that its clock recorded first
		}
	}
	if a == nil || b.IsGrid {
		return b, nil
	}
	if !b.IsTimed && len(cfg.Native) == 0 && !casts(a) {
		return b, options.Misuse("align", "hz, a rate above 0", "none")
	}
	var err error
	b.Shift, err = a.Shift(b.Key)
	return b, err
}

// casts says that nothing but output types is chosen: that needs no timeline.
func casts(a *align.Config) bool {
	b := *a
	b.DTypes = nil
	return len(a.DTypes) > 0 && len(slices.Concat(b.Named()...)) == 0 && b.Edge.IsZero() && b.MaxGap.IsZero() && b.Window == 0
}

// newTiming returns how a column goes by time, its rule still open; nil if it goes by the rows of the timebase. f is nil for the task text.
func newTiming(b *column.Timebase, f *robocache.Feature, cfg *options.Config) (*column.Timing, error) {
	key, clock := "", ""
	if f != nil {
		key, clock = f.Key, b.ClockOf(f)
	}
	switch {
	case b.IsGrid || clock != b.Clock || cfg.Native.Of(key) != nil || b.IsTimed && cfg.Deltas.Of(key) != nil:
		return new(column.Timing), nil
	case cfg.Align == nil || key == "":
		return nil, nil
	}
	shift, err := cfg.Align.Shift(key)
	if err != nil || shift == b.Shift && cfg.Align.Clock[key] == cfg.Align.Clock[b.Key] && cfg.Align.Drift[key] == cfg.Align.Drift[b.Key] {
		return nil, err
	}
	return new(column.Timing), nil
}

// timed says whether some column goes by time.
func (src *Source) timed() bool {
	return slices.ContainsFunc(src.Columns, func(c *column.Column) bool { return c.Time != nil })
}

// alignNotes returns notes with the look-ahead of the observations, and with the streams that are summed as relative.
// Streams of windows= are left out, because their offsets are explicit.
func (src *Source) alignNotes(ctx context.Context) (notes []string, err error) {
	keys := []string{}
	for _, c := range src.Columns {
		if c.Time != nil && src.Config.Native.Of(c.Key) == nil {
			keys = append(keys, c.Key)
		}
	}
	cfg := src.Config.Align
	if cfg == nil {
		cfg = &align.Config{}
	}
	findings := cfg.RelativeNotes(src.Dataset.Info(), keys)
	if f, err := cfg.LookAhead(ctx, src.Dataset, keys); err != nil {
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

// alignColumns settles the types that are chosen, and mode, edge and gap of each column that goes by time. The defaults are Episode.align's
// (align.DefaultMode); of windows= with offsets nothing is computed by default.
func (src *Source) alignColumns() error {
	cfg := src.Config.Align
	if cfg == nil {
		cfg = &align.Config{}
	}
	known := append(src.keys(), "task")
	for _, named := range cfg.Named() {
		slices.Sort(named)
		for _, k := range named {
			if !slices.Contains(known, k) && src.Dataset.Info().Feature(k) == nil {
				return options.MissingKey(src.Dataset.Info(), "align", k, known)
			}
		}
	}
	for _, c := range src.Columns {
		k := c.Key
		if column.Is[*column.TimesColumn](c) {
			k = c.Feature.Key
		} else if to := cfg.DTypes[k]; to != 0 {
			if !c.HasNumbers() || !to.Float() {
				return robocache.Misuse("loader", robocache.Where{"stream": k}, "align: dtypes: %s", to.String()).
					WithHint("float32, float64, float16 or bfloat16, for numeric streams")
			}
			c.SetDType(to)
		}
		if c.Time != nil {
			if err := src.settle(c, k, cfg); err != nil {
				return err
			}
		}
	}
	var before []*column.TableColumn
	for _, c := range src.Columns {
		if rows := c.Table(); rows != nil {
			sharePlan(rows, before)
			before = append(before, rows)
		}
	}
	return nil
}

// settle chooses the rule of a column that goes by time: k is the stream that the choices are of.
func (src *Source) settle(c *column.Column, k string, cfg *align.Config) error {
	s := c.Time
	s.Options = align.Options{Stream: k, Edge: cfg.Edge.For(k), MaxGap: int64(cfg.MaxGap.For(k)), Mode: align.Previous}
	s.Offset, _ = cfg.Shift(k)
	chosen := false
	if c.Feature == nil {
		if !cfg.Drift[k].IsZero() {
			s.Clock = k
		}
		if m, ok := cfg.Modes[k]; ok {
			s.Options.Mode = m
		}
	} else {
		s.Clock, s.ClockName = src.timestampsOf(c.Feature), cfg.Clock[k]
		s.Options.Mode, chosen = cfg.Mode(c.Feature)
		s.Options.Hold = c.Feature.Latched && !chosen
	}
	bad := func(msg, hint string) error {
		return robocache.Misuse("loader", robocache.Where{"stream": k}, "align: %s", msg).
			WithHint("%s", hint)
	}
	computes := s.Options.Mode.Computes()
	switch {
	case c.Span != nil || s.IsNative && computes && !chosen: // its samples, as they are
		s.Options.Mode = align.Previous
	case computes && (c.Table() == nil || c.StoredDType == robocache.Bool):
		return bad("mode "+s.Options.Mode.String()+": such values are not computed with", "nearest, previous or next")
	case computes && c.StoredDType.Integer() && !cfg.DTypes[k].Float():
		return bad("mode "+s.Options.Mode.String()+" of integers", "nearest, previous or next; or "+robocache.Option("align", "dtypes", k, "float32")+" where they are quantities")
	}
	if s.Options.Mode == align.Mean {
		window := int64(cfg.Window)
		if window == 0 && src.Timebase.IsGrid {
			window = cfg.HZ.Nanos(1)
		}
		if window == 0 {
			return bad("mode mean without a rate", robocache.Option("hz")+", or "+robocache.Option("align", "window", "20ms"))
		}
		s.Options.Before, s.Options.After = align.HalfWindows(window)
	}
	s.Rule = kernel.Rule{Mode: s.Options.Mode, Period: cfg.Period[k], Quats: cfg.Quats[k]}
	if s.Options.Mode == align.Sum {
		var err error
		if s.Rule.Summed, err = cfg.Summed(c.Feature); err != nil {
			return err
		}
		s.Length = src.sumLength(c)
	}
	if c.Feature != nil {
		s.Rule.Rotations = cfg.Turned(c.Feature)
	}
	return nil
}

// sumLength returns the time that a row of a column covers under sum: the step of a window with a count, else the period
// of hz. It returns 0 if the time varies: a sample covers the time up to the next one.
func (src *Source) sumLength(c *column.Column) int64 {
	window := src.Windows[c.Window].Nanos
	native := src.Config.Native.Of(c.Key)
	switch {
	case native != nil && native.Count > 1:
		return window[1] - window[0]
	case src.Timebase.IsGrid:
		return src.Config.Align.HZ.Nanos(1)
	}
	return 0
}

// sharePlan lets a column's values be made by the plan of an earlier one of the same clock, rule and window (A1).
func sharePlan(c *column.TableColumn, before []*column.TableColumn) {
	shares := func(c *column.TableColumn) bool { // a plan depends on time alone, and its clock has a name
		return c.Time != nil && c.Feature.Clock != "" && !c.Feature.Masked
	}
	rule := func(c *column.TableColumn) align.Options {
		o := c.Time.Options
		o.Stream = ""
		return o
	}
	if !shares(c) {
		return
	}
	for _, d := range before {
		if d.PlanLeader == d && shares(d) && d.Feature.Clock == c.Feature.Clock && d.Window == c.Window && d.Steps == c.Steps && d.Time.Offset == c.Time.Offset && d.Time.Length == c.Time.Length &&
			d.Time.ClockName == c.Time.ClockName && d.Time.Clock == c.Time.Clock && rule(d) == rule(c) {
			c.PlanLeader = d
			d.PlanFollowers = append(d.PlanFollowers, c)
			return
		}
	}
}

// eachEpisode calls fn for the selected episodes of the dataset, several at once: of a folder of recordings the timestamps of each are a file.
func (src *Source) eachEpisode(exclude map[int]bool, fn func(e int)) {
	var g errgroup.Group
	g.SetLimit(max(src.Config.Threads, 1))
	n := src.Dataset.Info().Episodes
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
func (src *Source) counts(ctx context.Context, exclude map[int]bool) func(e int) (int, int64, error) {
	b := &src.Timebase
	if !b.IsGrid && b.Key == "" {
		return func(e int) (int, int64, error) { return src.Dataset.Len(e), 0, nil }
	}
	type counted struct {
		n     int
		start int64
		err   error
	}
	src.EpisodeRows = map[int]int{}
	found := make([]counted, src.Dataset.Info().Episodes)
	timed, anchor := src.timed(), src.Dataset.Info().Feature(b.Key)
	src.eachEpisode(exclude, func(e int) {
		c := &found[e]
		if b.IsGrid {
			c.n, c.start, c.err = src.gridOf(ctx, e)
		} else if !timed {
			c.n, c.err = robocache.RowsIn(ctx, src.Dataset, e, anchor) // nothing is asked for by time
		} else {
			var t []int64
			t, c.err = src.Timestamps.OfStream(ctx, e, b.Key)
			c.n = len(t)
		}
	})
	return func(e int) (int, int64, error) {
		c := &found[e]
		if c.err != nil && src.Config.OnBadEpisode == "skip" && robocache.Bad(c.err) {
			// Its timestamps are bad: it never enters the order.
			src.report.Skipped.Add(int64(src.Dataset.Len(e)))
			src.report.Warn(fmt.Sprintf("episode %d is left out: %v", src.Dataset.Info().EpisodeIndex(e), c.err))
			return 0, 0, nil
		}
		src.EpisodeRows[e] = c.n
		return c.n, c.start, robocache.At(c.err, robocache.Where{"episode": src.Dataset.Info().EpisodeIndex(e)})
	}
}

// widestSpans counts, for each span of frames or of rows of varying length, the samples of the fullest one of its length in the selected episodes:
// frames are decoded straight into places of the batch, as those of any window are.
func (src *Source) widestSpans(ctx context.Context) error {
	src.widest = map[string]int{}
	info := src.Dataset.Info()
	for i := range src.Config.Native {
		w := &src.Config.Native[i]
		f := info.Feature(w.Key)
		if f == nil || w.Span == nil || w.Count != 0 || f.Kind == robocache.KindText || f.Kind == robocache.KindEvent || f.Kind == robocache.KindNumeric && !f.Ragged() ||
			src.Config.Keys != nil && !slices.Contains(src.Config.Keys, w.Key) {
			continue
		}
		if _, err := w.Nanos(); err != nil {
			return robocache.At(err, robocache.Where{"stream": w.Key})
		}
		length, stream := options.Seconds(w.Span[1])-options.Seconds(w.Span[0]), src.timestampsOf(f)
		counts, errs := make([]int, info.Episodes), make([]error, info.Episodes)
		src.eachEpisode(nil, func(e int) {
			var t []int64
			t, errs[e] = src.Timestamps.OfStream(ctx, e, stream)
			from := 0
			for k := range t {
				for t[from] < t[k]-length {
					from++
				}
				counts[e] = max(counts[e], k-from+1)
			}
		})
		for e, err := range errs {
			if err != nil && !(src.Config.OnBadEpisode == "skip" && robocache.Bad(err)) {
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
func (src *Source) gridOf(ctx context.Context, episode int) (n int, start int64, err error) {
	cfg := src.Config.Align
	if src.Dataset.Len(episode) == 0 {
		return 0, 0, nil
	}
	var names []string
	var streams [][]int64
	add := func(key string, always bool) error {
		t, err := src.Timestamps.OfStream(ctx, episode, key)
		if err != nil {
			return err
		}
		if f := src.Dataset.Info().Feature(key); f != nil && !always && !align.Bounds(f, t) {
			return nil
		}
		if off, _ := cfg.Shift(key); off != 0 && len(t) > 0 {
			t = []int64{t[0] + off, t[len(t)-1] + off}
		}
		names, streams = append(names, key), append(streams, t)
		return nil
	}
	for _, c := range src.Columns {
		if c.Feature != nil && !column.Is[*column.TimesColumn](c) && !column.Is[*column.CountColumn](c) && (!c.Feature.Default || src.Config.Keys != nil) {
			if err := add(c.Key, c.Key == cfg.Extent); err != nil {
				return 0, 0, err
			}
		}
	}
	if k := cfg.Extent; !slices.Contains(names, k) && src.Dataset.Info().Feature(k) != nil && k != "intersection" && k != "union" {
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
		return 0, 0, robocache.Malformed("loader", robocache.Where{"episode": src.Dataset.Info().EpisodeIndex(episode)}, "a timeline of %d rows from %d to %d ns", count, t0, t1).
			WithHint("a timestamp is wrong: %s", robocache.Command("doctor"))
	}
	return int(count), t0, nil
}

// readTimestamps is how the timestamps of a stream are read where values go by time: proved to ascend, once.
func (src *Source) readTimestamps(ctx context.Context, episode int, stream string) ([]int64, error) {
	cfg := src.Config.Align
	if cfg == nil {
		cfg = &align.Config{}
	}
	return cfg.Timestamps(ctx, src.Dataset, episode, stream)
}

// timestampsOf is the stream whose timestamps stand for those of a feature: the first one of its clock, so that they are read and kept once.
func (src *Source) timestampsOf(f *robocache.Feature) string {
	if f.Clock == "" {
		return f.Key
	}
	cfg := src.Config.Align
	for _, g := range src.Dataset.Info().Features {
		if g.Clock == f.Clock && (cfg == nil || cfg.Clock[g.Key] == cfg.Clock[f.Key] && cfg.Drift[g.Key] == cfg.Drift[f.Key]) {
			return g.Key
		}
	}
	return f.Key
}
