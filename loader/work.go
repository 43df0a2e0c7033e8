package loader

import (
	"slices"
	"strconv"

	"github.com/goatnote-inc/robocache"
)

// gather fills a numeric tensor: one Gather for the whole batch, straight into it where no cast is asked.
func (w *worker) gather(p *part, col int) {
	src := p.src
	c := &src.layout.columns[col]
	if c.when {
		if err := w.spreadTimes(p, c); err != nil {
			p.failAt(err)
		}
		return
	}
	if c.aligns != nil {
		if err := w.gatherAligned(p, c); err != nil {
			p.failAt(err)
		}
		return
	}
	rows := p.rows[c.rows]
	if c.elems == 0 {
		return
	}
	dst, done := p.rowsInto(c.entry)
	into := dst
	direct := c.stored == c.out && c.norm == nil && c.noise == 0
	if !direct {
		into = w.Bytes(len(rows) * c.rowBytes)
	}
	if err := src.ds.Gather(w.Ctx(), c.key, rows, into); err != nil {
		p.isolate(rows, robocache.At(err, robocache.Where{"stream": c.key}), func(sub []robocache.Row) error {
			return src.ds.Gather(w.Ctx(), c.key, sub, w.Bytes(len(sub)*c.rowBytes))
		})
		return
	}
	p.reflect(c, into, c.stored)
	if !direct {
		do := func() error { return convert(dst, c.out, into, c.stored, c.elems, c.norm) }
		if c.noise > 0 {
			do = func() error { return p.noisy(c, dst, into, c.stored, nil) }
		}
		if err := do(); err != nil {
			p.u.fail(robocache.At(err, robocache.Where{"stream": c.key}))
			return
		}
	}
	done()
	if err := w.maskDirect(p, c, rows); err != nil {
		p.failAt(robocache.At(err, robocache.Where{"stream": c.key}))
	}
}

// text fills a column of strings.
func (w *worker) text(p *part, col int) {
	src := p.src
	c := &src.layout.columns[col]
	all := p.rows[0]
	if c.source == fromSample {
		for i, r := range all {
			p.u.batch.Texts[src.texts[c.entry]].Values[p.slot(i)] = strconv.Itoa(r.Episode)
		}
		return
	}
	if c.aligns != nil {
		var err error
		if all, err = w.alignedRows(p, c, nil); err != nil {
			p.failAt(err)
			return
		}
	}
	rows := all
	if slices.ContainsFunc(all, noRow) { // a timeline that reaches beyond the rows: "" where there is none
		rows = slices.DeleteFunc(slices.Clone(all), noRow)
	}
	values, err := src.ds.Text(w.Ctx(), c.key, rows)
	if err == nil && len(values) != len(rows) {
		err = &robocache.Error{Class: robocache.ErrMalformed, Op: "loader", Msg: "the dataset gave another number of texts than asked"}
	}
	if err != nil {
		p.isolate(rows, robocache.At(err, robocache.Where{"stream": c.key}), func(sub []robocache.Row) error {
			_, err := src.ds.Text(w.Ctx(), c.key, sub)
			return err
		})
		return
	}
	k := 0
	for i, r := range all {
		if !noRow(r) {
			p.u.batch.Texts[src.texts[c.entry]].Values[p.slot(i)] = values[k]
			k++
		}
	}
}

func noRow(r robocache.Row) bool { return r.Index < 0 }

// frameRows gives the rows whose frames a column of a unit wants, and clears those that have none (index -1).
func (w *worker) frameRows(p *part, c *column) ([]robocache.Row, error) {
	if c.aligns == nil {
		return p.rows[c.rows], nil
	}
	mask, done := p.rowsInto(c.mask)
	defer done()
	return w.alignedRows(p, c, mask)
}

func (w *worker) refsFor(n int) []robocache.FrameRef {
	w.refs = slices.Grow(w.refs[:0], n)[:n]
	clear(w.refs)
	return w.refs
}
