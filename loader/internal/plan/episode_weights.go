package plan

import (
	"context"
	"math"
	"slices"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/loader/options"
	"github.com/goatnote-inc/robocache/query"
)

// episodeWeights returns the weights of episodes by position: those of Config.EpisodeWeights, or the
// values of Config.WeightBy for the episodes that are read.
func (src *Source) episodeWeights(
	ctx context.Context, exclude map[int]bool,
) (map[int]float64, error) {
	cfg, info := &src.Config, src.Dataset.Info()
	if cfg.WeightBy == "" {
		return cfg.EpisodeWeights.Positions(info)
	}
	where := robocache.Where{"option": "weight_by"}
	expression, err := query.Parse(cfg.WeightBy)
	if err != nil {
		return nil, robocache.At(err, where)
	}
	positions := slices.DeleteFunc(slices.Clone(src.chosenEpisodes()),
		func(e int) bool { return exclude[e] })
	values, err := expression.Numbers(ctx, src.Dataset, positions,
		query.Options{Threads: cfg.Threads})
	if err != nil {
		return nil, robocache.At(err, where)
	}
	weights := make(map[int]float64, len(values))
	for i, weight := range values {
		index := info.EpisodeIndex(positions[i])
		if math.IsNaN(weight) {
			return nil, robocache.Misuse("loader", where, "episode %d has no value of %s", index,
				cfg.WeightBy).
				WithHint("Run robocache quality again, or leave the episode out with %s.",
					robocache.Option("where"))
		}
		if err := options.CheckEpisodeWeight("weight_by", index, weight); err != nil {
			return nil, err
		}
		weights[positions[i]] = weight
	}
	return weights, nil
}
