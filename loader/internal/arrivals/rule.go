package arrivals

import (
	"math"
	"slices"
)

// Unit is the unit of the age of an episode.
type Unit string

const (
	Episodes Unit = "episodes" // arrivals after the episode that the rule keeps; default
	Seconds  Unit = "seconds"  // from the arrival of the episode to that of the newest one
	Versions Unit = "versions" // policy versions after that of the episode
)

// Rule selects the episodes of an epoch from the arrivals before it.
type Rule struct {
	HalfLife float64 // age at which the weight of an episode is half; 0: all weights are 1
	Unit     Unit
	Capacity int      // maximum number of episodes, the newest ones; 0: no limit
	Lag      *float64 // maximum number of policy versions before the newest one; nil: no limit
}

// smallestWeight is the least weight of a kept episode. It keeps weights of very old episodes
// positive, because the weight 0 leaves an episode out.
const smallestWeight = 1e-9

// Select returns the positions in list of the episodes that the rule keeps, in order of arrival, and
// their weights. weights is nil if all are 1. The newest kept episode has the weight 1, because only
// proportions of weights matter between epochs.
func (r *Rule) Select(list []Arrival) (kept []int, weights []float64) {
	newest := math.Inf(-1)
	for i := range list {
		if v := list[i].Version; !list[i].Fails && v != nil {
			newest = max(newest, *v)
		}
	}
	for i := range list {
		a := &list[i]
		if a.Fails || r.Lag != nil && (a.Version == nil || *a.Version < newest-*r.Lag) {
			continue
		}
		kept = append(kept, i)
	}
	if r.Capacity > 0 && len(kept) > r.Capacity {
		kept = slices.Clone(kept[len(kept)-r.Capacity:])
	}
	if r.HalfLife <= 0 || len(kept) == 0 {
		return kept, nil
	}
	latest := list[kept[0]].Time
	for _, i := range kept {
		latest = max(latest, list[i].Time)
	}
	weights = make([]float64, len(kept))
	for k, i := range kept {
		age := 0.0
		switch r.Unit {
		case Seconds:
			age = float64(latest-list[i].Time) / 1e9
		case Versions:
			if v := list[i].Version; v != nil {
				age = newest - *v
			} else {
				age = math.Inf(1)
			}
		default:
			age = float64(len(kept) - 1 - k)
		}
		weights[k] = max(math.Exp2(-age/r.HalfLife), smallestWeight)
	}
	return kept, weights
}
