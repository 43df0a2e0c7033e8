package loader

import (
	"math"
	"testing"

	"github.com/goatnote-inc/robocache/loader/options"
)

// TestRandomness checks the measured randomness of orders of pools and mixtures.
func TestRandomness(t *testing.T) {
	f, g := newFake(lengthsFor(1, 40, 20, 60)...), newFake(lengthsFor(2, 30, 10, 40)...)
	keys := []string{"index"}
	all := mustLoader(
		t,
		f,
		options.Config{
			Order:   options.Order{BatchSize: 16, WorldSize: 2, Shuffle: Global},
			Windows: options.Windows{Keys: keys},
		},
	).Randomness()
	if all.Batch != 32 || math.Abs(all.Distinct/all.DistinctIdeal-1) > 0.05 ||
		math.Abs(all.Neighbour-all.NeighbourIdeal) > 0.02 {
		t.Errorf("global: %+v", all)
	}
	few := mustLoader(
		t,
		f,
		options.Config{
			Order: options.Order{
				BatchSize: 32,
				Shuffle:   Pool,
				PoolOrder: options.PoolOrder{PoolEpisodes: 4, PoolShards: 1},
			},
			Windows: options.Windows{Keys: keys},
		},
	).Randomness()
	if few.Distinct > 0.3*few.DistinctIdeal || few.Neighbour < 0.15 ||
		few.DistinctIdeal != all.DistinctIdeal {
		t.Errorf("a pool of 4 episodes: %+v", few)
	}
	mixed := mustMix(
		t,
		mixOf([]*fake{f, g}, []float64{1, 3}),
		options.Config{
			Order:   options.Order{BatchSize: 32, Shuffle: Global},
			Windows: options.Windows{Keys: keys},
		},
	).Randomness()
	if math.Abs(mixed.Distinct/mixed.DistinctIdeal-1) > 0.05 || mixed.DistinctIdeal > 1 {
		t.Errorf("a mixture: %+v", mixed)
	}
}
