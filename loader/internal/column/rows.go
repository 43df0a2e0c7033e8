package column

import (
	"errors"
	"slices"
	"strings"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/align"
	"github.com/goatnote-inc/robocache/kernel"
	"github.com/goatnote-inc/robocache/loader/internal/layout"
)

// Part is what one source gives to a batch under construction.
type Part struct {
	Build  *BatchBuild
	Source *DataSource
	rows   [][]robocache.Row // a window each, n × steps
	pads   [][]byte          // which of them stand for a row outside the episode
	places []int32           // which selected episode each sample is in
	Slots  []int32           // which sample of the batch each is; nil: the same
}

func (p *Part) size() int { return len(p.places) }

// slot is the place in the batch of the part's sample i.
func (p *Part) slot(i int) int {
	if p.Slots == nil {
		return i
	}
	return int(p.Slots[i])
}

// ValueSlot is the place in the batch of the k-th value of a column with windows.
func (p *Part) ValueSlot(c *Column, k int) int {
	if p.Slots == nil {
		return k
	}
	return int(p.Slots[k/c.Steps])*c.Steps + k%c.Steps
}

// frame is where the k-th frame of a column goes.
func (p *Part) frame(c *Column, k int) []byte {
	k = p.ValueSlot(c, k)
	return p.TensorData(c.Entry)[k*c.OutBytes : (k+1)*c.OutBytes]
}

// TensorData is the tensor of the batch that entry i of the source goes to.
func (p *Part) TensorData(i int) []byte { return p.Build.Batch.Tensors[p.Source.TensorSlots[i]].Data }

// rowsInto gives room for all samples' values of entry i, one after the other: the tensor itself where the part is the whole batch.
// done puts them where they belong. Of entry -1 there is none.
func (p *Part) rowsInto(i int) (dst []byte, done func()) {
	if i < 0 {
		return nil, func() {}
	}
	data := p.TensorData(i)
	if p.Slots == nil {
		return data, func() {}
	}
	own := &p.Source.Tensors[i]
	size, wide, pad := own.Bytes, p.Source.BatchSchema.Tensors[p.Source.TensorSlots[i]].Bytes, p.Source.PaddedRows[own.Key]
	dst = make([]byte, len(p.Slots)*size)
	return dst, func() {
		for k, slot := range p.Slots {
			from, to := dst[k*size:(k+1)*size], data[int(slot)*wide:int(slot+1)*wide]
			if pad != nil {
				pad.CopyRows(to, from, own.DType.Size())
			} else {
				copy(to, from)
			}
		}
	}
}

// ResolveRows finds the rows of the part's samples, numbered as its source does, and those of their windows.
func (p *Part) ResolveRows(samples []int64) {
	src, n := p.Source, len(samples)
	if p.rows == nil {
		p.rows, p.pads = make([][]robocache.Row, len(src.Windows)), make([][]byte, len(src.Windows))
	}
	p.places = slices.Grow(p.places[:0], n)[:n]
	anchors := slices.Grow(p.rows[0][:0], n)[:n]
	for i, s := range samples {
		r, place := src.Table.Row(s)
		anchors[i], p.places[i] = r, int32(place)
	}
	p.rows[0] = anchors
	p.pads[0] = slices.Grow(p.pads[0][:0], n)[:n] // all zero: a sample is in its episode
	for k := 1; k < len(src.Windows); k++ {
		offsets := src.Windows[k].Offsets
		rows, pads := slices.Grow(p.rows[k][:0], n*len(offsets)), slices.Grow(p.pads[k][:0], n*len(offsets))
		for _, r := range anchors {
			length := src.rowsOn(r.Episode)
			for _, o := range offsets {
				row, outside := align.Clamp(r.Index, o, length)
				rows, pads = append(rows, robocache.Row{Episode: r.Episode, Index: row}), append(pads, flag(outside))
			}
		}
		p.rows[k], p.pads[k] = rows, pads
	}
}

func flag(b bool) byte {
	if b {
		return 1
	}
	return 0
}

// Begin resolves the part's samples, and counts what is still to come.
func (p *Part) Begin(samples []int64) (waits int64) {
	p.ResolveRows(samples)
	for _, c := range p.Source.Columns {
		waits += int64(c.Kind.Waits(len(samples)))
		if c.Deferred != nil {
			c.Deferred.begin(p, c)
		}
	}
	return waits
}

func NoRow(r robocache.Row) bool { return r.Index < 0 }

