package query

import (
	"cmp"
	"context"
	"math"
	"runtime"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/crash"
	"github.com/goatnote-inc/robocache/quality"
)

// Options are the choices of Bind and of the functions that call it. The zero value is valid.
type Options struct {
	Index   *Index         // columns are read from it; nil: from the dataset
	Quality *quality.Table // nil: that of the dataset, if the expression has q.NAME
	Threads int            // episodes that are read at once; 0: the number of CPUs
}

// Range is a range of rows that an expression finds. An expression about whole episodes finds all
// rows of an episode, which may have none.
type Range struct {
	Episode  int64   `json:"episode"` // index
	From     int     `json:"from"`
	To       int     `json:"to"`             // row after the last
	FromS    float64 `json:"from_s"`         // seconds from row 0 to row From
	ToS      float64 `json:"to_s"`           // seconds from row 0 to row To
	Position int     `json:"-"`              // of the episode
	Length   int     `json:"episode_length"` // rows of the episode
	// Score is the similarity of a frame: the cosine of the angle between the vectors.
	Score float64 `json:"score,omitempty"`
}

// IsWhole reports whether the expression is about whole episodes, not about rows.
func (b *Bound) IsWhole() bool { return b.root.kind == truthKind }

// Truth reports whether the expression is true for the episode at a position: an expression with
// rows is true if there is an occurrence.
func (b *Bound) Truth(ctx context.Context, position int) (bool, error) {
	x := b.source.newRun(ctx)
	x.start(position)
	return b.truthOf(x)
}

// truthOf reports whether the expression is true for the episode of x.
func (b *Bound) truthOf(x *episodeRun) (bool, error) {
	r := b.root.reachIn(x)
	if !r.canTrue || !r.canFalse && b.root.kind == truthKind {
		return r.canTrue, nil
	}
	v, err := b.root.eval(x)
	if err != nil {
		return false, err
	}
	return v.holds(b.root.kind), nil
}

// Matching returns those of the positions at which the expression is true for the episode, in their
// order.
func (b *Bound) Matching(ctx context.Context, positions []int) (out []int, err error) {
	isTrue := make([]bool, len(positions))
	err = b.source.forEach(ctx, positions, func(x *episodeRun, i int) error {
		var err error
		isTrue[i], err = b.truthOf(x)
		return err
	})
	for i, position := range positions {
		if isTrue[i] {
			out = append(out, position)
		}
	}
	return out, err
}

// Episodes returns the positions of the episodes for which an expression is true, in ascending
// order. The `where` of a Loader and of other readers is resolved by it.
func Episodes(
	ctx context.Context, ds robocache.Dataset, expression string, opt Options,
) ([]int, error) {
	e, err := Parse(expression)
	if err != nil {
		return nil, err
	}
	b, err := e.Bind(ctx, ds, opt)
	if err != nil {
		return nil, err
	}
	return b.Matching(ctx, allPositions(ds.Info().Episodes))
}

// Find returns the ranges of rows that the expression finds in the episodes at some positions (nil:
// all), in their order. It returns at most limit ranges, or all if limit is 0.
func (b *Bound) Find(ctx context.Context, positions []int, limit int) ([]Range, error) {
	if positions == nil {
		positions = allPositions(b.source.info.Episodes)
	}
	block := len(positions)
	if limit > 0 {
		block = 1024
	}
	var out []Range
	for len(positions) > 0 && (limit == 0 || len(out) < limit) {
		part := positions[:min(block, len(positions))]
		positions = positions[len(part):]
		found := make([][]Range, len(part))
		err := b.source.forEach(ctx, part, func(x *episodeRun, i int) error {
			var err error
			found[i], err = b.rangesIn(x)
			return err
		})
		if err != nil {
			return nil, err
		}
		for _, ranges := range found {
			out = append(out, ranges...)
		}
	}
	if limit > 0 {
		out = out[:min(limit, len(out))]
	}
	return out, nil
}

