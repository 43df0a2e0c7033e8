package pipeline

import (
	"context"
	"maps"
	"slices"

	"github.com/goatnote-inc/robocache/loader/internal/column"
)

// Outcome returns the error of a batch after its queue was drained: ctx's if parts are missing, the
// batch's own, or that of its first bad episode. It returns nil if the batch is complete.
func (u *PlannedBatch) Outcome(ctx context.Context) error {
	if u.Pending.Load() != 0 {
		return ctx.Err()
	}
	if u.Err != nil || len(u.BadEpisodes) == 0 {
		return u.Err
	}
	// A Map has no order from which it could omit an episode.
	episodes := slices.Collect(maps.Keys(u.BadEpisodes))
	first := slices.MinFunc(
		episodes,
		func(x, y column.EpisodeKey) int { return x.Episode - y.Episode },
	)
	return u.BadEpisodes[first]
}
