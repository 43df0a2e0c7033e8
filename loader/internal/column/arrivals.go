package column

import (
	"math"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/align"
	"github.com/goatnote-inc/robocache/kernel"
)

// drawAge is the kernel.Augment.Op of drawn ages (align.AgeDraw). The DrawID of the clock is added
// to it.
const drawAge = 1 << 16

// arrivalsOf returns the arrival times of a causal column's rows in an episode. These are its
// timestamps if the dataset records no arrivals, or if ages are drawn.
func (w *Reader) arrivalsOf(
	src *DataSource, c *Column, episode int, timestamps []int64,
) (align.Arrivals, error) {
	rule := &c.Time.Arrivals
	if !rule.IsRecorded || !rule.Draw.IsZero() {
		return timestamps, nil
	}
	return src.Arrivals.OfStream(w.Ctx(), episode, c.Time.Clock)
}

// arrivalLimit returns which rows of a stream sample i may use. t is the time of the sample.
//
// limit is the time until which a row must have arrived, on the clock of the column's timestamps.
// If ages are drawn, arrivals do not count, and limit is the time of the newest usable row.
//
// reach is the smallest offset from t that a window may use. A window must not begin before the
// first tick of the episode, because nothing was observed before. There is no such bound if all
// rows of a window use the arrivals at the sample's own tick (ArrivalRule.AtSample).
func (w *Reader) arrivalLimit(
	p *Part, c *Column, i int, t int64,
) (limit, reach int64, err error) {
	rule := &c.Time.Arrivals
	reach = math.MinInt64
	if !rule.AtSample {
		first, err := p.Source.firstTick(w.Ctx(), p.tablePositions[i])
		if err != nil {
			return 0, 0, err
		}
		reach = first - t
	}
	age, err := w.drawnAge(p, c, i)
	return t - c.Time.Offset - age, reach, err
}

// drawnAge returns the random age of the newest usable row for sample i. It returns 0 if ages are
// not drawn.
func (w *Reader) drawnAge(p *Part, c *Column, i int) (int64, error) {
	draw := &c.Time.Arrivals.Draw
	if draw.IsZero() {
		return 0, nil
	}
	row := p.anchors[i]
	u := kernel.DrawUniform(uint64(p.Source.Seed), p.sampleEpoch(i),
		drawAge+c.Time.Arrivals.DrawID, sampleNumber(row))
	if !draw.Measured {
		low, high := int64(draw.Uniform[0]), int64(draw.Uniform[1])
		return low + int64(u*float64(high-low)), nil
	}
	timestamps, err := p.Source.Timestamps.OfStream(w.Ctx(), row.Episode, c.Time.Clock)
	if err != nil {
		return 0, err
	}
	arrivals, err := p.Source.Arrivals.OfStream(w.Ctx(), row.Episode, c.Time.Clock)
	if err != nil || len(timestamps) == 0 {
		return 0, err
	}
	k := int(u * float64(len(timestamps)))
	return arrivals[k] - timestamps[k] - c.Time.Offset, nil
}

// lastArrived returns the end of the rows of a span [from, to) that had arrived at limit. It returns
// an error if a row had arrived and an earlier row had not, because a span has no holes.
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
