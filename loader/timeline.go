package loader

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/align"
	"github.com/goatnote-inc/robocache/kernel"
	"github.com/goatnote-inc/robocache/loader/internal/planning"
)

// streamAlign is how one column comes onto the timeline.
type streamAlign struct {
	clock    string // the stream whose timestamps count: "" for the task text (its key where its drift is taken off)
	by       string // which of its clocks
	offset   int64
	opt      align.Options
	rule     kernel.Rule // of values
	epilogue kernel.Epilogue
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
		return &robocache.Error{Class: robocache.ErrUnsupported, Op: "loader", Msg: "align times= in a loader", Hint: "give hz=; times= is for one episode's align"}
	case len(a.Keys) > 0:
		return misuse("align keys", "none: keys= of the loader chooses", fmt.Sprint(a.Keys))
	case !a.HZ.Zero() && (a.HZ.Num < 0 || a.HZ.Den <= 0):
		return misuse("align", "hz, a rate above 0", a.HZ.String())
	case a.HZ.Zero() && a.Extent != "":
		return misuse("align extent", "extent beside hz: it is of a uniform timeline", a.Extent)
	case a.Window < 0:
		return misuse("align window", "0 or more", fmt.Sprint(int64(a.Window)))
	}
	return a.CheckShifts()
}

// alignColumns settles mode, edge and gap of each column that goes by time. The defaults are Episode.align's (align.DefaultMode); of windows=
// with offsets nothing is computed by default.
func (src *source) alignColumns() error {
	cfg := src.cfg.Align
	if cfg == nil {
		cfg = &align.Config{}
	}
	known := append(src.layout.keys(), "task")
	for _, named := range cfg.Named() {
		slices.Sort(named)
		for _, k := range named {
			if !slices.Contains(known, k) && src.ds.Info().Feature(k) == nil {
				return lacks(src.ds.Info(), "align", k, known)
			}
		}
	}
	window := int64(cfg.Window)
	if window == 0 && src.line.grid {
		window = cfg.HZ.Nanos(1)
	}
	for i := range src.layout.columns {
		c := &src.layout.columns[i]
		k := c.key
		if c.when {
			k = c.feature.Key
		} else if err := src.cast(i, cfg.DTypes[k]); err != nil {
			return err
		}
		if !c.timed {
			continue
		}
		s := &streamAlign{opt: align.Options{Stream: k, Edge: cfg.Edge.For(k), MaxGap: int64(cfg.MaxGap.For(k))}}
		s.offset, _ = cfg.Shift(k)
		s.opt.Mode = align.Previous
		chosen := false
		if c.feature == nil && !cfg.Drift[k].IsZero() {
			s.clock = k
		}
		if c.feature != nil {
			s.clock, s.by = src.timestampsOf(c.feature), cfg.Clock[k]
			s.opt.Mode, chosen = cfg.Mode(c.feature)
			s.opt.Hold = c.feature.Latched && !chosen
		}
		if c.native && s.opt.Mode.Computes() && !chosen {
			s.opt.Mode = align.Previous
		}
		if m, ok := cfg.Modes[k]; ok && c.feature == nil {
			s.opt.Mode = m
		}
		bad := func(msg, hint string) error {
			return &robocache.Error{Class: robocache.ErrMisuse, Op: "loader", Where: robocache.Where{"stream": k}, Msg: "align: " + msg, Hint: hint}
		}
		numeric := c.source == fromTable
		to := cfg.DTypes[k]
		switch {
		case c.spans || c.spread: // its samples, as they are
			s.opt.Mode = align.Previous
		case s.opt.Mode.Computes() && (!numeric || c.stored == robocache.Bool):
			return bad("mode "+s.opt.Mode.String()+": such values are not computed with", "nearest, previous or next")
		case s.opt.Mode.Computes() && c.stored.Integer() && !to.Float():
			return bad("mode "+s.opt.Mode.String()+" of integers", "nearest, previous or next; or dtypes={"+k+": \"float32\"} where they are quantities")
		}
		if s.opt.Mode == align.Mean {
			if window == 0 {
				return bad("mode mean without a rate", "hz=, or align={\"window\": seconds}")
			}
			s.opt.Before, s.opt.After = align.HalfWindows(window)
		}
		s.rule = kernel.Rule{Mode: s.opt.Mode, Period: cfg.Period[k], Quats: cfg.Quats[k]}
		if c.feature != nil {
			s.rule.Rotations = cfg.Turned(c.feature)
		}
		if c.norm != nil && numeric {
			// In the kernel, so that rows without a value stay zero bits (K9) and there is one rounding (K10).
			s.epilogue = c.norm.epilogue(0)
		}
		c.aligns = s
	}
	src.layout.share()
	return nil
}

