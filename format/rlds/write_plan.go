package rlds

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/internal/reader"
	"github.com/goatnote-inc/robocache/internal/guard"
)

// outSplit is a split to write.
type outSplit struct {
	name     string
	first    int // first episode, for a split of the source
	episodes []int
	shards   [][]int // episodes of each shard
	files    []string
	lengths  []int64
	bytes    int64
}

// planSplits divides the episodes into splits and shards. The first episode determines the planned
// size of a shard.
func (w *writing) planSplits(ctx context.Context) []*outSplit {
	w.planLeaves(ctx)
	var out []*outSplit
	episodes := w.options.Episodes
	name := w.options.Options["split"]
	if episodes == nil && name == "" {
		out = w.sourceSplits()
	}
	if out == nil {
		episodes = reader.Episodes(episodes, w.info.Episodes)
		if name == "" {
			name = "train"
			w.report.Findings = append(w.report.Findings, w.info.SplitsDropped(episodes)...)
		}
		if name != snakeCase(name) {
			guard.Fail(robocache.Misuse("write rlds", robocache.Where{"option": "split"}, "").
				Expected("a name of letters, digits and _", quoteClipped(name)))
		}
		out = []*outSplit{{name: name, episodes: episodes}}
	}
	perFrame := w.encodeSample(ctx, out)
	for _, s := range out {
		frames := int64(0)
		for _, e := range s.episodes {
			guard.Check(reader.Op("write rlds").Episode(w.info.Episodes, e))
			frames += int64(w.src.Len(e))
		}
		n := w.shardCount
		if n == 0 {
			n = int(min(frames*perFrame/shardBytes+1, maxShards))
		}
		s.divideEpisodes(max(min(n, len(s.episodes)), 1), frames, w.src.Len)
	}
	return out
}

// divideEpisodes assigns to each of n shards a run of episodes with about the same number of
// frames.
func (s *outSplit) divideEpisodes(n int, frames int64, length func(int) int) {
	s.shards = make([][]int, n)
	s.files, s.lengths = make([]string, n), make([]int64, n)
	seen, at := int64(0), 0
	for i, e := range s.episodes {
		// No shard stays empty if there are enough episodes.
		left := len(s.episodes) - i
		if at+1 < n && len(s.shards[at]) > 0 &&
			(seen*int64(n) >= frames*int64(at+1) || left <= n-at-1) {
			at++
		}
		s.shards[at] = append(s.shards[at], e)
		seen += int64(length(e))
	}
}

// sourceSplits returns the splits of the source if they are runs that hold every episode once, and
// nil otherwise.
func (w *writing) sourceSplits() []*outSplit {
	var out []*outSplit
	for name, text := range w.info.Splits {
		var from, to int
		if n, _ := fmt.Sscanf(text, "%d:%d", &from, &to); n != 2 || name != snakeCase(name) ||
			from < 0 || to < from || to > w.info.Episodes {
			return nil
		}
		s := &outSplit{name: name, first: from}
		for e := from; e < to; e++ {
			s.episodes = append(s.episodes, e)
		}
		out = append(out, s)
	}
	slices.SortFunc(
		out,
		func(a, b *outSplit) int {
			return cmp.Or(a.first-b.first, len(a.episodes)-len(b.episodes))
		},
	)
	at := 0
	for _, s := range out {
		if s.first != at {
			return nil
		}
		at += len(s.episodes)
	}
	if at != w.info.Episodes {
		return nil
	}
	return out
}
