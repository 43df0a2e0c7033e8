package store

import (
	"cmp"
	"context"
	"slices"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"

	"github.com/goatnote-inc/robocache"
)

// Span asks for len(P) bytes at Off.
type Span struct {
	Off int64
	P   []byte
}

// MultiRanged is a file that reads many ranges in fewer steps than one ReadAt each.
type MultiRanged interface {
	ReadRanges(ctx context.Context, spans []Span) error
}

// ReadRanges fills all spans, in any order and overlapping or not, or fails. Where the file is
// MultiRanged (http), near ones are read together and several requests run at once; elsewhere each
// is one ReadAt.
func ReadRanges(ctx context.Context, f robocache.Ranged, spans []Span) error {
	if m, ok := f.(MultiRanged); ok {
		return m.ReadRanges(ctx, spans)
	}
	for _, s := range spans {
		if err := f.ReadAt(ctx, s.P, s.Off); err != nil {
			return err
		}
	}
	return nil
}

// maxMerged is the most bytes that one merged read holds in memory, over those asked for; those of
// one call hold four times as much.
const maxMerged = 8 << 20

// run is a piece of a file that covers some spans.
type run struct {
	off, end int64
	spans    []Span
}

// merge sorts spans into runs: neighbours join where the gap costs at most gap bytes and the run
// stays within limit. Spans must lie inside a file of size bytes.
func merge(spans []Span, gap, limit int64) []run {
	sorted := slices.Clone(spans)
	slices.SortStableFunc(sorted, func(a, b Span) int { return cmp.Compare(a.Off, b.Off) })
	var runs []run
	for _, s := range sorted {
		end := s.Off + int64(len(s.P))
		if n := len(runs); n > 0 {
			last := &runs[n-1]
			if s.Off-last.end <= gap && max(end, last.end)-last.off <= limit {
				last.end = max(end, last.end)
				last.spans = append(last.spans, s)
				continue
			}
		}
		runs = append(runs, run{s.Off, end, []Span{s}})
	}
	return runs
}

// readMerged reads spans by runs, at most parallel at once. All goroutines are over when it
// returns.
func readMerged(
	ctx context.Context,
	f robocache.Ranged,
	spans []Span,
	gap int64,
	parallel int,
) error {
	for _, s := range spans { // before merging: sums of wild offsets could wrap
		if outside(s.Off, len(s.P), f.Size()) {
			return f.ReadAt(ctx, s.P, s.Off)
		}
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(parallel)
	room := semaphore.NewWeighted(4 * maxMerged)
	for _, r := range merge(spans, gap, maxMerged) {
		g.Go(func() error {
			if len(r.spans) == 1 {
				return f.ReadAt(ctx, r.spans[0].P, r.off)
			}
			n := r.end - r.off
			if err := room.Acquire(ctx, n); err != nil {
				return err
			}
			defer room.Release(n)
			buf := make([]byte, n)
			if err := f.ReadAt(ctx, buf, r.off); err != nil {
				return err
			}
			for _, s := range r.spans {
				copy(s.P, buf[s.Off-r.off:])
			}
			return nil
		})
	}
	return g.Wait()
}