// cast gives a numeric column another type, where one is chosen.
func (src *source) cast(i int, to robocache.DType) error {
	c := &src.layout.columns[i]
	switch {
	case to == robocache.DType(0):
		return nil
	case c.source != fromTable && c.source != fromRagged || !to.Float():
		return &robocache.Error{Class: robocache.ErrMisuse, Op: "loader", Where: robocache.Where{"stream": c.key}, Msg: "align: dtypes: " + to.String(), Hint: "float32, float64, float16 or bfloat16, for numeric streams"}
	}
	src.retype(i, to)
	return nil
}

// timeline counts the rows of an episode's timeline and finds its start.
func (src *source) timeline(ctx context.Context, episode int) (n int, start int64, err error) {
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
	for i := range src.layout.columns {
		if c := &src.layout.columns[i]; c.feature != nil && !c.when && (!c.feature.Default || src.cfg.Keys != nil) {
			if err := add(c.key, c.key == cfg.Extent); err != nil {
				return 0, 0, err
			}
		}
	}
	if k := cfg.Extent; k != "" && k != "intersection" && k != "union" && !slices.Contains(names, k) && src.ds.Info().Feature(k) != nil {
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
		return 0, 0, &robocache.Error{Class: robocache.ErrMalformed, Op: "loader", Where: robocache.Where{"episode": episode}, Msg: fmt.Sprintf("a timeline of %d rows from %d to %d ns", count, t0, t1), Hint: "a timestamp is wrong: robocache doctor"}
	}
	return int(count), t0, nil
}

// snapped moves a time onto a timestamp that is 1 ns beside it. On a timeline the sample's time and the offset are rounded each: their sum may
// miss the row that both mean, and behind the last one that would be padding. It also gives the first timestamp that is not before the time,
// where the search for a later time goes on: most windows are a few rows from place to place.
func snapped(t int64, timestamps []int64, from int) (int64, int) {
	i := from
	for i < len(timestamps) && timestamps[i] < t {
		if i++; i == from+16 {
			more, _ := slices.BinarySearch(timestamps[i:], t)
			i += more
			break
		}
	}
	switch {
	case i < len(timestamps) && timestamps[i]-t <= 1:
		t = timestamps[i]
	case i > 0 && t-timestamps[i-1] == 1:
		t--
	}
	return t, i
}

// plans finds, for each sample and step of a column, where its value comes from. The plan is of the whole batch: its sources are
// the rows that are given beside it, each once. Places that would read a row without a value have none. Both are the worker's, until it
// makes the next.
func (w *worker) plans(p *part, c *column) (*kernel.Plan, []robocache.Row, error) {
	own := p.src
	deltas := own.layout.windows[c.rows].nanos
	steps := c.steps
	whole := w.plan.Of(&w.plan.Whole, p.size()*steps)
	whole.Mode = c.aligns.opt.Mode
	rows := w.plan.Rows[:0]
	err := w.byEpisode(p, func(episode int, group []int32) error {
		timestamps, err := own.timestamps.of(w.Ctx(), episode, c.aligns.clock)
		if err != nil {
			return err
		}
		targets := w.plan.Targets[:0]
		for _, i := range group {
			t, err := own.at(w.Ctx(), p.places[i], p.rows[0][i].Index)
			if err != nil {
				return err
			}
			near := 0
			for _, d := range deltas {
				at := t - c.aligns.offset + d
				if d != 0 && own.line.grid {
					if near > 0 && timestamps[near-1] >= at {
						near = 0
					}
					at, near = snapped(at, timestamps, near)
				}
				targets = append(targets, at)
			}
		}
		w.plan.Targets = targets
		from, near := planning.Around(timestamps, targets, &c.aligns.opt)
		one := w.plan.Of(&w.plan.One, len(targets))
		if err := c.aligns.opt.Fill(one, near, targets); err != nil {
			return robocache.At(err, robocache.Where{"episode": episode})
		}
		used := w.plan.Used(one)
		base := int32(len(rows))
		for _, r := range used.Rows {
			rows = append(rows, robocache.Row{Episode: episode, Index: from + int(r)})
		}
		for k := range one.Kind {
			at := int(group[k/steps])*steps + k%steps
			whole.Kind[at], whole.Weight[at], whole.Valid[at] = one.Kind[k], one.Weight[k], one.Valid[k]
			switch one.Kind[k] {
			case kernel.Copy, kernel.Blend:
				whole.Left[at], whole.Right[at] = base+used.Place(one.Left[k]), base+used.Place(one.Right[k])
			case kernel.Window:
				whole.Left[at] = base + used.Place(one.Left[k])
				whole.Right[at] = whole.Left[at] + one.Right[k] - one.Left[k]
			}
		}
		return nil
	})
	w.plan.Rows = rows
	if err != nil {
		return nil, nil, err
	}
	whole.Sources = len(rows)
	valid, err := align.Validity(w.Ctx(), own.ds, c.feature, rows)
	if err != nil {
		return nil, nil, robocache.At(err, robocache.Where{"stream": c.key})
	}
	if valid != nil {
		align.Mask(whole, valid, 0)
	}
	return whole, rows, nil
}

