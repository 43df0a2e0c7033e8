package loader

import (
	"context"
	"fmt"
	"slices"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/align"
	"github.com/goatnote-inc/robocache/kernel"
)

// streamAlign is how one column comes onto the timeline.
type streamAlign struct {
	clock    string // the stream whose stamps count: "" for the task text
	offset   int64
	opt      align.Options
	rule     kernel.Rule // of values
	epilogue kernel.Epilogue
}

// maxTimeline bounds the rows of one episode's timeline: beyond, a stamp is wrong.
const maxTimeline = 1 << 31

// checkAlign refuses what a loader's timeline cannot be.
func (c *Config) checkAlign() error {
	a := c.Align
	switch {
	case a == nil:
		return nil
	case a.Times != nil:
		return &robocache.Error{Class: robocache.ErrUnsupported, Op: "loader", Msg: "align times= in a loader", Hint: "give hz=; times= is for one episode's align"}
	case len(a.Clock) > 0:
		return &robocache.Error{Class: robocache.ErrUnsupported, Op: "loader", Msg: "align clock=", Hint: "the streams of this format have one clock each; leave clock out"}
	case len(a.Keys) > 0:
		return misuse("align keys", "none: keys= of the loader chooses", fmt.Sprint(a.Keys))
	case a.HZ.Zero() || a.HZ.Num < 0 || a.HZ.Den <= 0:
		return misuse("align", "hz, a rate above 0", a.HZ.String())
	case a.Window < 0:
		return misuse("align window", "0 or more", fmt.Sprint(int64(a.Window)))
	}
	for _, k := range mapKeys(a.Offset) {
		if off := a.Offset[k]; off <= -maxOffset || off >= maxOffset {
			return misuse("align offset of "+k, "less than 2^62 ns", fmt.Sprint(int64(off)))
		}
	}
	return nil
}

const maxOffset = 1 << 62

// alignColumns settles mode, edge and gap of each column. The defaults are Episode.align's: linear for floats; previous for
// integers, booleans and text; nearest for pictures.
func (src *source) alignColumns() error {
	cfg := src.cfg.Align
	known := append(src.layout.keys(), "task")
	for _, named := range [][]string{mapKeys(cfg.Modes), mapKeys(cfg.Edge.Keys), mapKeys(cfg.MaxGap.Keys), mapKeys(cfg.Offset), mapKeys(cfg.Period), mapKeys(cfg.Quats), mapKeys(cfg.DTypes)} {
		for _, k := range named {
			if !slices.Contains(known, k) && src.ds.Info().Feature(k) == nil {
				return unknownKey("align", k, known)
			}
		}
	}
	window := int64(cfg.Window)
	if window == 0 {
		window = cfg.HZ.Nanos(1)
	}
	for i := range src.layout.columns {
		c := &src.layout.columns[i]
		k := c.key
		s := &streamAlign{offset: int64(cfg.Offset[k]), opt: align.Options{Stream: k, Edge: cfg.Edge.For(k), MaxGap: int64(cfg.MaxGap.For(k))}}
		if c.feature != nil {
			s.clock = k
		}
		s.opt.Mode = align.Previous
		switch {
		case c.source == fromVideo || c.source == fromStills:
			s.opt.Mode = align.Nearest
		case c.source == fromTable && c.stored.Float():
			s.opt.Mode = align.Linear
		}
		if m, ok := cfg.Modes[k]; ok {
			s.opt.Mode = m
		}
		bad := func(msg, hint string) error {
			return &robocache.Error{Class: robocache.ErrMisuse, Op: "loader", Where: robocache.Where{"stream": k}, Msg: "align: " + msg, Hint: hint}
		}
		numeric := c.source == fromTable
		to, cast := cfg.DTypes[k]
		switch {
		case s.opt.Mode.Computes() && (!numeric || c.stored == robocache.Bool):
			return bad("mode "+s.opt.Mode.String()+": such values are not computed with", "nearest, previous or next")
		case s.opt.Mode.Computes() && c.stored.Integer() && !to.Float():
			return bad("mode "+s.opt.Mode.String()+" of integers", "nearest, previous or next; or dtypes={"+k+": \"float32\"} where they are quantities")
		case cast && (!numeric || !to.Float()):
			return bad("dtypes: "+to.String(), "float32, float64, float16 or bfloat16, for numeric streams")
		}
		if cast {
			src.retype(i, to)
		}
		if s.opt.Mode == align.Mean {
			s.opt.Before, s.opt.After = align.HalfWindows(window)
		}
		s.rule = kernel.Rule{Mode: s.opt.Mode, Period: cfg.Period[k], Quats: cfg.Quats[k]}
		if c.norm != nil && numeric {
			// In the kernel, so that rows without a value stay zero bits (K9) and there is one rounding (K10).
			s.epilogue = c.norm.epilogue(0)
		}
		c.aligns = s
	}
	return nil
}

func mapKeys[T any](m map[string]T) []string {
	var out []string
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}

// onGrid gives stamps as align sees them: those that are grid times through float32 are the grid times.
func (src *source) onGrid(stream string, times []int64) []int64 {
	rate := src.ds.Info().FPS
	if f := src.ds.Info().Feature(stream); f != nil && !f.FPS.Zero() {
		rate = f.FPS
	}
	return align.OnGrid(times, rate)
}