// RowsOf gives the row of each place of a column, index -1 where there is none, and the mask of the column, unless mask is nil.
func (w *Reader) RowsOf(p *Part, c *Column, mask []byte) ([]robocache.Row, error) {
	if c.Time == nil {
		copy(mask, p.pads[c.Window])
		return p.rows[c.Window], nil
	}
	if c.Span != nil {
		return w.placedRows(p, c, mask)
	}
	plan, rows, err := w.plans(p, c)
	if err != nil {
		return nil, err
	}
	out := make([]robocache.Row, plan.Len())
	for i, k := range plan.Kind {
		out[i] = robocache.Row{Episode: p.rows[0][i/c.Steps].Episode, Index: -1}
		if k == kernel.Copy {
			out[i] = rows[plan.Left[i]]
		}
	}
	if mask != nil {
		pads(mask, plan.Valid)
	}
	return out, nil
}

// pads turns validity into padding.
func pads(mask, valid []uint8) {
	for i, v := range valid {
		mask[i] = 1 - v
	}
}

// maskRows marks the rows without a value of a column that is read by rows. Beside a window it adds to the pads.
func (w *Reader) maskRows(p *Part, c *Column, rows []robocache.Row) error {
	if c.Feature == nil || !c.Feature.Masked || c.MaskEntry < 0 {
		return nil
	}
	valid, err := robocache.Validity(w.Ctx(), p.Source.Dataset, c.Feature, rows)
	for i, v := range valid {
		if v == 0 {
			p.TensorData(c.MaskEntry)[p.ValueSlot(c, i)] = 1
		}
	}
	return robocache.At(err, robocache.Where{"stream": c.Key})
}

