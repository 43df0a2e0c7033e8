package column

import (
	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/align"
	"github.com/goatnote-inc/robocache/kernel"
)

// drawAge is the kernel.Augment.Op of the draws of ages. The stream's DrawID is added to it.
const drawAge = 1 << 16

// arrivalsOf returns when the samples of a causal column arrived in an episode.
func (w *Reader) arrivalsOf(
	src *DataSource, c *Column, episode int, timestamps []int64,
) (align.Arrivals, error) {
	rule := &c.Time.Arrivals
	if !rule.IsRecorded || !rule.Draw.IsZero() {
		return timestamps, nil
	}
	return src.Arrivals.OfStream(w.Ctx(), episode, c.Time.Clock)
}

// arrivalLimit returns the time at or before which the samples of sample i must have arrived, on the
// clock of the column's timestamps. t is the time of the sample. If ages are drawn, it is the time
// of the newest usable sample.
func (w *Reader) arrivalLimit(p *Part, c *Column, i int, t int64) (int64, error) {
	rule := &c.Time.Arrivals
	now := t - c.Time.Offset
	if rule.Draw.IsZero() {
		return now, nil
	}
	row := p.rows[0][i]
	u := kernel.DrawUniform(uint64(p.Source.Seed), p.sampleEpoch(i), drawAge+rule.DrawID,
		sampleNumber(row))
	if !rule.Draw.Measured {
		low, high := int64(rule.Draw.Uniform[0]), int64(rule.Draw.Uniform[1])
		return now - low - int64(u*float64(high-low)), nil
	}
	timestamps, err := p.Source.Timestamps.OfStream(w.Ctx(), row.Episode, c.Time.Clock)
	if err != nil {
		return 0, err
	}
	arrivals, err := p.Source.Arrivals.OfStream(w.Ctx(), row.Episode, c.Time.Clock)
	if err != nil || len(timestamps) == 0 {
		return now, err
	}
	k := int(u * float64(len(timestamps)))
	return now - (arrivals[k] - timestamps[k] - c.Time.Offset), nil
}

// lastArrived returns the end of the rows from … to-1 of a span that had arrived at limit. Such a
// row behind one that had not arrived is an error, because a span has no holes.
func (w *Reader) lastArrived(
	p *Part, c *Column, episode, from, to int, limit int64, timestamps []int64,
) (int, error) {
	arrivals, err := w.arrivalsOf(p.Source, c, episode, timestamps)
	if err != nil {
		return 0, err
	}
	limit -= c.Time.Options.ArrivalShift
	end := from
	for k := from; k < to; k++ {
		if arrivals[k] > limit {
			continue
		}
		if k != end {
			return 0, robocache.Unsupported("loader",
				p.Source.Where(c, robocache.Row{Episode: episode, Index: k}),
				"a span of a causal stream whose samples arrived out of order")
		}
		end = k + 1
	}
	return end, nil
}
