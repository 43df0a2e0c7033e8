package loader

import (
	"math"
	"slices"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/align"
	"github.com/goatnote-inc/robocache/kernel"
)

// planRoom is a worker's room for plans, used again.
type planRoom struct {
	whole, one kernel.Plan // of a batch, of an episode's part of it
	targets    []int64
	rows       []robocache.Row
	at         []int32
	list       []int32
}

// room makes a plan of n rows; what they hold is written by Fill, or whole by who asks.
func (r *planRoom) room(p *kernel.Plan, n int) *kernel.Plan {
	p.Kind = slices.Grow(p.Kind[:0], n)[:n]
	p.Left, p.Right = slices.Grow(p.Left[:0], n)[:n], slices.Grow(p.Right[:0], n)[:n]
	p.Weight, p.Valid = slices.Grow(p.Weight[:0], n)[:n], slices.Grow(p.Valid[:0], n)[:n]
	return p
}

// around cuts the timestamps that decide about some targets out of a stream's: an episode of an hour is not looked through for a window of a
// second. On both sides two distinct timestamps beyond them stay, which is what any mode and edge looks at (A2, A4, A8).
func around(timestamps, targets []int64, opt *align.Options) (from int, near []int64) {
	if len(timestamps) < 64 || len(targets) == 0 {
		return 0, timestamps
	}
	lo, hi := slices.Min(targets)-opt.Before, slices.Max(targets)+opt.After
	from, _ = slices.BinarySearch(timestamps, lo)
	to, _ := slices.BinarySearch(timestamps, hi+1)
	for range 2 {
		if from > 0 {
			for x := timestamps[from-1]; from > 0 && timestamps[from-1] == x; {
				from--
			}
		}
		if to < len(timestamps) {
			for x := timestamps[to]; to < len(timestamps) && timestamps[to] == x; {
				to++
			}
		}
	}
	return from, timestamps[from:to]
}

// usedRows are the source rows that a plan reads, ascending, each once.
type usedRows struct {
	rows []int32
	lo   int32
	at   []int32 // where row lo + i stands; nil: rows is searched
}

func (u *usedRows) place(r int32) int32 {
	if u.at != nil {
		return u.at[min(max(int(r-u.lo), 0), len(u.at)-1)] // a Copy's Right may be any
	}
	k, _ := slices.BinarySearch(u.rows, r)
	return int32(k)
}

func (r *planRoom) used(p *kernel.Plan) usedRows {
	lo, hi := int32(math.MaxInt32), int32(-1) // of all, both ends included
	for i, k := range p.Kind {
		switch k {
		case kernel.Copy:
			lo, hi = min(lo, p.Left[i]), max(hi, p.Left[i])
		case kernel.Blend:
			lo, hi = min(lo, p.Left[i], p.Right[i]), max(hi, p.Left[i], p.Right[i])
		case kernel.Window:
			lo, hi = min(lo, p.Left[i]), max(hi, p.Right[i]-1)
		}
	}
	if hi < lo {
		return usedRows{}
	}
	list := r.list[:0]
	n := int(hi-lo) + 1
	if n > 4*len(p.Kind)+1024 { // far from each other: sorting costs less than a table
		eachRow(p, func(r int32) { list = append(list, r) })
		slices.Sort(list)
		r.list = slices.Compact(list)
		return usedRows{rows: r.list}
	}
	at := slices.Grow(r.at[:0], n)[:n]
	clear(at)
	eachRow(p, func(r int32) { at[r-lo] = 1 })
	for i, x := range at {
		if x != 0 {
			at[i] = int32(len(list))
			list = append(list, lo+int32(i))
		}
	}
	r.at, r.list = at, list
	return usedRows{rows: list, lo: lo, at: at}
}

func eachRow(p *kernel.Plan, fn func(r int32)) {
	for i, k := range p.Kind {
		switch k {
		case kernel.Copy:
			fn(p.Left[i])
		case kernel.Blend:
			fn(p.Left[i])
			fn(p.Right[i])
		case kernel.Window:
			for r := p.Left[i]; r < p.Right[i]; r++ {
				fn(r)
			}
		}
	}
}

// share lets columns of one clock, one rule and one window be made by one plan (A1).
func (l *layout) share() {
	for i := range l.columns {
		c := &l.columns[i]
		if !c.shares() {
			continue
		}
		for k := range i {
			d := &l.columns[k]
			if d.leader == k && d.shares() && d.feature.Clock == c.feature.Clock && d.rows == c.rows && d.steps == c.steps && d.aligns.offset == c.aligns.offset &&
				d.aligns.by == c.aligns.by && d.aligns.clock == c.aligns.clock && sameRule(d.aligns.opt, c.aligns.opt) {
				c.leader = k
				d.shared = append(d.shared, i)
				break
			}
		}
	}
}

// shares says whether the column's plan may be another's too: it depends on time alone, and its clock has a name.
func (c *column) shares() bool {
	return c.timed && c.source == fromTable && !c.spans && !c.when && c.feature.Clock != "" && !c.feature.Masked
}

func sameRule(a, b align.Options) bool {
	a.Stream, b.Stream = "", ""
	return a == b
}