// rangesIn returns the ranges in the episode of x.
func (b *Bound) rangesIn(x *episodeRun) ([]Range, error) {
	if !b.root.reachIn(x).canTrue {
		return nil, nil
	}
	v, err := b.root.eval(x)
	if err != nil {
		return nil, err
	}
	n := b.source.ds.Len(x.position)
	spans := []span{{0, n}}
	switch {
	case b.root.kind != truthKind:
		if err := x.toRows(&v, b.root.kind); err != nil {
			return nil, err
		}
		spans = v.spans(b.root.kind)
	case !v.truth:
		return nil, nil
	}
	if len(spans) == 0 {
		return nil, nil
	}
	times, err := x.times("")
	if err != nil && robocache.IsFatal(err) {
		return nil, err
	}
	out := make([]Range, len(spans))
	for i, s := range spans {
		out[i] = Range{
			Episode:  b.source.info.EpisodeIndex(x.position),
			Position: x.position, From: s.from, To: s.to, Length: n,
		}
		out[i].SetTimes(times)
	}
	return out, nil
}

// SetTimes sets FromS and ToS from the timestamps of the episode. After the last row follows a step
// as long as the one before it. Without timestamps of all rows both stay 0.
func (r *Range) SetTimes(times []int64) {
	if r.From >= r.To || r.To > len(times) {
		return
	}
	end := times[len(times)-1]
	switch {
	case r.To < len(times):
		end = times[r.To]
	case r.To > 1:
		end += end - times[r.To-2]
	}
	r.FromS = float64(times[r.From]-times[0]) / 1e9
	r.ToS = float64(end-times[0]) / 1e9
}

// allPositions returns the positions 0 to n-1.
func allPositions(n int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = i
	}
	return out
}

// newRun returns an episodeRun. Caller must call start.
func (s *source) newRun(ctx context.Context) *episodeRun {
	return &episodeRun{
		ctx: ctx, source: s, gathered: map[string][][]float64{}, stamps: map[string][]int64{},
	}
}

// forEach calls do for the episode at each position, in parallel. i is the index in positions.
func (s *source) forEach(
	ctx context.Context, positions []int, do func(x *episodeRun, i int) error,
) error {
	return s.forEachBlock(ctx, len(positions), 16, func(x *episodeRun, i int) error {
		x.start(positions[i])
		return robocache.At(do(x, i), robocache.Where{
			"episode": s.info.EpisodeIndex(positions[i]),
		})
	})
}

// forEachBlock calls do for 0 to n-1 in parallel. A goroutine takes block of them at once.
func (s *source) forEachBlock(
	ctx context.Context, n, block int, do func(x *episodeRun, i int) error,
) error {
	threads := s.threads
	if threads <= 0 {
		threads = runtime.GOMAXPROCS(0)
	}
	var taken atomic.Int64
	g, ctx := errgroup.WithContext(ctx)
	for range min(threads, 1+n/block) {
		g.Go(crash.Func("find", func() error {
			x := s.newRun(ctx)
			for {
				from := int(taken.Add(int64(block))) - block
				if from >= n {
					return nil
				}
				for i := from; i < min(from+block, n); i++ {
					if err := cmp.Or(ctx.Err(), do(x, i)); err != nil {
						return err
					}
				}
			}
		}))
	}
	return g.Wait()
}

// rangeOf returns the least and the greatest finite value of a signal of one channel in the
// dataset. Both are NaN if there is none.
func (s *source) rangeOf(ctx context.Context, n *node) (lo, hi float64, err error) {
	positions := allPositions(s.info.Episodes)
	ranges := make([][2]float64, len(positions))
	err = s.forEach(ctx, positions, func(x *episodeRun, i int) error {
		if r := n.reachIn(x); r.exact {
			ranges[i] = [2]float64{r.lo, r.hi}
			return nil
		}
		ranges[i] = [2]float64{math.Inf(1), math.Inf(-1)}
		v, err := n.eval(x)
		if err != nil {
			return err
		}
		for _, a := range v.channels[0] {
			if !math.IsInf(a, 0) && !math.IsNaN(a) {
				ranges[i] = [2]float64{min(ranges[i][0], a), max(ranges[i][1], a)}
			}
		}
		return nil
	})
	lo, hi = math.Inf(1), math.Inf(-1)
	for _, r := range ranges {
		lo, hi = min(lo, r[0]), max(hi, r[1])
	}
	if lo > hi {
		lo, hi = math.NaN(), math.NaN()
	}
	return lo, hi, err
}
