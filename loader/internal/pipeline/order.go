package pipeline

import (
	"fmt"
	"slices"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/loader/internal/column"
	"github.com/goatnote-inc/robocache/loader/internal/options"
	"github.com/goatnote-inc/robocache/loader/internal/order"
)

// NewOrder settles the order of a loader's epochs. The pool's capacity in samples comes of declared sizes.
func (a *Assembler) NewOrder(mix []options.Mix) (*order.Ordering, error) {
	cfg := &a.Config
	// An eighth is left for the frames of batches that are under construction.
	p := order.Params{Mode: cfg.Shuffle, PoolBytes: int64(cfg.PoolSize) / 8 * 7, PoolEpisodes: cfg.PoolEpisodes, Shards: cfg.PoolShards}
	m := &order.MixParams{Temperature: cfg.Temperature, Stop: cfg.Stop, EpochSize: cfg.EpochSize, Stratified: cfg.Stratified, GlobalBatch: int64(cfg.BatchSize) * int64(cfg.WorldSize)}
	tables := make([]*order.Table, len(a.Sources))
	for i, src := range a.Sources {
		p.SampleBytes = append(p.SampleBytes, column.ResidentBytes(&src.DataSource, a.planar()))
		tables[i] = src.Table
	}
	for i := range mix {
		m.Names = append(m.Names, mix[i].Name)
		if mix[i].Weight != nil {
			m.Weights = append(m.Weights, *mix[i].Weight)
		}
	}
	return order.New(p, order.NewCatalog(tables...), m, cfg.Seed)
}

// BadEpisodesByIndex names bad episodes, which package order knows by position, by their indices. It returns the list itself if nothing differs.
func (a *Assembler) BadEpisodesByIndex(bad []order.BadEpisode) []order.BadEpisode {
	out := bad
	for i, b := range bad {
		index := int(a.Sources[b.Source].Dataset.Info().EpisodeIndex(b.Episode))
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

// BadEpisodesByPosition is the reverse of BadEpisodesByIndex, for the bad episodes of a state.
func (a *Assembler) BadEpisodesByPosition(bad []order.BadEpisode) ([]order.BadEpisode, error) {
	out := slices.Clone(bad)
	for i, b := range bad {
		if b.Source < 0 || b.Source >= len(a.Sources) {
			continue // refused where the state is checked
		}
		position, err := a.Sources[b.Source].Dataset.Info().EpisodePosition(int64(b.Episode))
		if err != nil {
			return nil, robocache.Misuse("loader", nil, "state bad_episodes").
				Expected("episodes of the dataset", fmt.Sprint(b.Episode))
		}
		out[i].Episode = position
	}
	return out, nil
}
