package lerobot

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/internal/reader"
	"github.com/goatnote-inc/robocache/internal/crash"
	"github.com/goatnote-inc/robocache/internal/jsonmeta"
	"github.com/goatnote-inc/robocache/stats"
	"github.com/goatnote-inc/robocache/store"
)

// EpisodeStats returns the statistics of a feature that the metadata has for each episode, by
// position. An episode without statistics has nil.
func (d *Dataset) EpisodeStats(
	ctx context.Context,
	key string,
) (_ []*robocache.FeatureStats, err error) {
	defer crash.Recover("lerobot stats", &err)
	n := d.episodes.count()
	out := make([]*robocache.FeatureStats, n)
	if d.raw.major == 2 {
		if err := d.lineStats(ctx, key, out); err != nil {
			return nil, err
		}
		return out, nil
	}
	raw, err := d.columnStats(ctx, key)
	if err != nil {
		return nil, err
	}
	for i, m := range raw {
		if m != nil {
			if out[i], err = featureStats(m); err != nil {
				return nil, err
			}
		}
	}
	return out, nil
}

// lineStats reads the statistics of a feature of v2, which has a line of JSON for each episode. A
// missing file means that no episode has any.
func (d *Dataset) lineStats(
	ctx context.Context,
	key string,
	out []*robocache.FeatureStats,
) error {
	b, err := store.ReadFile(ctx, d.Bytes, episodeStats, maxLines)
	if errors.Is(err, robocache.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	positions := map[int64]int{}
	for i := range out {
		positions[d.episodes.indexAt(i)] = i
	}
	return eachLine(episodeStats, b, func(_ int, b []byte) (err error) {
		var l struct {
			Episode int64    `json:"episode_index"`
			Stats   rawStats `json:"stats"`
		}
		if err = unmarshalLine(pythonJSON(b), &l); err != nil {
			return err
		}
		if i, ok := positions[l.Episode]; ok && l.Stats[key] != nil {
			out[i], err = featureStats(l.Stats[key])
		}
		return err
	})
}

// columnStats reads the statistics of a feature of v3, which has a column for each value, such as
// stats/KEY/mean. It returns the values by name for each episode.
func (d *Dataset) columnStats(ctx context.Context, key string) ([]map[string]any, error) {
	prefix := "stats/" + key + "/"
	t := &textColumns{types: map[string]string{}, values: map[string][]string{}}
	isOfKey := func(c string) bool {
		return strings.HasPrefix(c, prefix) && !strings.Contains(c[len(prefix):], "/")
	}
	if err := d.tableV3(ctx, t, isOfKey); err != nil {
		return nil, err
	}
	if t.rows != d.episodes.rows {
		return nil, changedError(fmt.Sprintf("%d rows", d.episodes.rows), fmt.Sprint(t.rows))
	}
	raw := make([]map[string]any, d.episodes.count())
	for _, name := range t.names {
		texts := padNulls(t.values[name], d.episodes.rows)
		for i, text := range reader.Permute(texts, d.paths.permutation) {
			var v any
			if err := jsonmeta.Unmarshal(string(op), pythonJSON([]byte(text)), &v); err != nil {
				return nil, err
			}
			if v == nil {
				continue
			}
			if raw[i] == nil {
				raw[i] = map[string]any{}
			}
			raw[i][name[len(prefix):]] = v
		}
	}
	return raw, nil
}

// isComplete reports whether statistics have all moments and the usual quantiles.
func isComplete(s *robocache.FeatureStats) bool {
	for _, q := range stats.Quantiles {
		if s == nil || len(s.Quantiles[q.Name]) != len(s.Mean) {
			return false
		}
	}
	n := len(s.Mean)
	sameLengths := len(s.Min) == n && len(s.Max) == n && len(s.Std) == n
	return s.Count > 0 && n > 0 && sameLengths
}

// FrameStats returns EpisodeStats of a camera. Statistics are nil if they cannot replace a count of
// the frames, which needs colors in [0, 1] and no missing part.
func (d *Dataset) FrameStats(ctx context.Context, key string) ([]*robocache.FeatureStats, error) {
	all, err := d.EpisodeStats(ctx, key)
	f := d.About.Feature(key)
	for i, s := range all {
		if f == nil || !replacesCount(f, s) {
			all[i] = nil
		}
	}
	return all, err
}

// replacesCount reports whether the statistics of a camera can replace a count of the frames.
func replacesCount(f *robocache.Feature, s *robocache.FeatureStats) bool {
	if !isComplete(s) {
		return false
	}
	perChannel := slices.Equal(s.Shape, []int{len(s.Mean), 1, 1})
	isAboveOne := slices.Max(s.Max) > 1 // some datasets have colors from 0 to 255
	inRange := f.Depth != nil || !isAboveOne
	hasNaN := slices.ContainsFunc(s.Mean, math.IsNaN) || slices.ContainsFunc(s.Std, math.IsNaN)
	return perChannel && inRange && !hasNaN
}
