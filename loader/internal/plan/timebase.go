package plan

import (
	"context"
	"fmt"
	"slices"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/align"
	"github.com/goatnote-inc/robocache/kernel"
	"github.com/goatnote-inc/robocache/loader/internal/column"
	"github.com/goatnote-inc/robocache/loader/options"
	"golang.org/x/sync/errgroup"
)

// newTimebase returns the timebase of a source. Without hz and anchor it is the dataset's rows:
// those of Info.Clock if there are several clocks.
func newTimebase(info *robocache.Info, cfg *options.Config) (column.Timebase, error) {
	b := column.Timebase{IsGrid: cfg.Align != nil && !cfg.Align.HZ.Zero(), DatasetClock: info.Clock}
	b.IsTimed = b.IsGrid || info.Clock != "" || cfg.Anchor != "" ||
		slices.ContainsFunc(info.Features, func(f robocache.Feature) bool { return f.Clock != "" })
	a := cfg.Align
	if cfg.Anchor != "" {
		f := info.Feature(cfg.Anchor)
		switch {
		case f == nil:
			return b, options.MissingKey(info, "anchor", cfg.Anchor, options.FeatureKeys(info))
		case b.IsGrid:
			return b, options.Misuse(
				"anchor",
				"anchor or hz: samples lie on a stream's rows or on a timeline",
				"both",
			)
		}
		b.Clock = b.ClockOf(f)
		if k := f.Key; b.Clock != "" ||
			a != nil &&
				(a.Offset[k] != a.Latency[k].Fixed || !a.Drift[k].IsZero() || a.Clock[k] != "") {
			b.Key = k // its own timestamps, not the first ones that its clock recorded
		}
	}
	if a == nil || b.IsGrid {
		return b, nil
	}
	if !b.IsTimed && len(cfg.Native) == 0 && !a.Causal && !onlyCasts(a) {
		return b, options.Misuse("align", "hz, a rate above 0", "none")
	}
	var err error
	b.Shift, err = a.Shift(b.Key)
	return b, err
}

// onlyCasts reports whether the options only select output types, which needs no timeline.
func onlyCasts(a *align.Config) bool {
	b := *a
	b.DTypes = nil
	return len(a.DTypes) > 0 && len(slices.Concat(b.Named()...)) == 0 && b.Edge.IsZero() &&
		b.MaxGap.IsZero() && b.Window == 0
}

// newTiming returns an empty Timing for a column that is read by time. chooseRule fills it later. It
// returns nil for columns that are read by rows of the timebase. f is nil for the task text. The
// windows of batchKey apply.
func newTiming(
	ds robocache.Dataset,
	b *column.Timebase,
	f *robocache.Feature,
	batchKey string,
	cfg *options.Config,
) (*column.Timing, error) {
	key, clock := "", ""
	if f != nil {
		key, clock = f.Key, b.ClockOf(f)
	}
	if f != nil && cfg.Align != nil && cfg.Align.DependsOnArrival(ds, key) {
		return new(column.Timing), nil
	}
	switch {
	case b.IsGrid || clock != b.Clock || cfg.Native.Of(batchKey) != nil ||
		b.IsTimed && cfg.Deltas.Of(batchKey) != nil:
		return new(column.Timing), nil
	case cfg.Align == nil || key == "":
		return nil, nil
	}
	shift, err := cfg.Align.Shift(key)
	if err != nil {
		return nil, err
	}
	if shift == b.Shift && cfg.Align.Clock[key] == cfg.Align.Clock[b.Key] &&
		cfg.Align.Drift[key] == cfg.Align.Drift[b.Key] {
		return nil, nil
	}
	return new(column.Timing), nil
}

// hasTimedColumn reports whether a column is read by time.
func (src *Source) hasTimedColumn() bool {
	return slices.ContainsFunc(
		src.readColumns(),
		func(c *column.Column) bool { return c.Time != nil },
	)
}

