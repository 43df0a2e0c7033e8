package quality

import (
	"context"
	"math"
	"slices"
	"strings"

	"github.com/goatnote-inc/robocache"
)

// outcomeMetrics are what the dataset states about the result of an episode. They have no rule: an
// episode without success is no finding.
var outcomeMetrics = []metric{successMetric, rewardSumMetric, rewardLastMetric}

// successMetric is 1 if the stream of success is true in at least one row, else 0. Known failure: a
// stream that is true only until the task is solved.
var successMetric = metric{
	Metric: Metric{
		Name: "success", Group: GroupOutcome, Worse: -1,
		Summary: "1 if the dataset states success in a row of the episode, else 0.",
		Source:  "the dataset",
	},
	measure: func(x *recording) float64 {
		most := math.NaN()
		for _, v := range x.success {
			if v == v && !(most >= v) {
				most = v
			}
		}
		if most != most {
			return most
		}
		return oneIf(most > 0)
	},
}

// rewardSumMetric is the sum of the rewards, without those that are not finite.
var rewardSumMetric = metric{
	Metric: Metric{
		Name: "reward_sum", Group: GroupOutcome, Worse: -1,
		Summary: "The sum of the rewards of the episode.",
		Source:  "the dataset",
	},
	measure: func(x *recording) float64 {
		sum := math.NaN()
		for _, v := range x.reward {
			if v-v == 0 {
				if sum != sum {
					sum = 0
				}
				sum += v
			}
		}
		return sum
	},
}

// rewardLastMetric is the last finite reward.
var rewardLastMetric = metric{
	Metric: Metric{
		Name: "reward_last", Group: GroupOutcome, Worse: -1,
		Summary: "The last reward of the episode.",
		Source:  "the dataset",
	},
	measure: func(x *recording) float64 {
		for _, v := range slices.Backward(x.reward) {
			if v-v == 0 {
				return v
			}
		}
		return math.NaN()
	},
}

// Last parts of the keys of streams that state an outcome.
var (
	successWords = []string{"success", "is_success", "successful", "is_episode_successful"}
	rewardWords  = []string{"reward", "rewards"}
)

// SuccessOf returns the stream that states success: a number for each row, above 0 if the task is
// solved. It returns nil if the dataset has none.
func SuccessOf(info *robocache.Info) *robocache.Feature { return outcomeOf(info, successWords) }

// RewardOf returns the stream of rewards; nil if the dataset has none.
func RewardOf(info *robocache.Info) *robocache.Feature { return outcomeOf(info, rewardWords) }

// outcomeOf returns the first stream of one number per row whose key ends with a word.
func outcomeOf(info *robocache.Info, words []string) *robocache.Feature {
	for i := range info.Features {
		f := &info.Features[i]
		last := f.Key[strings.LastIndexAny(f.Key, "./")+1:]
		if f.Kind == robocache.KindNumeric && !f.Ragged() && f.DType.Size() > 0 &&
			f.Elements() == 1 && !f.Default && slices.Contains(words, last) {
			return f
		}
	}
	return nil
}

// readOutcome reads the streams of success and reward.
func (r *reader) readOutcome(ctx context.Context, e int, x *recording) error {
	for _, part := range []struct {
		feature *robocache.Feature
		to      *[]float64
	}{{r.roles.success, &x.success}, {r.roles.reward, &x.reward}} {
		if part.feature == nil || robocache.Lacks(r.ds, e, part.feature.Key) {
			continue
		}
		columns, err := r.readColumns(ctx, e, part.feature)
		if err != nil {
			return robocache.At(err, robocache.Where{"stream": part.feature.Key})
		}
		*part.to = columns[0]
	}
	return nil
}