// byEpisode calls fn for each episode of a part, with its samples in the part's order.
func (w *worker) byEpisode(p *part, fn func(episode int, group []int32) error) error {
	n := p.size()
	order := slices.Grow(w.index[:0], n)[:n]
	for i := range order {
		order[i] = int32(i)
	}
	w.index = order
	slices.SortStableFunc(order, func(x, y int32) int { return int(p.places[x]) - int(p.places[y]) })
	for lo := 0; lo < n; {
		hi := lo
		place := p.places[order[lo]]
		for hi < n && p.places[order[hi]] == place {
			hi++
		}
		episode := p.src.table.Episode(int(place))
		if err := fn(episode, order[lo:hi]); err != nil {
			var known *episodeError
			if errors.As(err, &known) {
				return err
			}
			return &episodeError{episode, err}
		}
		lo = hi
	}
	return nil
}

// gatherAligned brings a numeric column onto the timeline, and those that share its plan: one Gather of the rows that are needed, one Resample.
func (w *worker) gatherAligned(part *part, c *column) error {
	p, rows, err := w.plans(part, c)
	if err != nil {
		return err
	}
	if err := w.gatherPlanned(part, c, p, rows); err != nil {
		return err
	}
	for _, k := range c.shared {
		if err := w.gatherPlanned(part, &part.src.layout.columns[k], p, rows); err != nil {
			return err
		}
	}
	return nil
}

func (w *worker) gatherPlanned(part *part, c *column, p *kernel.Plan, rows []robocache.Row) error {
	ds := part.src.ds
	src := w.Bytes(len(rows) * c.rowBytes)
	if err := ds.Gather(w.Ctx(), c.key, rows, src); err != nil {
		part.isolate(rows, robocache.At(err, robocache.Where{"stream": c.key}), func(sub []robocache.Row) error {
			return ds.Gather(w.Ctx(), c.key, sub, make([]byte, len(sub)*c.rowBytes))
		})
		return nil
	}
	mask, masked := part.rowsInto(c.mask)
	defer masked()
	if c.raw != nil {
		pads(mask, p.Valid)
		part.pair(c, p, src)
		return nil
	}
	dst, done := part.rowsInto(c.entry)
	defer done()
	if c.elems == 0 {
		pads(mask, p.Valid)
		return nil
	}
	if c.mirror != nil || c.noise > 0 {
		return robocache.At(part.gatherMirrored(c, p, src, dst, mask), robocache.Where{"stream": c.key})
	}
	out, dtype := dst, c.out
	direct := c.out == c.stored || c.out.Float()
	if !direct {
		out, dtype = make([]byte, p.Len()*c.rowBytes), c.stored
	}
	copy(mask, p.Valid)
	x := applies.Get().(*applied)
	x.part(out, dtype, src, c.stored, c.elems, c.aligns.epilogue).Rule = c.aligns.rule
	x.planned(p, mask)
	if err := x.run(); err != nil {
		return robocache.At(err, robocache.Where{"stream": c.key})
	}
	pads(mask, mask)
	if !direct {
		return convert(dst, c.out, out, c.stored, c.elems, nil)
	}
	return nil
}

// pads turns validity into padding.
func pads(mask, valid []uint8) {
	for i, v := range valid {
		mask[i] = 1 - v
	}
}

// alignedRows gives the row that each place of a column takes its frame or text from, index -1 where it has none.
func (w *worker) alignedRows(part *part, c *column, mask []uint8) ([]robocache.Row, error) {
	if c.spread {
		return w.spreadRows(part, c, mask)
	}
	p, rows, err := w.plans(part, c)
	if err != nil {
		return nil, err
	}
	out := make([]robocache.Row, p.Len())
	for i, k := range p.Kind {
		out[i] = robocache.Row{Episode: part.rows[0][i/c.steps].Episode, Index: -1}
		if k == kernel.Copy {
			out[i] = rows[p.Left[i]]
		}
	}
	if mask != nil {
		pads(mask, p.Valid)
	}
	return out, nil
}