// alignNotes returns messages about the alignment: the look-ahead of the observations, the streams
// that are assumed to arrive at their timestamps, and the streams that are summed because they are
// relative. The look-ahead omits the streams of windows=, because their offsets are explicit.
func (src *Source) alignNotes(ctx context.Context) (notes []string, err error) {
	keys := []string{}
	for _, c := range src.readColumns() {
		if c.Time != nil && src.Config.Native.Of(c.Key) == nil {
			keys = append(keys, c.StreamKey())
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
	if f := cfg.ArrivalNote(src.Dataset, src.streamKeys()); f != nil && f.Hint != "" {
		findings = append(findings, *f)
	}
	for i := range findings {
		notes = append(notes, findings[i].Message+". "+findings[i].Hint)
	}
	return notes, nil
}

// streamKeys returns the dataset's streams in the batch that bound a timeline (gridOf).
func (src *Source) streamKeys() []string {
	keys := []string{}
	for _, c := range src.readColumns() {
		if c.Feature != nil && !column.Is[*column.TimesColumn](c) &&
			!column.Is[*column.GeneratedColumn](c) &&
			(!c.Feature.Default || src.Config.Keys != nil) {
			keys = append(keys, c.StreamKey())
		}
	}
	return keys
}

// maxTimeline bounds the rows of an episode's timeline. A longer one has a wrong timestamp.
const maxTimeline = 1 << 31

// alignColumns sets the configured types, and the mode, edge and gap of each column that is read by
// time. The defaults are Episode.align's (align.DefaultMode). Offsets of windows= are not
// interpolated by default.
func (src *Source) alignColumns() error {
	cfg := src.Config.Align
	if cfg == nil {
		cfg = &align.Config{}
	}
	known := append(src.columnKeys(), "task")
	for _, named := range cfg.Named() {
		slices.Sort(named)
		for _, k := range named {
			if !slices.Contains(known, k) && src.Dataset.Info().Feature(k) == nil {
				return options.MissingKey(src.Dataset.Info(), "align", k, known)
			}
		}
	}
	for _, c := range src.readColumns() {
		k := c.StreamKey()
		if column.Is[*column.TimesColumn](c) {
			k = c.Feature.Key
		} else if to := cfg.DTypes[k]; to != 0 {
			if !c.HasNumbers() || !to.Float() {
				return robocache.Misuse("loader", robocache.Where{"stream": k}, "align: dtypes: %s",
					to.String()).
					WithHint("float32, float64, float16 or bfloat16, for numeric streams")
			}
			c.SetDType(to)
		}
		if err := src.checkCausalWindow(c, cfg); err != nil {
			return err
		}
		if c.Time != nil {
			if err := src.chooseRule(c, k, cfg); err != nil {
				return err
			}
		}
	}
	var before []*column.TableColumn
	for _, c := range src.Columns {
		if rows := c.Table(); rows != nil && c.Draw == nil {
			sharePlan(rows, before)
			before = append(before, rows)
		}
	}
	return nil
}

// chooseRule sets the rule of a column that is read by time. k is the stream whose options apply.
func (src *Source) chooseRule(c *column.Column, k string, cfg *align.Config) error {
	s := c.Time
	if err := src.chooseMode(c, k, cfg); err != nil {
		return err
	}
	if s.Options.Mode == align.Mean {
		window := int64(cfg.Window)
		if window == 0 && src.Timebase.IsGrid {
			window = cfg.HZ.Nanos(1)
		}
		if window == 0 {
			return ruleError(k, "mode mean without a rate",
				robocache.Option("hz")+", or "+robocache.Option("align", "window", "20ms"))
		}
		s.Options.Before, s.Options.After = align.HalfWindows(window)
	}
	if c.Feature != nil {
		if err := src.chooseArrivals(c, cfg); err != nil {
			return err
		}
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

// ruleError returns Misuse of the align options of a stream.
func ruleError(stream, msg, hint string) error {
	return robocache.Misuse("loader", robocache.Where{"stream": stream}, "align: %s", msg).
		WithHint("%s", hint)
}

// chooseMode sets the clock, the offset and the mode of a column that is read by time. It rejects a
// mode that computes values which the stream does not have, such as the mean of two texts.
func (src *Source) chooseMode(c *column.Column, k string, cfg *align.Config) error {
	s := c.Time
	s.Options = align.Options{
		Stream: k,
		Edge:   cfg.Edge.For(k),
		MaxGap: int64(cfg.MaxGap.For(k)),
		Mode:   align.Previous,
	}
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
	computes := s.Options.Mode.Computes()
	switch {
	case c.Span != nil || s.IsNative && computes && !chosen:
		// the stream's samples, not interpolated
		s.Options.Mode = align.Previous
	case computes && (c.Table() == nil || c.StoredDType == robocache.Bool):
		return ruleError(k, "mode "+s.Options.Mode.String()+": such values are not computed with",
			"nearest, previous or next")
	case computes && c.StoredDType.Integer() && !cfg.DTypes[k].Float():
		return ruleError(k, "mode "+s.Options.Mode.String()+" of integers",
			"nearest, previous or next; or "+
				robocache.Option("align", "dtypes", k, "float32")+" where they are quantities")
	}
	return nil
}

// chooseArrivals sets when the samples of a causal column count as arrived.
func (src *Source) chooseArrivals(c *column.Column, cfg *align.Config) error {
	s, k := c.Time, c.Feature.Key
	hasLog := align.HasArrivalTimes(src.Dataset, k)
	var err error
	if s.Options.Causality, err = cfg.CausalityOf(c.Feature, hasLog); err != nil {
		return err
	}
	if !s.Options.IsCausal {
		return nil
	}
	if cfg.Stale.For(k) == align.StaleError {
		s.Options.Edge = align.EdgeError
	}
	s.Arrivals = column.ArrivalRule{
		IsRecorded: hasLog,
		AtSample:   src.Config.Native.Of(c.Key) != nil,
		Draw:       cfg.Latency[k].Draw,
		DrawID:     column.KeyNumber(src.DatasetKey(s.Clock)),
	}
	switch draw := s.Arrivals.Draw; {
	case draw.Measured && !hasLog:
		return robocache.Misuse("loader", robocache.Where{"stream": k},
			"align: a measured latency: the dataset has no arrival times of this stream").
			WithHint("State a distribution: %s.", robocache.Option("align", "latency", k,
				`{"uniform": [0.01, 0.03]}`))
	case !draw.IsZero():
		s.Options.ArrivalShift = int64(cfg.ArrivalDelay.For(k))
	case hasLog:
		s.Options.ArrivalShift -= s.Offset
	}
	return nil
}

// checkCausalWindow rejects a window of a causal observation that reaches past the tick.
func (src *Source) checkCausalWindow(c *column.Column, cfg *align.Config) error {
	if c.Feature == nil || !cfg.IsCausal(c.Feature.Key) {
		return nil
	}
	w := &src.Windows[c.Window]
	past := c.Span != nil && c.Span[1] > 0 || len(w.Nanos) > 0 && slices.Max(w.Nanos) > 0 ||
		len(w.Offsets) > 0 && slices.Max(w.Offsets) > 0
	if !past {
		return nil
	}
	return robocache.Misuse("loader", robocache.Where{"stream": c.Key},
		"align: causal: a window of this observation reaches past the tick").
		WithHint("A label may do that: %s.",
			robocache.Option("align", "targets", []string{c.Feature.Key}))
}

// sumLength returns the time that a row of a column covers under sum: the step of a window with a
// count, else the period of hz. It returns 0 if the time varies, since a sample then covers the
// time up to the next one.
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

// sharePlan makes c use the plan of an earlier column with the same clock, rule and window, if
// there is one (align.A1).
func sharePlan(c *column.TableColumn, before []*column.TableColumn) {
	// The plan of a masked column also depends on its values, so it is not shared.
	shares := func(c *column.TableColumn) bool {
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
		if d.PlanLeader == d && shares(d) && d.Feature.Clock == c.Feature.Clock &&
			d.Window == c.Window && d.Steps == c.Steps && d.Time.Offset == c.Time.Offset &&
			d.Time.Length == c.Time.Length && d.Time.Arrivals == c.Time.Arrivals && d.Time.ClockName == c.Time.ClockName &&
			d.Time.Clock == c.Time.Clock && rule(d) == rule(c) {
			c.PlanLeader = d
			d.PlanFollowers = append(d.PlanFollowers, c)
			return
		}
	}
}

// eachEpisode calls fn for the selected episodes, several at once: in a folder of recordings the
// timestamps of each episode are a file.
func (src *Source) eachEpisode(exclude map[int]bool, fn func(e int)) {
	var g errgroup.Group
	g.SetLimit(max(src.Config.Threads, 1))
	n := src.Dataset.Info().Episodes
	each := func(e int) {
		if e >= 0 && e < n && !exclude[e] { // order.NewTable rejects others
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

// countRows counts the rows of the timebase in all selected episodes, several at once. The function
// that it returns looks up the number of rows of an episode and, on a grid, the time of the first
// row. It is not safe for concurrent use.
func (src *Source) countRows(
	ctx context.Context,
	exclude map[int]bool,
) func(e int) (int, int64, error) {
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
	counts := make([]counted, src.Dataset.Info().Episodes)
	needsTimes, anchor := src.hasTimedColumn(), src.Dataset.Info().Feature(b.Key)
	src.eachEpisode(exclude, func(e int) {
		c := &counts[e]
		switch {
		case b.IsGrid:
			c.n, c.start, c.err = src.gridOf(ctx, e)
		case needsTimes:
			var t []int64
			t, c.err = src.Timestamps.OfStream(ctx, e, b.Key)
			c.n = len(t)
		default:
			c.n, c.err = robocache.RowsIn(ctx, src.Dataset, e, anchor)
		}
	})
	return func(e int) (int, int64, error) {
		c := &counts[e]
		if c.err != nil && src.Config.OnBadEpisode == "skip" && robocache.Bad(c.err) {
			// Episodes with bad timestamps never enter the order.
			src.report.Skipped.Add(int64(src.Dataset.Len(e)))
			src.report.Warn(
				fmt.Sprintf(
					"episode %d is left out: %v",
					src.Dataset.Info().EpisodeIndex(e),
					c.err,
				),
			)
			return 0, 0, nil
		}
		src.EpisodeRows[e] = c.n
		return c.n, c.start, robocache.At(
			c.err,
			robocache.Where{"episode": src.Dataset.Info().EpisodeIndex(e)},
		)
	}
}

// widestSpans finds, for each span of frames or of ragged rows, the maximum number of samples in
// the selected episodes. Frames are decoded directly into slots of the batch, so their number must
// be fixed.
func (src *Source) widestSpans(ctx context.Context) error {
	src.spanSlots = map[string]int{}
	info := src.Dataset.Info()
	for i := range src.Config.Native {
		w := &src.Config.Native[i]
		f := info.Feature(w.Key)
		isDelivered := src.Config.Keys == nil || slices.Contains(src.Config.Keys, w.Key)
		if f == nil || !isDelivered || w.Span == nil || w.Count != 0 || !hasFixedSlots(f) {
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
			src.spanSlots[w.Key] = max(src.spanSlots[w.Key], counts[e])
		}
		if n := src.spanSlots[w.Key]; n > options.MaxSteps {
			return options.Misuse(
				"windows",
				"a span of at most 2^20 samples of "+w.Key,
				fmt.Sprint(n),
			)
		}
	}
	return nil
}

// hasFixedSlots reports whether a span of the stream has the same number of slots in every sample:
// frames and ragged rows. Other numbers are stacked without empty slots.
func hasFixedSlots(f *robocache.Feature) bool {
	switch f.Kind {
	case robocache.KindText, robocache.KindEvent:
		return false
	case robocache.KindNumeric:
		return f.Ragged()
	}
	return true
}

// gridOf returns the number of rows of an episode on the uniform timeline (hz), and the time of the
// first row.
func (src *Source) gridOf(ctx context.Context, episode int) (n int, start int64, err error) {
	cfg := src.Config.Align
	if src.Dataset.Len(episode) == 0 {
		return 0, 0, nil
	}
	var names []string
	var streams [][]int64
	// addBounds adds the timestamps of a stream. Unless always is set, it skips a stream that does
	// not bound the timeline (align.Bounds).
	addBounds := func(key string, always bool) error {
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
		if t, err = src.usableTicks(ctx, episode, key, t); err != nil {
			return err
		}
		names, streams = append(names, key), append(streams, t)
		return nil
	}
	for _, key := range src.streamKeys() {
		if err := addBounds(key, key == cfg.Extent); err != nil {
			return 0, 0, err
		}
	}
	// The option extent may name a stream that the batch does not hold.
	if k := cfg.Extent; !slices.Contains(names, k) && src.Dataset.Info().Feature(k) != nil &&
		k != "intersection" && k != "union" {
		if err := addBounds(k, true); err != nil {
			return 0, 0, err
		}
	}
	// If no stream bounds the timeline, the rows of the episode do.
	if len(streams) == 0 {
		if err := addBounds("", true); err != nil {
			return 0, 0, err
		}
	}
	t0, t1, err := align.Extent(cfg.Extent, names, streams)
	if err != nil {
		return 0, 0, err
	}
	count := align.UniformCount(t0, t1, cfg.HZ)
	if count > maxTimeline {
		return 0, 0, robocache.Malformed("loader",
			robocache.Where{"episode": src.Dataset.Info().EpisodeIndex(episode)},
			"a timeline of %d rows from %d to %d ns", count, t0, t1).
			WithHint("a timestamp is wrong: %s", robocache.Command("doctor"))
	}
	return int(count), t0, nil
}

// usableTicks returns the first and last tick at which a stream bounds the timeline, from its
// shifted timestamps (align.Causality.Usable).
func (src *Source) usableTicks(
	ctx context.Context, episode int, key string, timestamps []int64,
) ([]int64, error) {
	f := src.Dataset.Info().Feature(key)
	if f == nil || !src.Config.Align.IsCausal(key) {
		return timestamps, nil
	}
	hasLog := align.HasArrivalTimes(src.Dataset, key)
	c, err := src.Config.Align.CausalityOf(f, hasLog)
	if err != nil {
		return nil, err
	}
	arrivals := timestamps
	if hasLog {
		if arrivals, err = src.Arrivals.OfStream(ctx, episode, src.timestampsOf(f)); err != nil {
			return nil, err
		}
	}
	return c.Usable(timestamps, arrivals), nil
}

// readArrivals reads when the samples of a stream arrived (align.Arrivals).
func (src *Source) readArrivals(
	ctx context.Context, episode int, stream string,
) ([]int64, error) {
	times, err := align.ArrivalTimes(ctx, src.Dataset, episode, stream,
		src.Config.Align.Clock[stream])
	return align.NewArrivals(times), err
}

// readTimestamps reads the timestamps of a stream. If values are read by time, it checks once that
// they ascend.
func (src *Source) readTimestamps(
	ctx context.Context,
	episode int,
	stream string,
) ([]int64, error) {
	cfg := src.Config.Align
	if cfg == nil {
		cfg = &align.Config{}
	}
	return cfg.Timestamps(ctx, src.Dataset, episode, stream)
}

// timestampsOf returns the stream whose timestamps are used for a feature: the first one of its
// clock, so that they are read and cached once.
func (src *Source) timestampsOf(f *robocache.Feature) string {
	if f.Clock == "" {
		return f.Key
	}
	cfg := src.Config.Align
	for _, g := range src.Dataset.Info().Features {
		if g.Clock == f.Clock &&
			(cfg == nil || cfg.Clock[g.Key] == cfg.Clock[f.Key] &&
				cfg.Drift[g.Key] == cfg.Drift[f.Key]) {
			return g.Key
		}
	}
	return f.Key
}
