package pipeline

import (
	"context"
	"maps"
	"slices"

	"github.com/goatnote-inc/robocache/loader/internal/column"
)

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
