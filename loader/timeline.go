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
	clock  string // the stream whose stamps count: "" for the task text
	offset int64
	opt    align.Options
}

// maxTimeline bounds the rows of one episode's timeline: beyond, a stamp is wrong.
const maxTimeline = 1 << 31

// alignColumns settles mode, edge and gap of each column.
func (a *assembler) alignColumns() error {
	cfg := a.cfg.Align
	period := int64(float64(1e9) / cfg.Hz.Float())
	known := a.layout.keys()
	for _, named := range [][]string{mapKeys(cfg.Modes), mapKeys(cfg.Edge.Keys), mapKeys(cfg.MaxGap.Keys), mapKeys(cfg.Offset)} {
		for _, k := range named {
			if !slices.Contains(known, k) {
				return unknownKey("align", k, known)
			}
		}
	}
	for i := range a.layout.columns {
		c := &a.layout.columns[i]
		s := &streamAlign{offset: int64(cfg.Offset[c.key]), opt: align.Options{Stream: c.key, MaxGap: int64(cfg.MaxGap.Of(c.key))}}
		if c.feature != nil {
			s.clock = c.key
		}
		// What cannot be computed with is held; pictures take the nearest.
		s.opt.Mode = align.Previous
		switch {
		case c.source == fromVideo || c.source == fromStills:
			s.opt.Mode = align.Nearest
		case c.source == fromTable && c.stored.Float():
			s.opt.Mode = align.Linear
		}
		if m, ok := cfg.Modes[c.key]; ok {
			mode, err := align.ParseMode(m)
			if err != nil {
				return robocache.At(err, robocache.Where{"stream": c.key})
			}
			if mode.Computes() && (c.source != fromTable || !c.stored.Float()) {
				return &robocache.Error{Class: robocache.ErrMisuse, Op: "loader", Where: robocache.Where{"stream": c.key}, Msg: "align: " + m + " of values that are not computed with", Want: "nearest, previous or next", Got: m}
			}
			s.opt.Mode = mode
		}
		if e := cfg.Edge.Of(c.key); e != "" {
			edge, err := align.ParseEdge(e)
			if err != nil {
				return robocache.At(err, robocache.Where{"stream": c.key})
			}
			s.opt.Edge = edge
		}
		if s.opt.MaxGap < 0 {
			return misuse("align max_gap", "0 or more", fmt.Sprint(s.opt.MaxGap))
		}
		s.opt.Before, s.opt.After = align.HalfWindows(period)
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

// timeline counts the rows of an episode's timeline and finds its start.
func (a *assembler) timeline(ctx context.Context, episode int) (n int, start int64, err error) {
	cfg := a.cfg.Align
	if a.ds.Len(episode) == 0 {
		return 0, 0, nil
	}
	var names []string
	var streams [][]int64
	for i := range a.layout.columns {
		c := &a.layout.columns[i]
		if c.feature == nil || c.feature.Default || c.source == fromText {
			continue
		}
		t, err := a.stamps.of(ctx, episode, c.key)
		if err != nil {
			return 0, 0, err
		}
		if off := int64(cfg.Offset[c.key]); off != 0 && len(t) > 0 {
			t = []int64{t[0] + off, t[len(t)-1] + off}
		}
		names, streams = append(names, c.key), append(streams, t)
	}
	if len(streams) == 0 {
		t, err := a.stamps.of(ctx, episode, "")
		if err != nil {
			return 0, 0, err
		}
		streams = append(streams, t)
		names = append(names, "")
	}
	t0, t1, err := align.Extent(cfg.Extent, names, streams)
	if err != nil {
		return 0, 0, err
	}
	count := align.UniformCount(t0, t1, *cfg.Hz)
	if count > maxTimeline {
		return 0, 0, &robocache.Error{Class: robocache.ErrMalformed, Op: "loader", Where: robocache.Where{"episode": episode}, Msg: fmt.Sprintf("a timeline of %d rows from %d to %d ns", count, t0, t1), Hint: "a stamp is wrong: robocache doctor"}
	}
	return int(count), t0, nil
}

// plans finds, for each sample and step of a column, where its value comes from. The plan is of the whole batch: its sources are
// the rows that are given beside it, each once.
func (w *worker) plans(u *unit, c *column) (*kernel.Plan, []robocache.Row, error) {
	a := w.a
	deltas := a.layout.windows[c.rows].nanos
	n := len(u.places)
	steps := c.steps
	order := slices.Grow(w.index[:0], n)[:n]
	for i := range order {
		order[i] = int32(i)
	}
	w.index = order
	slices.SortStableFunc(order, func(x, y int32) int { return int(u.places[x]) - int(u.places[y]) })
	whole := &kernel.Plan{Mode: c.aligns.opt.Mode, Kind: make([]kernel.Kind, n*steps), Left: make([]int32, n*steps), Right: make([]int32, n*steps), Weight: make([]float64, n*steps), Valid: make([]uint8, n*steps)}
	var rows []robocache.Row
	for lo := 0; lo < n; {
		hi := lo
		place := u.places[order[lo]]
		for hi < n && u.places[order[hi]] == place {
			hi++
		}
		episode := a.table.episode(int(place))
		src, err := a.stamps.of(w.ctx(), episode, c.aligns.clock)
		if err != nil {
			return nil, nil, &episodeError{episode, err}
		}
		targets := make([]int64, 0, (hi-lo)*steps)
		for _, i := range order[lo:hi] {
			t := a.table.start[place] + a.cfg.Align.Hz.Nanos(int64(u.rows[0][i].Index)) - c.aligns.offset
			for _, d := range deltas {
				targets = append(targets, t+d)
			}
		}
		p, err := align.NewPlan(src, targets, c.aligns.opt)
		if err != nil {
			return nil, nil, &episodeError{episode, robocache.At(err, robocache.Where{"episode": episode})}
		}
		used := usedRows(p)
		base := int32(len(rows))
		for _, r := range used {
			rows = append(rows, robocache.Row{Episode: episode, Index: int(r)})
		}
		place32 := func(r int32) int32 {
			k, _ := slices.BinarySearch(used, r)
			return base + int32(k)
		}
		for k := range p.Kind {
			at := int(order[lo+k/steps])*steps + k%steps
			whole.Kind[at], whole.Weight[at], whole.Valid[at] = p.Kind[k], p.Weight[k], p.Valid[k]
			switch p.Kind[k] {
			case kernel.Copy, kernel.Blend:
				whole.Left[at], whole.Right[at] = place32(p.Left[k]), place32(p.Right[k])
			case kernel.Window:
				whole.Left[at] = place32(p.Left[k])
				whole.Right[at] = whole.Left[at] + p.Right[k] - p.Left[k]
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
func (w *worker) gatherAligned(u *unit, c *column, dst []byte) error {
	p, rows, err := w.plans(u, c)
	if err != nil {
		return err
	}
	src := make([]byte, len(rows)*c.rowBytes)
	if err := w.a.ds.Gather(w.ctx(), c.key, rows, src); err != nil {
		return robocache.At(err, robocache.Where{"stream": c.key})
	}
	mask := u.batch.Tensors[c.mask].Data
	if c.elems == 0 {
		pads(mask, p.Valid)
		return nil
	}
	out, dtype := dst, c.out
	direct := c.out == c.stored || c.out.Float()
	if !direct {
		out, dtype = make([]byte, p.Len()*c.rowBytes), c.stored
	}
	err = kernel.Resample(kernel.Dense(out, dtype, p.Len(), c.elems), kernel.Dense(src, c.stored, len(rows), c.elems), p, kernel.Options{Valid: mask})
	if err != nil {
		return robocache.At(err, robocache.Where{"stream": c.key})
	}
	pads(mask, mask)
	if !direct {
		convert(dst, c.out, out, c.stored, nil)
	}
	if c.norm != nil {
		if c.out == robocache.Float64 {
			c.norm.rows64(view[float64](dst))
		} else {
			c.norm.rows32(floats32(dst))
		}
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
func (w *worker) alignedRows(u *unit, c *column, mask []uint8) ([]robocache.Row, error) {
	p, rows, err := w.plans(u, c)
	if err != nil {
		return nil, err
	}
	out := make([]robocache.Row, p.Len())
	for i, k := range p.Kind {
		out[i] = robocache.Row{Episode: u.rows[0][i/c.steps].Episode, Index: -1}
		if k == kernel.Copy {
			out[i] = rows[p.Left[i]]
		}
	}
	if mask != nil {
		pads(mask, p.Valid)
	}
	return out, nil
}
