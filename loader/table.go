package loader

import (
	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/kernel"
)

// tableColumn is rows of numbers of one length.
type tableColumn struct {
	*column
	leader *tableColumn   // whose plan makes its values; itself, unless they share a clock and a rule
	shared []*tableColumn // whose values are made by this one's plan
	mirror *mirror        // what a flip of the images does to the numbers
	noise  float32        // standard deviation that is added; 0: none
}

func (c *tableColumn) waits(int) int { return int(flag(c.leader == c)) } // its leader brings it

func (c *tableColumn) fill(w *reader, p *part) error { return w.gather(p, c) }

// read gathers rows of a column; false where that failed, and the batch or its episodes know it.
func (w *reader) read(p *part, c *column, rows []robocache.Row, dst []byte) bool {
	ds := p.src.ds
	err := gatherRows(w.Ctx(), ds, c.key, rows, dst)
	if err != nil {
		p.isolate(rows, robocache.At(err, robocache.Where{"stream": c.key}), func(sub []robocache.Row) error {
			return gatherRows(w.Ctx(), ds, c.key, sub, make([]byte, len(sub)*c.rowBytes))
		})
	}
	return err == nil
}

// gather fills a numeric tensor: one Gather for the whole batch, straight into it where no cast is asked.
func (w *reader) gather(p *part, c *tableColumn) error {
	if c.time != nil {
		return w.gatherTimed(p, c)
	}
	if !w.checkFinite(p, c.column) {
		return nil
	}
	mask, masked := p.rowsInto(c.mask)
	rows, _ := w.rowsOf(p, c.column, mask)
	masked()
	if c.elems == 0 {
		return nil
	}
	dst, done := p.rowsInto(c.entry)
	into, direct := dst, c.stored == c.out && c.norm == nil && c.noise == 0
	if !direct {
		into = w.Bytes(len(rows) * c.rowBytes)
	}
	if !w.read(p, c.column, rows, into) {
		return nil
	}
	p.reflect(c, into, c.stored)
	if !direct {
		if err := p.finished(c, dst, into); err != nil {
			p.u.fail(robocache.At(err, robocache.Where{"stream": c.key}))
			return nil
		}
	}
	done()
	return w.maskRows(p, c.column, rows)
}

// finished casts stored rows, normalises them, and adds noise.
func (p *part) finished(c *tableColumn, dst, rows []byte) error {
	if c.noise > 0 {
		return p.noisy(c, dst, rows, c.stored, nil)
	}
	return convert(dst, c.out, rows, c.stored, c.elems, c.norm)
}

// gatherTimed brings a numeric column onto the timebase, and those that share its plan: one Gather of the rows that are needed, one Resample.
func (w *reader) gatherTimed(p *part, c *tableColumn) error {
	plan, rows, err := w.plans(p, c.column)
	if err != nil {
		return err
	}
	for _, c := range append([]*tableColumn{c}, c.shared...) {
		if err := w.gatherPlanned(p, c, plan, rows); err != nil {
			return robocache.At(err, robocache.Where{"stream": c.key})
		}
	}
	return nil
}

func (w *reader) gatherPlanned(part *part, c *tableColumn, p *kernel.Plan, rows []robocache.Row) error {
	if !w.checkFinite(part, c.column) {
		return nil
	}
	src := w.Bytes(len(rows) * c.rowBytes)
	if !w.read(part, c.column, rows, src) {
		return nil
	}
	mask, masked := part.rowsInto(c.mask)
	defer masked()
	if c.raw != nil {
		pads(mask, p.Valid)
		part.pair(c.column, p, src)
		return nil
	}
	dst, done := part.rowsInto(c.entry)
	defer done()
	if c.elems == 0 {
		pads(mask, p.Valid)
		return nil
	}
	if c.mirror != nil || c.noise > 0 {
		return part.gatherMirrored(c, p, src, dst, mask)
	}
	out, dtype := dst, c.out
	direct := c.out == c.stored || c.out.Float()
	if !direct {
		out, dtype = make([]byte, p.Len()*c.rowBytes), c.stored
	}
	// Normalised in the kernel, so that rows without a value stay zero bits (K9) and there is one rounding (K10).
	if err := resample(out, dtype, src, c.column, p, c.norm.epilogue(0), mask); err != nil {
		return err
	}
	pads(mask, mask)
	if !direct {
		return convert(dst, c.out, out, c.stored, c.elems, nil)
	}
	return nil
}
