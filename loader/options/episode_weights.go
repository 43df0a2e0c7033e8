package options

import (
	"fmt"

	"github.com/goatnote-inc/robocache"
)

// maxEpisodeWeight is the maximum of a weight of an episode.
const maxEpisodeWeight = 1e6

// EpisodeWeights holds weights by the index of the episode.
type EpisodeWeights map[int64]float64

// check rejects weights that are negative or too large.
func (w EpisodeWeights) check() error {
	for episode, weight := range w {
		if err := CheckEpisodeWeight("episode_weights", episode, weight); err != nil {
			return err
		}
	}
	return nil
}

// CheckEpisodeWeight rejects a weight that is negative, too large or no number.
func CheckEpisodeWeight(option string, episode int64, weight float64) error {
	if weight >= 0 && weight <= maxEpisodeWeight {
		return nil
	}
	return Misuse(fmt.Sprintf("%s of episode %d", option, episode), "0 to 1e6", fmt.Sprint(weight))
}

// checkWeightBy rejects two options for the weights of episodes.
func (c *Config) checkWeightBy() error {
	if c.WeightBy == "" || len(c.EpisodeWeights) == 0 {
		return nil
	}
	return Misuse("weight_by", "one option for the weights of episodes",
		"weight_by and episode_weights")
}

// Positions returns the weights by the position of the episode in the dataset.
func (w EpisodeWeights) Positions(info *robocache.Info) (map[int]float64, error) {
	out := make(map[int]float64, len(w))
	for index, weight := range w {
		position, err := info.EpisodePosition(index)
		if err != nil {
			return nil, robocache.At(err, robocache.Where{"option": "episode_weights"})
		}
		out[position] = weight
	}
	return out, nil
}
