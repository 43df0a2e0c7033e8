// Package planning holds the plans of rows of a batch while they are made: room that is used again, and which rows a plan reads.
package planning

import (
	"math"
	"slices"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/align"
	"github.com/goatnote-inc/robocache/kernel"
)

// Room is a worker's room for plans, used again.
type Room struct {
	Whole, One kernel.Plan // of a batch, of an episode's part of it
	Targets    []int64
	Rows       []robocache.Row
	at         []int32
	list       []int32
}

// Of makes a plan of n rows; what they hold is written by Fill, or whole by who asks.
func (r *Room) Of(p *kernel.Plan, n int) *kernel.Plan {
	p.Kind = slices.Grow(p.Kind[:0], n)[:n]
	p.Left, p.Right = slices.Grow(p.Left[:0], n)[:n], slices.Grow(p.Right[:0], n)[:n]
	p.Weight, p.Valid = slices.Grow(p.Weight[:0], n)[:n], slices.Grow(p.Valid[:0], n)[:n]
	return p
}

// Around cuts the timestamps that decide about some targets out of a stream's: an episode of an hour is not looked through for a window of a
// second. On both sides two distinct timestamps beyond them stay, which is what any mode and edge looks at (A2, A4, A8).
func Around(timestamps, targets []int64, opt *align.Options) (from int, near []int64) {
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

// UsedRows are the source rows that a plan reads, ascending, each once.
type UsedRows struct {
	Rows []int32
	lo   int32
	at   []int32 // where row lo + i stands; nil: rows is searched
}

// Place is where a row stands among them.
func (u *UsedRows) Place(r int32) int32 {
	if u.at != nil {
		return u.at[min(max(int(r-u.lo), 0), len(u.at)-1)] // a Copy's Right may be any
	}
	k, _ := slices.BinarySearch(u.Rows, r)
	return int32(k)
}

// Used finds the rows that a plan reads.
func (r *Room) Used(p *kernel.Plan) UsedRows {
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
		return UsedRows{}
	}
	list := r.list[:0]
	n := int(hi-lo) + 1
	if n > 4*len(p.Kind)+1024 { // far from each other: sorting costs less than a table
		eachRow(p, func(r int32) { list = append(list, r) })
		slices.Sort(list)
		r.list = slices.Compact(list)
		return UsedRows{Rows: r.list}
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
	return UsedRows{Rows: list, lo: lo, at: at}
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
