package column

import (
	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/kernel"
)

// TableColumn holds numeric rows of one length.
type TableColumn struct {
	*Column
	// column whose job fills this one; itself, unless it shares a clock and a rule
	PlanLeader     *TableColumn
	PlanFollowers  []*TableColumn // columns that this one's job also fills
	Mirror         *Mirror        // change of the numbers when images are flipped; nil: none
	NoiseDeviation float32        // standard deviation of added noise; 0: none
	ZeroBeyond     []int          // numbers that are 0 in rows outside the episode
}

// Waits returns 0 for followers, which their leader's job fills.
func (c *TableColumn) Waits(int) int { return int(boolByte(c.PlanLeader == c)) }

func (c *TableColumn) Fill(w *Reader, p *Part) error { return w.gatherTable(p, c) }

// readRows reads rows of a column into dst. It returns false if it failed the batch or recorded a
// bad episode.
func (w *Reader) readRows(p *Part, c *Column, rows []robocache.Row, dst []byte) bool {
	ds := p.Source.Dataset
	err := gatherRows(w.Ctx(), ds, c.StreamKey(), rows, dst)
	if err != nil {
		first := robocache.At(err, robocache.Where{"stream": c.StreamKey()})
		p.failEpisodes(rows, first, func(sub []robocache.Row) error {
			return gatherRows(w.Ctx(), ds, c.StreamKey(), sub, make([]byte, len(sub)*c.RowBytes))
		})
	}
	return err == nil
}

// gatherTable fills a numeric tensor with one Gather per part. It reads directly into the tensor if
// nothing has to be converted.
func (w *Reader) gatherTable(p *Part, c *TableColumn) error {
	if c.Time != nil {
		return w.gatherTimed(p, c)
	}
	if !w.checkFinite(p, c.Column) {
		return nil
	}
	mask, maskDone := p.stageEntry(c.MaskEntry)
	rows, _ := w.RowsOf(p, c.Column, mask)
	maskDone()
	if c.Elements == 0 {
		return nil
	}
	dst, done := p.stageEntry(c.Entry)
	into := dst
	direct := c.StoredDType == c.OutDType && c.Norm == nil && c.NoiseDeviation == 0
	if !direct {
		into = w.Scratch(len(rows) * c.RowBytes)
	}
	if !w.readRows(p, c.Column, rows, into) {
		return nil
	}
	p.mirrorRows(c, into, c.StoredDType)
	if !direct {
		if err := p.finishRows(c, dst, into); err != nil {
			p.Build.Fail(robocache.At(err, robocache.Where{"stream": c.Key}))
			return nil
		}
	}
	c.zeroBeyond(p, dst)
	done()
	return w.maskRows(p, c.Column, rows)
}

// zeroBeyond sets numbers of finished rows to 0 if the window puts the row outside the episode.
func (c *TableColumn) zeroBeyond(p *Part, rows []byte) {
	if len(c.ZeroBeyond) == 0 {
		return
	}
	size := c.OutDType.Size()
	for k, outside := range p.pads[c.Window] {
		if outside == 0 {
			continue
		}
		row := rows[k*c.OutBytes:][:c.OutBytes]
		for _, i := range c.ZeroBeyond {
			clear(row[i*size:][:size])
		}
	}
}

// finishRows casts and normalizes stored rows and adds noise.
func (p *Part) finishRows(c *TableColumn, dst, rows []byte) error {
	if c.NoiseDeviation > 0 {
		return p.convertWithNoise(c, dst, rows, c.StoredDType, nil)
	}
	return Convert(dst, c.OutDType, rows, c.StoredDType, c.Elements, c.Norm)
}

// gatherTimed resamples a numeric column and those that share its plan. Each column needs one
// Gather.
func (w *Reader) gatherTimed(p *Part, c *TableColumn) error {
	plan, rows, err := w.planSamples(p, c.Column)
	if err != nil {
		return err
	}
	for _, c := range append([]*TableColumn{c}, c.PlanFollowers...) {
		if err := w.gatherPlanned(p, c, plan, rows); err != nil {
			return robocache.At(err, robocache.Where{"stream": c.Key})
		}
	}
	return nil
}

// gatherPlanned reads the rows of a plan and resamples them into the tensor.
func (w *Reader) gatherPlanned(
	p *Part, c *TableColumn, plan *kernel.Plan, rows []robocache.Row,
) error {
	if !w.checkFinite(p, c.Column) {
		return nil
	}
	src := w.Scratch(len(rows) * c.RowBytes)
	if !w.readRows(p, c.Column, rows, src) {
		return nil
	}
	mask, maskDone := p.stageEntry(c.MaskEntry)
	defer maskDone()
	if c.Deferred != nil {
		writePadMask(mask, plan.Valid)
		p.writePairs(c.Column, plan, src)
		return nil
	}
	dst, done := p.stageEntry(c.Entry)
	defer done()
	if c.Elements == 0 {
		writePadMask(mask, plan.Valid)
		return nil
	}
	if c.Mirror != nil || c.NoiseDeviation > 0 {
		return p.gatherMirrored(c, plan, src, dst, mask)
	}
	// The kernel resamples into the stored dtype or a float. Other dtypes are cast afterwards.
	out, dtype := dst, c.OutDType
	direct := c.OutDType == c.StoredDType || c.OutDType.Float()
	if !direct {
		out, dtype = make([]byte, plan.Len()*c.RowBytes), c.StoredDType
	}
	// The kernel normalizes, so that rows without a value stay zero (kernel.K9) and values are
	// rounded once (kernel.K10).
	if err := resample(out, dtype, src, c.Column, plan, c.Norm.Epilogue(0), mask); err != nil {
		return err
	}
	writePadMask(mask, mask)
	if !direct {
		return Convert(dst, c.OutDType, out, c.StoredDType, c.Elements, nil)
	}
	return nil
}
