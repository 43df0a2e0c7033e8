package shard

import (
	"container/heap"
	"slices"
)

// balance cuts episodes of some weights into n shards (H2).
func balance(weights []int64, n int) [][]int {
	var total, most int64
	for _, w := range weights {
		total, most = total+w, max(most, w)
	}
	least := max((total+int64(n)-1)/int64(n), most) // no cut can do better
	if runs, heaviest := inOrder(weights, n); heaviest <= least+least/3 {
		return runs
	}
	return LPT(weights, n)
}

// inOrder cuts the episodes into runs of neighbours whose heaviest is as light as it can be.
func inOrder(weights []int64, n int) (runs [][]int, heaviest int64) {
	var lo, hi int64
	for _, w := range weights {
		lo, hi = max(lo, w), hi+w
	}
	for lo < hi {
		if mid := lo + (hi-lo)/2; cuts(weights, n, mid, nil) {
			hi = mid
		} else {
			lo = mid + 1
		}
	}
	runs = make([][]int, n)
	at := 0
	cuts(weights, n, lo, func(shard int) { runs[shard] = append(runs[shard], at); at++ })
	return runs, lo
}

// cuts says whether runs of at most limit do with n shards, each of at least one episode while
// there are some. put hears of the shard of each episode.
func cuts(weights []int64, n int, limit int64, put func(shard int)) bool {
	shard, held := 0, int64(0)
	for i, w := range weights {
		// A shard also ends where each of the others needs one of the episodes that are left.
		if i > 0 && (held+w > limit || len(weights)-i <= n-1-shard) {
			shard, held = shard+1, 0
		}
		if shard >= n {
			return false
		}
		if held += w; put != nil {
			put(shard)
		}
	}
	return true
}

// LPT gives each episode, the heaviest first, to the lightest shard: at most 4/3 − 1/3n of the
// best.
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

// loads are shards, the lightest first.
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
