package store

import (
	"cmp"
	"context"
	"slices"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"

	"github.com/goatnote-inc/robocache"
)

// Span is a request for len(P) bytes at Off.
type Span struct {
	Off int64
	P   []byte
}

// MultiRanged is a file that reads many ranges more efficiently than with one ReadAt each.
type MultiRanged interface {
	ReadRanges(ctx context.Context, spans []Span) error
}

// ReadRanges fills all spans or returns an error. Spans may overlap and be in any order. A
// MultiRanged file merges neighboring spans and sends several requests at once. For other files,
// each span is one ReadAt.
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

// maxMerged is the memory limit of one merged read. All merged reads of one call together use at
// most four times as much.
const maxMerged = 8 << 20

// spanRun is a range of a file that covers some spans.
type spanRun struct {
	off, end int64
	spans    []Span
}

// mergeSpans sorts spans and joins them into runs. Neighbors are joined if the gap between them is
// at most gap bytes and the run is at most limit bytes long. Spans must be inside the file.
func mergeSpans(spans []Span, gap, limit int64) []spanRun {
	sorted := slices.Clone(spans)
	slices.SortStableFunc(sorted, func(a, b Span) int { return cmp.Compare(a.Off, b.Off) })
	var runs []spanRun
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
		runs = append(runs, spanRun{s.Off, end, []Span{s}})
	}
	return runs
}

// readMerged merges neighboring spans (mergeSpans) and reads up to parallel merged ranges at once.
// No goroutine outlives the call.
func readMerged(
	ctx context.Context,
	f robocache.Ranged,
	spans []Span,
	gap int64,
	parallel int,
) error {
	for _, s := range spans { // before merging, because sums of wrong offsets could overflow
		if isOutside(s.Off, len(s.P), f.Size()) {
			return f.ReadAt(ctx, s.P, s.Off)
		}
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(parallel)
	memory := semaphore.NewWeighted(4 * maxMerged)
	for _, r := range mergeSpans(spans, gap, maxMerged) {
		g.Go(func() error {
			if len(r.spans) == 1 {
				return f.ReadAt(ctx, r.spans[0].P, r.off)
			}
			n := r.end - r.off
			if err := memory.Acquire(ctx, n); err != nil {
				return err
			}
			defer memory.Release(n)
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
