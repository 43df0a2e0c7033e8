package column

import (
	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/align"
)

// spanRows returns the rows in the span around each sample that hold a value, one after the other.
// It also returns the number of rows of each sample and the samples' times on the stream's clock.
func (w *Reader) spanRows(
	p *Part, c *Column,
) (rows []robocache.Row, counts []int, at []int64, err error) {
	src, n, total := p.Source, p.sampleCount(), 0
	from := make([]int, n)
	counts, at = make([]int, n), make([]int64, n)
	isCausal := c.Time.Options.IsCausal
	err = w.forEachEpisode(p, func(episode int, group []int32) error {
		timestamps, err := src.Timestamps.OfStream(w.Ctx(), episode, c.Time.Clock)
		if err != nil {
			return err
		}
		for _, i := range group {
			t, err := src.sampleTime(w.Ctx(), p.tablePositions[i], p.rows[0][i].Index)
			if err != nil {
				return err
			}
			at[i] = t - c.Time.Offset
			lo, hi := align.Span(timestamps, at[i], c.Span[0], c.Span[1])
			if c.Axis != nil {
				hi = min(hi, lo+c.Steps)
			}
			if isCausal {
				limit, _, err := w.arrivalLimit(p, c, int(i), t)
				if err != nil {
					return err
				}
				if hi, err = w.lastArrived(p, c, episode, lo, hi, limit, timestamps); err != nil {
					return err
				}
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
		return nil, nil, nil, spanBudgetError(
			c,
			int64(total)*int64(c.RowBytes),
			src.Resources.Budget,
		)
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
	validRows, k := rows[:0], 0
	for i, n := range counts {
		for range n {
			if valid[k] == 0 {
				counts[i]--
			} else {
				validRows = append(validRows, rows[k])
			}
			k++
		}
	}
	return validRows, counts, at, nil
}

// spanSlots returns the rows of a span with a fixed number of slots per sample, filled from the
// first. Empty slots have index -1. It also writes the number of rows of each sample to the lengths
// tensor.
func (w *Reader) spanSlots(p *Part, c *Column, mask []byte) ([]robocache.Row, error) {
	rows, counts, _, err := w.spanRows(p, c)
	if err != nil {
		return nil, err
	}
	out := make([]robocache.Row, 0, p.sampleCount()*c.Steps)
	for i, n := range counts {
		for j := range c.Steps {
			r := robocache.Row{Episode: p.rows[0][i].Episode, Index: -1}
			if j < n {
				r, rows = rows[0], rows[1:]
			}
			if mask != nil {
				mask[len(out)] = boolByte(j >= n)
			}
			out = append(out, r)
		}
		if mask != nil && c.LengthsEntry >= 0 && !c.IsRagged() {
			AsSlice[int64](p.TensorData(c.LengthsEntry))[p.batchSlot(i)] = int64(n)
		}
	}
	return out, nil
}

// writeTimes writes the times of the rows of a span, in ns after the time of their sample. The
// times go to the slots of each sample, or one after the other.
func (w *Reader) writeTimes(
	p *Part, c *Column, out []int64, rows []robocache.Row, counts []int, at []int64,
) error {
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

// fillSpanTimes fills the times of a span with a fixed number of slots. Empty slots get 0.
func (w *Reader) fillSpanTimes(p *Part, c *Column) error {
	rows, counts, at, err := w.spanRows(p, c)
	if err != nil {
		return err
	}
	dst, done := p.stageEntry(c.Entry)
	defer done()
	clear(dst)
	return w.writeTimes(p, c, AsSlice[int64](dst), rows, counts, at)
}
