package lerobot

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/crash"
	"github.com/goatnote-inc/robocache/stats"
	"github.com/goatnote-inc/robocache/store"
)

const (
	statsJSON    = "meta/stats.json"
	episodeStats = "meta/episodes_stats.jsonl"
)

// Stats returns the statistics of the dataset: stats.json or, in v2.1, the merged statistics of its
// episodes. It returns nil if there are none.
func (d *Dataset) Stats(ctx context.Context) (st robocache.Stats, err error) {
	defer crash.Recover("lerobot stats", &err)
	d.mu.Lock()
	if d.statsRead {
		defer d.mu.Unlock()
		return d.stats, nil
	}
	d.mu.Unlock()
	parse := parseStats
	b, err := store.ReadFile(ctx, d.Bytes, statsJSON, maxJSON)
	if errors.Is(err, robocache.ErrNotFound) && d.raw.major == 2 {
		parse = mergeStats
		b, err = store.ReadFile(ctx, d.Bytes, episodeStats, maxLines)
	}
	if !errors.Is(err, robocache.ErrNotFound) {
		if err != nil {
			return st, err
		}
		if st, err = parse(b); err != nil {
			return st, err
		}
	}
	d.mu.Lock()
	d.stats, d.statsRead = st, true
	d.mu.Unlock()
	return st, nil
}

// rawStats holds decoded JSON statistics by feature, then by name, such as "mean".
type rawStats map[string]map[string]any

// parseStats parses stats.json.
func parseStats(b []byte) (_ robocache.Stats, err error) {
	defer crash.Recover("lerobot stats", &err)
	if b, err = checkJSON(statsJSON, b); err != nil {
		return nil, err
	}
	var raw rawStats
	b = pythonJSON(b)
	if err := json.Unmarshal(b, &raw); err != nil {
		return nil, jsonError(statsJSON, b, err)
	}
	out := robocache.Stats{}
	for key, m := range raw {
		if out[key], err = featureStats(m); err != nil {
			return nil, robocache.Malformed(
				"lerobot",
				robocache.Where{"file": statsJSON, "pointer": "/" + escapePointer(key)},
				"%s",
				err.Error(),
			)
		}
	}
	return out, nil
}

// pythonNumbers matches numbers that Python writes and JSON does not have. It also matches strings,
// so that their content is skipped.
var pythonNumbers = regexp.MustCompile(`"(?:[^"\\]|\\.)*"|NaN|-?Infinity`)

// pythonJSON replaces NaN by null, and Infinity by a number.
func pythonJSON(b []byte) []byte {
	if !bytes.Contains(b, []byte("NaN")) && !bytes.Contains(b, []byte("Infinity")) {
		return b
	}
	return pythonNumbers.ReplaceAllFunc(b, func(m []byte) []byte {
		switch string(m) {
		case "NaN":
			return []byte("null")
		case "Infinity":
			return []byte("1e308")
		case "-Infinity":
			return []byte("-1e308")
		}
		return m
	})
}

// featureStats converts the decoded statistics of one feature.
func featureStats(m map[string]any) (*robocache.FeatureStats, error) {
	s := &robocache.FeatureStats{}
	vectors := map[string]*[]float64{"min": &s.Min, "max": &s.Max, "mean": &s.Mean, "std": &s.Std}
	for name, v := range m {
		flat, shape, err := flatten(v, 0)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		if to := vectors[name]; to != nil {
			*to = flat
			if name == "mean" {
				s.Shape = shape
			}
		} else if name == "count" && len(flat) > 0 && !math.IsNaN(flat[0]) {
			s.Count = int64(flat[0])
		} else if len(name) > 1 && name[0] == 'q' {
			if s.Quantiles == nil {
				s.Quantiles = map[string][]float64{}
			}
			s.Quantiles[name] = flat
		}
	}
	if s.Shape == nil && len(s.Min) > 0 {
		s.Shape = []int{len(s.Min)}
	}
	for _, v := range [][]float64{s.Min, s.Max, s.Std} {
		if v != nil && s.Mean != nil && len(v) != len(s.Mean) {
			return nil, fmt.Errorf("vectors of %d and %d numbers", len(v), len(s.Mean))
		}
	}
	return s, nil
}

// flatten returns the numbers of a nested list in C order, with its shape. A number is a list of
// one, and null is NaN.
func flatten(v any, depth int) (flat []float64, shape []int, err error) {
	list, isList := v.([]any)
	switch scalar := v.(type) {
	case nil:
		return []float64{math.NaN()}, []int{1}, nil
	case bool:
		number := 0.0
		if scalar {
			number = 1
		}
		return []float64{number}, []int{1}, nil
	case float64:
		return []float64{scalar}, []int{1}, nil
	}
	if !isList || depth > 8 {
		return nil, nil, fmt.Errorf("expected a list of numbers, found %.40s", fmt.Sprint(v))
	}
	var inner []int
	for i, e := range list {
		numbers, innerShape, err := flatten(e, depth+1)
		if err != nil {
			return nil, nil, err
		}
		if _, isNested := e.([]any); !isNested { // a number adds no axis
			innerShape = nil
		}
		if i == 0 {
			inner = innerShape
		} else if !slices.Equal(innerShape, inner) {
			return nil, nil, fmt.Errorf("a ragged list")
		}
		flat = append(flat, numbers...)
	}
	return flat, append([]int{len(list)}, inner...), nil
}

// mergedStats holds the statistics of several episodes of a feature.
type mergedStats struct {
	*stats.Moments
	shape               []int
	noSpread, noExtrema bool // some episode has no std; some episode has no min or no max
}

// mergeStats merges the statistics of episodes. Quantiles cannot be merged, so the result has none.
func mergeStats(b []byte) (robocache.Stats, error) {
	all := map[string]*mergedStats{}
	err := eachLine(episodeStats, b, func(_ int, b []byte) error {
		var l struct {
			Stats rawStats `json:"stats"`
		}
		if err := unmarshalLine(pythonJSON(b), &l); err != nil {
			return err
		}
		for key, raw := range l.Stats {
			s, err := featureStats(raw)
			merged := all[key]
			switch {
			case err != nil:
			case s.Count <= 0 || s.Mean == nil:
				err = fmt.Errorf("count or mean is missing")
			case merged == nil:
				merged = &mergedStats{Moments: stats.NewMoments(len(s.Mean)), shape: s.Shape}
				all[key] = merged
			case len(s.Mean) != len(merged.N):
				err = fmt.Errorf("%d numbers, earlier episodes have %d", len(s.Mean), len(merged.N))
			}
			if err != nil {
				return fmt.Errorf("%s: %w", key, err)
			}
			merged.Merge(stats.MomentsOf(s))
			merged.noSpread = merged.noSpread || s.Std == nil
			merged.noExtrema = merged.noExtrema || s.Min == nil || s.Max == nil
		}
		return nil
	})
	if err != nil || len(all) == 0 {
		return nil, err
	}
	out := robocache.Stats{}
	for k, merged := range all {
		s := merged.Stats()
		s.Shape = merged.shape
		if merged.noExtrema {
			s.Min, s.Max = nil, nil
		}
		if merged.noSpread {
			s.Std = nil
		}
		out[k] = s
	}
	return out, nil
}
