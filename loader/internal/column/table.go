package column

import (
	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/kernel"
)

// TableColumn is rows of numbers of one length.
type TableColumn struct {
	*Column
	PlanLeader     *TableColumn   // whose plan makes its values; itself, unless they share a clock and a rule
	PlanFollowers  []*TableColumn // whose values are made by this one's plan
	Mirror         *Mirror        // what a flip of the images does to the numbers
	NoiseDeviation float32        // standard deviation that is added; 0: none
}

func (c *TableColumn) Waits(int) int { return int(flag(c.PlanLeader == c)) } // its leader brings it

func (c *TableColumn) Fill(w *Reader, p *Part) error { return w.gather(p, c) }

// read gathers rows of a column; false where that failed, and the batch or its episodes know it.
func (w *Reader) read(p *Part, c *Column, rows []robocache.Row, dst []byte) bool {
	ds := p.Source.Dataset
	err := gatherRows(w.Ctx(), ds, c.Key, rows, dst)
	if err != nil {
		p.isolate(rows, robocache.At(err, robocache.Where{"stream": c.Key}), func(sub []robocache.Row) error {
			return gatherRows(w.Ctx(), ds, c.Key, sub, make([]byte, len(sub)*c.RowBytes))
		})
	}
	return err == nil
}

// gather fills a numeric tensor: one Gather for the whole batch, straight into it where no cast is asked.
func (w *Reader) gather(p *Part, c *TableColumn) error {
	if c.Time != nil {
		return w.gatherTimed(p, c)
	}
	if !w.checkFinite(p, c.Column) {
		return nil
	}
	mask, masked := p.rowsInto(c.MaskEntry)
	rows, _ := w.RowsOf(p, c.Column, mask)
	masked()
	if c.Elements == 0 {
		return nil
	}
	dst, done := p.rowsInto(c.Entry)
	into, direct := dst, c.StoredDType == c.OutDType && c.Norm == nil && c.NoiseDeviation == 0
	if !direct {
		into = w.Scratch(len(rows) * c.RowBytes)
	}
	if !w.read(p, c.Column, rows, into) {
		return nil
	}
	p.reflect(c, into, c.StoredDType)
	if !direct {
		if err := p.finished(c, dst, into); err != nil {
			p.Build.Fail(robocache.At(err, robocache.Where{"stream": c.Key}))
			return nil
		}
	}
	done()
	return w.maskRows(p, c.Column, rows)
}

// finished casts stored rows, normalises them, and adds noise.
func (p *Part) finished(c *TableColumn, dst, rows []byte) error {
	if c.NoiseDeviation > 0 {
		return p.noisy(c, dst, rows, c.StoredDType, nil)
	}
	return Convert(dst, c.OutDType, rows, c.StoredDType, c.Elements, c.Norm)
}

// gatherTimed brings a numeric column onto the timebase, and those that share its plan: one Gather of the rows that are needed, one Resample.
func (w *Reader) gatherTimed(p *Part, c *TableColumn) error {
	plan, rows, err := w.plans(p, c.Column)
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

func (w *Reader) gatherPlanned(part *Part, c *TableColumn, p *kernel.Plan, rows []robocache.Row) error {
	if !w.checkFinite(part, c.Column) {
		return nil
	}
	src := w.Scratch(len(rows) * c.RowBytes)
	if !w.read(part, c.Column, rows, src) {
		return nil
	}
	mask, masked := part.rowsInto(c.MaskEntry)
	defer masked()
	if c.Deferred != nil {
		pads(mask, p.Valid)
		part.pair(c.Column, p, src)
		return nil
	}
	dst, done := part.rowsInto(c.Entry)
	defer done()
	if c.Elements == 0 {
		pads(mask, p.Valid)
		return nil
	}
	if c.Mirror != nil || c.NoiseDeviation > 0 {
		return part.gatherMirrored(c, p, src, dst, mask)
	}
	out, dtype := dst, c.OutDType
	direct := c.OutDType == c.StoredDType || c.OutDType.Float()
	if !direct {
		out, dtype = make([]byte, p.Len()*c.RowBytes), c.StoredDType
	}
	// Normalised in the kernel, so that rows without a value stay zero bits (K9) and there is one rounding (K10).
	if err := resample(out, dtype, src, c.Column, p, c.Norm.Epilogue(0), mask); err != nil {
		return err
	}
	pads(mask, mask)
	if !direct {
		return Convert(dst, c.OutDType, out, c.StoredDType, c.Elements, nil)
	}
	return nil
}
