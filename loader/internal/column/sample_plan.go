package column

import (
	"math"
	"slices"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/align"
	"github.com/goatnote-inc/robocache/kernel"
)

// resizePlan sets the length of a plan to n rows. Their content is arbitrary.
func resizePlan(p *kernel.Plan, n int) *kernel.Plan {
	p.Kind = slices.Grow(p.Kind[:0], n)[:n]
	p.Left, p.Right = slices.Grow(p.Left[:0], n)[:n], slices.Grow(p.Right[:0], n)[:n]
	p.Weight, p.Valid = slices.Grow(p.Weight[:0], n)[:n], slices.Grow(p.Valid[:0], n)[:n]
	return p
}

// planSamples returns a plan of the values of a column for each sample and step, and the rows that
// the plan reads. Values that would read a row without a value are invalid. Both results are valid
// until the next call.
func (w *Reader) planSamples(p *Part, c *Column) (*kernel.Plan, []robocache.Row, error) {
	src, scratch := p.Source, &w.planBuffers
	whole := resizePlan(&scratch.batchPlan, p.sampleCount()*c.Steps)
	whole.Mode, whole.Sums = c.Time.Options.Mode, nil
	if whole.Mode == align.Sum {
		whole.Sums = &scratch.sums[0]
		whole.Sums.Resize(whole.Len())
	}
	scratch.rows = scratch.rows[:0]
	err := w.forEachEpisode(p, func(episode int, group []int32) error {
		timestamps, err := src.Timestamps.OfStream(w.Ctx(), episode, c.Time.Clock)
		if err != nil {
			return err
		}
		if c.Time.Options.IsCausal {
			err = w.causalTargets(p, c, group, timestamps)
		} else {
			err = w.windowTargets(p, c, group, timestamps)
		}
		if err != nil || len(scratch.targets) == 0 {
			return err
		}
		first, err := w.planEpisode(src, c, episode, timestamps)
		if err != nil {
			where := robocache.Where{"episode": src.Dataset.Info().EpisodeIndex(episode)}
			return robocache.At(err, where)
		}
		scratch.addEpisode(episode, first, c.Steps, group)
		return nil
	})
	if err != nil {
		return nil, nil, err
	}
	rows := scratch.rows
	whole.Sources = len(rows)
	valid, err := robocache.Validity(w.Ctx(), src.Dataset, c.Feature, rows)
	if err != nil {
		return nil, nil, robocache.At(err, robocache.Where{"stream": c.StreamKey()})
	}
	if valid != nil {
		align.Mask(whole, valid, 0)
	}
	return whole, rows, nil
}

// windowTargets sets the times at which the samples of an episode evaluate a column, and in mode
// sum the length of their intervals.
func (w *Reader) windowTargets(p *Part, c *Column, group []int32, timestamps []int64) error {
	src, scratch := p.Source, &w.planBuffers
	targets, lengths := scratch.targets[:0], scratch.lengths[:0]
	isSum := c.Time.Options.Mode == align.Sum
	for _, i := range group {
		t, err := src.sampleTime(w.Ctx(), p.tablePositions[i], p.rows[0][i].Index)
		if err != nil {
			return err
		}
		length := c.Time.Length
		if isSum && length == 0 {
			length, err = src.rowLength(w.Ctx(), p.tablePositions[i], p.rows[0][i].Index)
			if err != nil {
				return err
			}
		}
		near := 0
		for _, d := range src.Windows[c.Window].Nanos {
			at := t - c.Time.Offset + d
			if d != 0 && src.Timebase.IsGrid {
				at, near = snapToNear(at, timestamps, near)
			}
			targets = append(targets, at)
			if isSum {
				lengths = append(lengths, length)
			}
		}
	}
	scratch.targets, scratch.lengths = targets, lengths
	return nil
}

