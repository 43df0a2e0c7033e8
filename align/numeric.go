package align

import (
	"slices"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/kernel"
)

// resampleNumbers gathers the samples that the plan reads and resamples them.
func (a *aligner) resampleNumbers(s *source, p *kernel.Plan, out *Stream) error {
	f := &s.feature
	lo, hi := sampleRange(p)
	row := f.RowBytes()
	if to, ok := a.cfg.DTypes[f.Key]; ok {
		out.DType = to
	}
	size := int64(p.Len()) * int64(f.Elements()) * int64(out.DType.Size())
	if err := a.reserve(size + int64(hi-lo)*int64(row)); err != nil {
		return err
	}
	pooled := rawPool.Get().(*[]byte)
	defer rawPool.Put(pooled)
	raw := slices.Grow((*pooled)[:0], (hi-lo)*row)[:(hi-lo)*row]
	if cap(raw) <= maxPooledBytes {
		*pooled = raw
	}
	const step = 1 << 14 // number of rows per call, which keeps the list small
	rows := make([]robocache.Row, min(step, hi-lo))
	for at := lo; at < hi; at += step {
		n := min(step, hi-at)
		for i := range n {
			rows[i] = robocache.Row{Episode: a.ep, Index: at + i}
		}
		if err := a.ds.Gather(a.ctx, f.Key, rows[:n], raw[(at-lo)*row:(at-lo+n)*row]); err != nil {
			return err
		}
	}
	if out.Data = a.into; out.Data == nil {
		out.Data = make([]byte, size)
	}
	src := kernel.Dense(raw, f.DType, hi-lo, f.Elements())
	err := kernel.Resample(
		kernel.Dense(out.Data, out.DType, p.Len(), f.Elements()),
		src,
		rebasePlan(p, lo, hi),
		kernel.Options{
			Rule: kernel.Rule{
				Period:    a.cfg.Period[f.Key],
				Quats:     a.cfg.Quats[f.Key],
				Rotations: a.cfg.Turned(f),
				Summed:    s.summed,
			},
			Valid: out.Valid,
		},
	)
	a.budgetLeft += int64(len(raw)) // raw is free again, unlike out.Data
	return err
}

// sampleRange returns the half-open range of samples that a plan reads.
func sampleRange(p *kernel.Plan) (lo, hi int) {
	lo, hi = p.Sources, 0
	for i, k := range p.Kind {
		l, r := int(p.Left[i]), int(p.Right[i])
		switch k {
		case kernel.Zero:
			continue
		case kernel.Copy:
			r = l + 1
		case kernel.Blend:
			r++
		}
		lo, hi = min(lo, l), max(hi, r)
		if s := p.Sums; s != nil && s.From[i] < s.To[i] {
			lo, hi = min(lo, int(s.From[i])), max(hi, int(s.To[i]))
		}
	}
	if lo > hi {
		return 0, 0
	}
	return lo, hi
}

// rebasePlan returns the plan for a source that has only the samples lo … hi-1.
func rebasePlan(p *kernel.Plan, lo, hi int) *kernel.Plan {
	q := *p
	q.Sources = hi - lo
	if lo == 0 {
		return &q
	}
	q.Left, q.Right = slices.Clone(p.Left), slices.Clone(p.Right)
	for i := range q.Left {
		q.Left[i] -= int32(lo)
		q.Right[i] -= int32(lo)
	}
	if s := p.Sums; s != nil {
		q.Sums = s.Shift(-lo)
	}
	return &q
}

// distinctRows returns the samples that the rows of a copying plan show, without consecutive
// duplicates. place is the index of each row's sample in rows; -1 = the row shows none.
func distinctRows(p *kernel.Plan, ep int) (rows []robocache.Row, place []int32) {
	place = make([]int32, p.Len())
	for i, k := range p.Kind {
		if k == kernel.Zero {
			place[i] = -1
			continue
		}
		at := int(p.Left[i])
		if n := len(rows); n == 0 || rows[n-1].Index != at {
			rows = append(rows, robocache.Row{Episode: ep, Index: at})
		}
		place[i] = int32(len(rows) - 1)
	}
	return rows, place
}