// byEpisode calls fn for each episode of a part, with its samples in the part's order.
func (w *Reader) byEpisode(p *Part, fn func(episode int, group []int32) error) error {
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
		episode := p.Source.Table.Episode(int(place))
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

// snapped moves a time onto a timestamp that is 1 ns beside it. On a grid the sample's time and the offset are rounded each: their sum may
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

// planRoom is a worker's room for plans, used again.
type planRoom struct {
	whole, one kernel.Plan // of a batch, of an episode's part of it
	sums       [2]kernel.Sums
	targets    []int64
	lengths    []int64 // sum: of the targets' rows
	rows       []robocache.Row
}

// sized makes a plan of n rows; what they hold is written by Fill, or whole by who asks.
func sized(p *kernel.Plan, n int) *kernel.Plan {
	p.Kind = slices.Grow(p.Kind[:0], n)[:n]
	p.Left, p.Right = slices.Grow(p.Left[:0], n)[:n], slices.Grow(p.Right[:0], n)[:n]
	p.Weight, p.Valid = slices.Grow(p.Weight[:0], n)[:n], slices.Grow(p.Valid[:0], n)[:n]
	return p
}

// around cuts the timestamps that decide about some targets out of a stream's: an episode of an hour is not looked through for a window of a
// second. On both sides two distinct timestamps beyond them stay, which is what any mode and edge looks at (A2, A4, A8).
func around(timestamps, targets []int64, before, after int64) (from int, near []int64) {
	if len(timestamps) < 64 || len(targets) == 0 {
		return 0, timestamps
	}
	lo, hi := slices.Min(targets)-before, slices.Max(targets)+after
	from, _ = slices.BinarySearch(timestamps, lo)
	to, _ := slices.BinarySearch(timestamps, hi+1)
	for range 2 {
		if from > 0 {
			from, _ = slices.BinarySearch(timestamps[:from], timestamps[from-1])
		}
		if to < len(timestamps) {
			more, _ := slices.BinarySearch(timestamps[to:], timestamps[to]+1)
			to += more
		}
	}
	return from, timestamps[from:to]
}

// plans finds, for each sample and step of a column, where its value comes from. The plan is of the whole batch: its sources are
// the rows that are given beside it. Places that would read a row without a value have none. Both are the worker's, until it
// makes the next.
func (w *Reader) plans(p *Part, c *Column) (*kernel.Plan, []robocache.Row, error) {
	own, opt := p.Source, &c.Time.Options
	deltas := own.Windows[c.Window].Nanos
	steps := c.Steps
	whole := sized(&w.plan.whole, p.size()*steps)
	whole.Mode = opt.Mode
	whole.Sums = nil
	isSum := opt.Mode == align.Sum
	if isSum {
		whole.Sums = &w.plan.sums[0]
		whole.Sums.Resize(whole.Len())
	}
	rows := w.plan.rows[:0]
	err := w.byEpisode(p, func(episode int, group []int32) error {
		timestamps, err := own.Timestamps.OfStream(w.Ctx(), episode, c.Time.Clock)
		if err != nil {
			return err
		}
		targets, lengths := w.plan.targets[:0], w.plan.lengths[:0]
		for _, i := range group {
			t, err := own.at(w.Ctx(), p.places[i], p.rows[0][i].Index)
			if err != nil {
				return err
			}
			length := c.Time.Length
			if isSum && length == 0 {
				if length, err = own.rowLength(w.Ctx(), p.places[i], p.rows[0][i].Index); err != nil {
					return err
				}
			}
			near := 0
			for _, d := range deltas {
				at := t - c.Time.Offset + d
				if d != 0 && own.Timebase.IsGrid {
					if near > 0 && timestamps[near-1] >= at {
						near = 0
					}
					at, near = snapped(at, timestamps, near)
				}
				targets, lengths = append(targets, at), append(lengths, length)
			}
		}
		w.plan.targets, w.plan.lengths = targets, lengths
		one := sized(&w.plan.one, len(targets))
		var from int
		var near []int64
		if isSum {
			one.Sums = &w.plan.sums[1]
			from, near = around(timestamps, targets, 0, slices.Max(append(lengths, 0)))
			err = opt.FillSums(one, near, targets, lengths)
		} else {
			one.Sums = nil
			from, near = around(timestamps, targets, opt.Before, opt.After)
			err = opt.Fill(one, near, targets)
		}
		if err != nil {
			return robocache.At(err, robocache.Where{"episode": p.Source.Dataset.Info().EpisodeIndex(episode)})
		}
		base := len(rows)
		stands := func(r int32) int32 { // where a row stands: ascending times read the last two again
			row, n := robocache.Row{Episode: episode, Index: from + int(r)}, len(rows)
			for k := n - 1; k >= max(base, n-2); k-- {
				if rows[k] == row {
					return int32(k)
				}
			}
			rows = append(rows, row)
			return int32(n)
		}
		for k, kind := range one.Kind {
			at := int(group[k/steps])*steps + k%steps
			whole.Kind[at], whole.Weight[at], whole.Valid[at] = kind, one.Weight[k], one.Valid[k]
			switch kind {
			case kernel.Copy:
				whole.Left[at] = stands(one.Left[k])
				whole.Right[at] = whole.Left[at]
			case kernel.Blend:
				whole.Left[at], whole.Right[at] = stands(one.Left[k]), stands(one.Right[k])
			case kernel.Window:
				whole.Left[at] = int32(len(rows))
				for r := one.Left[k]; r < one.Right[k]; r++ {
					rows = append(rows, robocache.Row{Episode: episode, Index: from + int(r)})
				}
				whole.Right[at] = int32(len(rows))
			}
			if isSum {
				first, to, last := one.Sums.From[k], whole.Sums, int32(len(rows))
				for r := first; r < one.Sums.To[k]; r++ {
					rows = append(rows, robocache.Row{Episode: episode, Index: from + int(r)})
				}
				to.From[at], to.To[at] = last, int32(len(rows))
				to.Head[at], to.Tail[at] = one.Sums.Head[k], one.Sums.Tail[k]
			}
		}
		return nil
	})
	w.plan.rows = rows
	if err != nil {
		return nil, nil, err
	}
	whole.Sources = len(rows)
	valid, err := robocache.Validity(w.Ctx(), own.Dataset, c.Feature, rows)
	if err != nil {
		return nil, nil, robocache.At(err, robocache.Where{"stream": c.Key})
	}
	if valid != nil {
		align.Mask(whole, valid, 0)
	}
	return whole, rows, nil
}

// spanRows finds the rows of the span around each sample that hold a value, one after the other; how many of them are of each sample; and the samples'
// times on the stream's clock.
func (w *Reader) spanRows(p *Part, c *Column) (rows []robocache.Row, counts []int, at []int64, err error) {
	src, n, total := p.Source, p.size(), 0
	from := make([]int, n)
	counts, at = make([]int, n), make([]int64, n)
	err = w.byEpisode(p, func(episode int, group []int32) error {
		timestamps, err := src.Timestamps.OfStream(w.Ctx(), episode, c.Time.Clock)
		if err != nil {
			return err
		}
		for _, i := range group {
			t, err := src.at(w.Ctx(), p.places[i], p.rows[0][i].Index)
			if err != nil {
				return err
			}
			at[i] = t - c.Time.Offset
			lo, hi := align.Span(timestamps, at[i], c.Span[0], c.Span[1])
			if c.Axis != nil {
				hi = min(hi, lo+c.Steps)
			}
			from[i], counts[i] = lo, hi-lo
			total += hi - lo
		}
		return nil
	})
	if err != nil {
		return nil, nil, nil, err
	}
	if need := int64(total) * int64(c.RowBytes+16); need > src.Resources.Budget {
		return nil, nil, nil, tooMany(c, int64(total)*int64(c.RowBytes), src.Resources.Budget)
	}
	rows = make([]robocache.Row, 0, total)
	for i, n := range counts {
		for r := from[i]; r < from[i]+n; r++ {
			rows = append(rows, robocache.Row{Episode: p.rows[0][i].Episode, Index: r})
		}
	}
	valid, err := robocache.Validity(w.Ctx(), src.Dataset, c.Feature, rows)
	if valid == nil {
		return rows, counts, at, err
	}
	left, k := rows[:0], 0
	for i, n := range counts {
		for range n {
			if valid[k] == 0 {
				counts[i]--
			} else {
				left = append(left, rows[k])
			}
			k++
		}
	}
	return left, counts, at, nil
}

// placedRows gives the rows of a span in its places, the first ones filled; index -1 where there is none. It also writes how many frames each sample has.
func (w *Reader) placedRows(p *Part, c *Column, mask []byte) ([]robocache.Row, error) {
	rows, counts, _, err := w.spanRows(p, c)
	if err != nil {
		return nil, err
	}
	out := make([]robocache.Row, 0, p.size()*c.Steps)
	for i, n := range counts {
		for j := range c.Steps {
			r := robocache.Row{Episode: p.rows[0][i].Episode, Index: -1}
			if j < n {
				r, rows = rows[0], rows[1:]
			}
			if mask != nil {
				mask[len(out)] = flag(j >= n)
			}
			out = append(out, r)
		}
		if mask != nil && c.LengthsEntry >= 0 && !c.IsRagged() {
			AsSlice[int64](p.TensorData(c.LengthsEntry))[p.slot(i)] = int64(n)
		}
	}
	return out, nil
}

// writeTimes writes when the rows of a span were, in ns after their samples: in the sample's places, or one after the other.
func (w *Reader) writeTimes(p *Part, c *Column, out []int64, rows []robocache.Row, counts []int, at []int64) error {
	for i, n := range counts {
		if n == 0 {
			continue
		}
		timestamps, err := p.Source.Timestamps.OfStream(w.Ctx(), rows[0].Episode, c.Time.Clock)
		if err != nil {
			return &episodeError{rows[0].Episode, err}
		}
		to := out
		if c.Axis != nil {
			to = out[i*c.Steps:]
		}
		for j, r := range rows[:n] {
			to[j] = timestamps[r.Index] - at[i]
		}
		if rows = rows[n:]; c.Axis == nil {
			out = out[n:]
		}
	}
	return nil
}

// placedTimes fills the column of when the samples of a span in places were; 0 in places without one.
func (w *Reader) placedTimes(p *Part, c *Column) error {
	rows, counts, at, err := w.spanRows(p, c)
	if err != nil {
		return err
	}
	dst, done := p.rowsInto(c.Entry)
	defer done()
	clear(dst)
	return w.writeTimes(p, c, AsSlice[int64](dst), rows, counts, at)
}

// ClearAbsent writes what a source has nothing for: zeros, and masks that say so. A mask of a key that the source does have says that it is there.
func (p *Part) ClearAbsent() {
	s := p.Source.BatchSchema
	for _, i := range p.Source.AbsentTensors {
		t, data := &s.Tensors[i], p.Build.Batch.Tensors[i].Data
		row := make([]byte, t.Bytes)
		mask := slices.ContainsFunc(s.Fields, func(x layout.Field) bool { return x.Mask && x.Key == t.Key })
		dims, isDims := strings.CutSuffix(t.Key, layout.DimsSuffix)
		switch pad := p.Source.PaddedRows[dims]; {
		case !mask:
		case isDims && pad != nil:
			copy(row, pad.Mask)
		case isDims || p.Source.Column(strings.TrimSuffix(t.Key, layout.PadSuffix)) == nil:
			row = slices.Repeat([]byte{1}, t.Bytes)
		}
		for _, slot := range p.Slots {
			copy(data[int(slot)*t.Bytes:], row)
		}
	}
}