// causalTargets sets the times at which the samples of an episode evaluate a column. For each time
// it also sets the time at which the rows that are used must have arrived. A time before the first
// tick is replaced by the first tick, and its value is marked as padded.
func (w *Reader) causalTargets(p *Part, c *Column, group []int32, timestamps []int64) error {
	src, scratch := p.Source, &w.planBuffers
	targets, nows, padded := scratch.targets[:0], scratch.nows[:0], scratch.padded[:0]
	for _, i := range group {
		t, err := src.sampleTime(w.Ctx(), p.tablePositions[i], p.rows[0][i].Index)
		if err != nil {
			return err
		}
		now, reach, err := w.arrivalLimit(p, c, int(i), t)
		if err != nil {
			return err
		}
		near := 0
		for _, d := range src.Windows[c.Window].Nanos {
			padded = append(padded, d < reach)
			d = max(d, reach)
			exact := t - c.Time.Offset + d
			at := exact
			if d != 0 {
				at, near = snapToNear(at, timestamps, near)
			}
			targets = append(targets, at)
			if c.Time.Arrivals.AtSample {
				nows = append(nows, now)
			} else {
				nows = append(nows, now+d+at-exact)
			}
		}
	}
	scratch.targets, scratch.nows, scratch.padded = targets, nows, padded
	return nil
}

// snapToNear is snapToTimestamp for the times of one window, one after the other. near is the result
// next of the previous call, or 0.
func snapToNear(at int64, timestamps []int64, near int) (snapped int64, next int) {
	if near > 0 && timestamps[near-1] >= at {
		near = 0
	}
	return snapToTimestamp(at, timestamps, near)
}

// planEpisode plans the values at the targets of one episode. The plan's rows count from first.
func (w *Reader) planEpisode(
	src *DataSource, c *Column, episode int, timestamps []int64,
) (first int, err error) {
	scratch, opt := &w.planBuffers, &c.Time.Options
	targets := scratch.targets
	one := resizePlan(&scratch.episodePlan, len(targets))
	one.Sums = nil
	if opt.IsCausal {
		arrivals, err := w.arrivalsOf(src, c, episode, timestamps)
		if err != nil {
			return 0, err
		}
		err = opt.FillCausal(one, timestamps, arrivals, targets, scratch.nows)
		for k, isPadded := range scratch.padded {
			if isPadded && err == nil {
				one.Valid[k] = 0
			}
		}
		return 0, err
	}
	earliest, latest := int64(math.MaxInt64), int64(math.MinInt64)
	for _, at := range targets {
		earliest, latest = min(earliest, at), max(latest, at)
	}
	if opt.Mode == align.Sum {
		one.Sums = &scratch.sums[1]
		longest := slices.Max(scratch.lengths)
		first, near := align.Near(timestamps, earliest, latest, 0, longest)
		return first, opt.FillSums(one, near, targets, scratch.lengths)
	}
	first, near := align.Near(timestamps, earliest, latest, opt.Before, opt.After)
	return first, opt.Fill(one, near, targets)
}

// addEpisode copies the plan of one episode into that of the batch, and adds the rows that it
// reads. first is the episode's row that the plan counts from.
func (s *planScratch) addEpisode(episode, first, steps int, group []int32) {
	one, whole := &s.episodePlan, &s.batchPlan
	base, rows := len(s.rows), s.rows
	// indexOf returns the index of a row in rows. Ascending times often reuse the last two rows.
	indexOf := func(r int32) int32 {
		row, n := robocache.Row{Episode: episode, Index: first + int(r)}, len(rows)
		for k := n - 1; k >= max(base, n-2); k-- {
			if rows[k] == row {
				return int32(k)
			}
		}
		rows = append(rows, row)
		return int32(n)
	}
	addRange := func(from, to int32) (start, end int32) {
		start = int32(len(rows))
		for r := from; r < to; r++ {
			rows = append(rows, robocache.Row{Episode: episode, Index: first + int(r)})
		}
		return start, int32(len(rows))
	}
	for k, kind := range one.Kind {
		at := int(group[k/steps])*steps + k%steps
		whole.Kind[at], whole.Weight[at], whole.Valid[at] = kind, one.Weight[k], one.Valid[k]
		switch kind {
		case kernel.Copy:
			whole.Left[at] = indexOf(one.Left[k])
			whole.Right[at] = whole.Left[at]
		case kernel.Blend:
			whole.Left[at], whole.Right[at] = indexOf(one.Left[k]), indexOf(one.Right[k])
		case kernel.Window:
			whole.Left[at], whole.Right[at] = addRange(one.Left[k], one.Right[k])
		}
		if sums := one.Sums; sums != nil {
			to := whole.Sums
			to.From[at], to.To[at] = addRange(sums.From[k], sums.To[k])
			to.Head[at], to.Tail[at] = sums.Head[k], sums.Tail[k]
		}
	}
	s.rows = rows
}