// timeline counts the rows of an episode's timeline and finds its start.
func (src *source) timeline(ctx context.Context, episode int) (n int, start int64, err error) {
	cfg := src.cfg.Align
	if src.ds.Len(episode) == 0 {
		return 0, 0, nil
	}
	var names []string
	var streams [][]int64
	add := func(key string) error {
		t, err := src.stamps.of(ctx, episode, key)
		if err != nil {
			return err
		}
		if off := int64(cfg.Offset[key]); off != 0 && len(t) > 0 {
			t = []int64{t[0] + off, t[len(t)-1] + off}
		}
		names, streams = append(names, key), append(streams, t)
		return nil
	}
	for i := range src.layout.columns {
		if c := &src.layout.columns[i]; c.feature != nil && (!c.feature.Default || src.cfg.Keys != nil) {
			if err := add(c.key); err != nil {
				return 0, 0, err
			}
		}
	}
	if k := cfg.Extent; k != "" && k != "intersection" && k != "union" && !slices.Contains(names, k) && src.ds.Info().Feature(k) != nil {
		if err := add(k); err != nil {
			return 0, 0, err
		}
	}
	if len(streams) == 0 {
		if err := add(""); err != nil {
			return 0, 0, err
		}
	}
	t0, t1, err := align.Extent(cfg.Extent, names, streams)
	if err != nil {
		return 0, 0, err
	}
	count := align.UniformCount(t0, t1, cfg.HZ)
	if count > maxTimeline {
		return 0, 0, &robocache.Error{Class: robocache.ErrMalformed, Op: "loader", Where: robocache.Where{"episode": episode}, Msg: fmt.Sprintf("a timeline of %d rows from %d to %d ns", count, t0, t1), Hint: "a stamp is wrong: robocache doctor"}
	}
	return int(count), t0, nil
}

// plans finds, for each sample and step of a column, where its value comes from. The plan is of the whole batch: its sources are
// the rows that are given beside it, each once.
func (w *worker) plans(p *part, c *column) (*kernel.Plan, []robocache.Row, error) {
	own := p.src
	deltas := own.layout.windows[c.rows].nanos
	n := p.size()
	steps := c.steps
	order := slices.Grow(w.index[:0], n)[:n]
	for i := range order {
		order[i] = int32(i)
	}
	w.index = order
	slices.SortStableFunc(order, func(x, y int32) int { return int(p.places[x]) - int(p.places[y]) })
	whole := &kernel.Plan{Mode: c.aligns.opt.Mode, Kind: make([]kernel.Kind, n*steps), Left: make([]int32, n*steps), Right: make([]int32, n*steps), Weight: make([]float64, n*steps), Valid: make([]uint8, n*steps)}
	var rows []robocache.Row
	for lo := 0; lo < n; {
		hi := lo
		place := p.places[order[lo]]
		for hi < n && p.places[order[hi]] == place {
			hi++
		}
		episode := own.table.episode(int(place))
		src, err := own.stamps.of(w.ctx(), episode, c.aligns.clock)
		if err != nil {
			return nil, nil, &episodeError{episode, err}
		}
		targets := make([]int64, 0, (hi-lo)*steps)
		for _, i := range order[lo:hi] {
			t := own.table.start[place] + own.cfg.Align.HZ.Nanos(int64(p.rows[0][i].Index)) - c.aligns.offset
			for _, d := range deltas {
				targets = append(targets, t+d)
			}
		}
		one, err := align.NewPlan(src, targets, c.aligns.opt)
		if err != nil {
			return nil, nil, &episodeError{episode, robocache.At(err, robocache.Where{"episode": episode})}
		}
		used := usedRows(one)
		base := int32(len(rows))
		for _, r := range used {
			rows = append(rows, robocache.Row{Episode: episode, Index: int(r)})
		}
		place32 := func(r int32) int32 {
			k, _ := slices.BinarySearch(used, r)
			return base + int32(k)
		}
		for k := range one.Kind {
			at := int(order[lo+k/steps])*steps + k%steps
			whole.Kind[at], whole.Weight[at], whole.Valid[at] = one.Kind[k], one.Weight[k], one.Valid[k]
			switch one.Kind[k] {
			case kernel.Copy, kernel.Blend:
				whole.Left[at], whole.Right[at] = place32(one.Left[k]), place32(one.Right[k])
			case kernel.Window:
				whole.Left[at] = place32(one.Left[k])
				whole.Right[at] = whole.Left[at] + one.Right[k] - one.Left[k]
			}
		}
		lo = hi
	}
	whole.Sources = len(rows)
	return whole, rows, nil
}

// usedRows lists the source rows that a plan reads, ascending, each once.
func usedRows(p *kernel.Plan) []int32 {
	var used []int32
	for i, k := range p.Kind {
		switch k {
		case kernel.Copy:
			used = append(used, p.Left[i])
		case kernel.Blend:
			used = append(used, p.Left[i], p.Right[i])
		case kernel.Window:
			for r := p.Left[i]; r < p.Right[i]; r++ {
				used = append(used, r)
			}
		}
	}
	slices.Sort(used)
	return slices.Compact(used)
}

// gatherAligned brings a numeric column onto the timeline: one Gather of the rows that are needed, one Resample.
func (w *worker) gatherAligned(part *part, c *column) error {
	p, rows, err := w.plans(part, c)
	if err != nil {
		return err
	}
	ds := part.src.ds
	src := make([]byte, len(rows)*c.rowBytes)
	if err := ds.Gather(w.ctx(), c.key, rows, src); err != nil {
		part.isolate(rows, robocache.At(err, robocache.Where{"stream": c.key}), func(sub []robocache.Row) error {
			return ds.Gather(w.ctx(), c.key, sub, w.bytes(len(sub)*c.rowBytes))
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

// alignedRows gives the row that each place of a column takes its picture or text from, index -1 where it has none.
func (w *worker) alignedRows(part *part, c *column, mask []uint8) ([]robocache.Row, error) {
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
