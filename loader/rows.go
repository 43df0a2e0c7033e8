package loader

import "time"

// Small batches cost what handing their columns to workers costs, not what copying them does: a job a column wakes threads for work of
// a microsecond. So all columns of numbers and texts of a small part are one job, as long as they come at once: the job hands on what is
// left when a column took long (it had to be decoded, or fetched), and the next batches have a job a column.

const (
	smallPart   = 64 << 10               // bytes of a part's numbers, at most
	atOnce      = 300 * time.Microsecond // for a job of rows; beyond, its other columns go to other workers
	waryBatches = 32                     // how many batches have a job a column after that
)

// rowColumns are the columns of numbers and texts that have work of their own.
func (l *layout) rowColumns() (cols []int32, sample int) {
	for i := range l.columns {
		c := &l.columns[i]
		if c.ragged || c.source == fromVideo || c.source == fromStills {
			continue
		}
		if c.source != fromText && c.source != fromSample {
			sample += l.tensors[c.entry].bytes
		}
		if c.leader == i {
			cols = append(cols, int32(i))
		}
	}
	return cols, sample
}

// together says whether a part's columns are one job.
func (src *source) together(p *part) bool {
	if len(src.rowCols) < 2 || p.size()*src.rowBytes > smallPart {
		return false
	}
	if src.wary.Load() > 0 {
		src.wary.Add(-1)
		return false
	}
	return true
}

// columnJob is the job of one column of rows.
func (p *part) columnJob(col int32) job {
	kind := jobGather
	if s := p.src.layout.columns[col].source; s == fromText || s == fromSample {
		kind = jobText
	}
	return job{prio: p.u.seq, sub: int64(col), kind: kind, p: p, col: col}
}

// column fills one column of rows, and says how many parts of the batch that is.
func (w *worker) column(p *part, col int32) int64 {
	c := &p.src.layout.columns[col]
	if c.source == fromText || c.source == fromSample {
		w.text(p, int(col))
		return 1
	}
	w.gather(p, int(col))
	return int64(1 + len(c.shared))
}

// smallRows fills the columns of a small part one after the other.
func (w *worker) smallRows(j *job, begin time.Time) {
	p, a := j.p, w.a
	cols := p.src.rowCols
	done, slow := int64(0), false
	for len(cols) > 0 && !slow {
		done += w.column(p, cols[0])
		cols = cols[1:]
		slow = time.Since(begin) > atOnce // the last too: one worker was woken for the small parts of a horizon
	}
	a.n.gather.Add(int64(time.Since(begin)))
	if slow {
		p.src.wary.Store(waryBatches)
		for _, col := range cols {
			w.q.push(p.columnJob(col))
		}
	}
	p.u.finish(done) // the last that is done with p: the batch may be another's afterwards
}
