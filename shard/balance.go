package shard

import (
	"container/heap"
	"slices"
)

// balanceShards divides episodes with the given weights into n shards (shard.H2).
func balanceShards(weights []int64, n int) [][]int {
	var total, most int64
	for _, w := range weights {
		total, most = total+w, max(most, w)
	}
	least := max((total+int64(n)-1)/int64(n), most) // no division can be better
	if runs, heaviest := balanceInOrder(weights, n); heaviest <= least+least/3 {
		return runs
	}
	return LPT(weights, n)
}

// balanceInOrder divides the episodes into runs of neighbors with the smallest possible heaviest
// run.
func balanceInOrder(weights []int64, n int) (runs [][]int, heaviest int64) {
	var lo, hi int64
	for _, w := range weights {
		lo, hi = max(lo, w), hi+w
	}
	for lo < hi {
		if mid := lo + (hi-lo)/2; fitsLimit(weights, n, mid, nil) {
			hi = mid
		} else {
			lo = mid + 1
		}
	}
	runs = make([][]int, n)
	at := 0
	fitsLimit(weights, n, lo, func(shard int) { runs[shard] = append(runs[shard], at); at++ })
	return runs, lo
}

// fitsLimit reports whether n shards of neighboring episodes with weight at most limit are enough.
// Each shard has at least one episode if there are enough. If assign is not nil, it is called with
// the shard of each episode.
func fitsLimit(weights []int64, n int, limit int64, assign func(shard int)) bool {
	shard, held := 0, int64(0)
	for i, w := range weights {
		// A shard also ends if each of the other shards needs one of the remaining episodes.
		if i > 0 && (held+w > limit || len(weights)-i <= n-1-shard) {
			shard, held = shard+1, 0
		}
		if shard >= n {
			return false
		}
		if held += w; assign != nil {
			assign(shard)
		}
	}
	return true
}

// LPT assigns each episode, heaviest first, to the lightest shard. The result is at most 4/3 − 1/3n
// of the best.
func LPT(weights []int64, n int) [][]int {
	order := make([]int, len(weights))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(
		order,
		func(a, b int) int { return int(max(-1, min(1, weights[b]-weights[a]))) },
	)
	h := make(loads, n)
	for i := range h {
		h[i].shard = i
	}
	out := make([][]int, n)
	for _, e := range order {
		l := &h[0]
		l.weight += weights[e]
		out[l.shard] = append(out[l.shard], e)
		heap.Fix(&h, 0)
	}
	for _, s := range out {
		slices.Sort(s)
	}
	return out
}

// loads is a heap of shards, lightest first.
type loads []struct {
	weight int64
	shard  int
}

func (h loads) Len() int { return len(h) }
func (h loads) Less(i, j int) bool {
	return h[i].weight < h[j].weight || h[i].weight == h[j].weight && h[i].shard < h[j].shard
}
func (h loads) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *loads) Push(any)     {}
func (h *loads) Pop() any     { return nil }
