package lerobot

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/internal/reader"
	"github.com/goatnote-inc/robocache/internal/crash"
	"github.com/goatnote-inc/robocache/internal/jsonmeta"
	"github.com/goatnote-inc/robocache/stats"
	"github.com/goatnote-inc/robocache/store"
)

// EpisodeStats gives the statistics of a feature that the metadata has of each episode, by
// position; nil of an episode without.
func (d *Dataset) EpisodeStats(
	ctx context.Context,
	key string,
) (_ []*robocache.FeatureStats, err error) {
	defer crash.Recover("lerobot stats", &err)
	n := d.eps.n()
	out := make([]*robocache.FeatureStats, n)
	if d.raw.major == 2 {
		b, err := store.ReadFile(ctx, d.Bytes, episodeStats, maxLines)
		if errors.Is(err, robocache.ErrNotFound) {
			return out, nil
		}
		if err != nil {
			return nil, err
		}
		places := map[int64]int{}
		for i := range n {
			places[d.eps.id(i)] = i
		}
		return out, lines(episodeStats, b, func(_ int, b []byte) (err error) {
			var l struct {
				Episode int64    `json:"episode_index"`
				Stats   rawStats `json:"stats"`
			}
			if err = unmarshalLine(pythonJSON(b), &l); err != nil {
				return err
			}
			if i, ok := places[l.Episode]; ok && l.Stats[key] != nil {
				out[i], err = oneStats(l.Stats[key])
			}
			return err
		})
	}
	prefix := "stats/" + key + "/"
	t := &textColumns{types: map[string]string{}, values: map[string][]string{}}
	if err := d.tableV3(
		ctx,
		t,
		func(c string) bool { return strings.HasPrefix(c, prefix) && !strings.Contains(c[len(prefix):], "/") },
	); err != nil {
		return nil, err
	}
	if t.rows != d.eps.rows {
		return nil, changed("the episodes that there were", "others")
	}
	raw := make([]map[string]any, n)
	for _, name := range t.names {
		for i, text := range reader.Permute(pad(t.values[name], d.eps.rows), d.paths.perm) {
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
	for i, m := range raw {
		if m != nil {
			if out[i], err = oneStats(m); err != nil {
				return nil, err
			}
		}
	}
	return out, nil
}

// knows says that statistics are all there: moments, and the quantiles that are usual.
func knows(s *robocache.FeatureStats) bool {
	for _, q := range stats.Quantiles {
		if s == nil || len(s.Quantiles[q.Name]) != len(s.Mean) {
			return false
		}
	}
	return s.Count > 0 && len(s.Mean) > 0 && len(s.Min) == len(s.Mean) &&
		len(s.Max) == len(s.Mean) &&
		len(s.Std) == len(s.Mean)
}

// FrameStats is EpisodeStats of a camera, as far as they can stand for a count of its frames:
// colours in [0, 1], no part missing.
func (d *Dataset) FrameStats(ctx context.Context, key string) ([]*robocache.FeatureStats, error) {
	all, err := d.EpisodeStats(ctx, key)
	f := d.About.Feature(key)
	for i, s := range all {
		if f == nil || !knows(s) || !slices.Equal(s.Shape, []int{len(s.Mean), 1, 1}) ||
			f.Depth == nil && slices.Max(s.Max) > 1 ||
			slices.ContainsFunc(slices.Concat(s.Mean, s.Std), func(v float64) bool { return v != v }) {
			all[i] = nil
		}
	}
	return all, err
}
