package pipeline

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/loader/internal/column"
)

// Locate finds the sources and rows of samples.
func (a *Assembler) Locate(indices []int64, each func(i, source int, r robocache.Row)) error {
	n := a.SampleCount()
	for _, i := range indices {
		if i < 0 || i >= n {
			return robocache.Misuse("loader", robocache.Where{"index": i}, "index out of range").
				Expected(fmt.Sprintf("0 to %d", n-1), fmt.Sprint(i))
		}
	}
	for i, sample := range indices {
		src, number := a.SourceOf(sample)
		r, _ := src.Table.Row(number)
		each(i, src.Index, r)
	}
	return nil
}

func (a *Assembler) RowsOf(indices []int64) ([]robocache.Row, error) {
	out := make([]robocache.Row, len(indices))
	err := a.Locate(indices, func(i, _ int, r robocache.Row) { out[i] = r })
	return out, err
}

// Outcome is the error of a unit that nobody works at any more.
func (u *PlannedBatch) Outcome(ctx context.Context) error {
	if u.Pending.Load() != 0 {
		return ctx.Err()
	}
	if u.Err != nil || len(u.BadEpisodes) == 0 {
		return u.Err
	}
	// A map has no order to leave an episode out of.
	return u.BadEpisodes[slices.MinFunc(slices.Collect(maps.Keys(u.BadEpisodes)), func(x, y column.EpisodeKey) int { return x.Episode - y.Episode })]
}
