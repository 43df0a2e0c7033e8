package plan

import (
	"fmt"
	"slices"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/loader/internal/order"
)

// BadEpisodesByIndex replaces the positions of bad episodes, which package order uses, by indices.
// It returns bad itself if nothing differs.
func (p *Plan) BadEpisodesByIndex(bad []order.BadEpisode) []order.BadEpisode {
	out := bad
	for i, b := range bad {
		index := int(p.Sources[b.Source].Dataset.Info().EpisodeIndex(b.Episode))
		if index == b.Episode {
			continue
		}
		if &out[0] == &bad[0] {
			out = slices.Clone(bad)
		}
		out[i].Episode = index
	}
	return out
}

// BadEpisodesByPosition is the inverse of BadEpisodesByIndex, for the bad episodes of a state.
func (p *Plan) BadEpisodesByPosition(bad []order.BadEpisode) ([]order.BadEpisode, error) {
	out := slices.Clone(bad)
	for i, b := range bad {
		if b.Source < 0 || b.Source >= len(p.Sources) {
			continue // refused where the state is checked
		}
		position, err := p.Sources[b.Source].Dataset.Info().EpisodePosition(int64(b.Episode))
		if err != nil {
			return nil, robocache.Misuse("loader", nil, "state bad_episodes").
				Expected("episodes of the dataset", fmt.Sprint(b.Episode))
		}
		out[i].Episode = position
	}
	return out, nil
}
