package lerobot

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/guard"
	"github.com/goatnote-inc/robocache/store"
)

const (
	statsJSON    = "meta/stats.json"
	episodeStats = "meta/episodes_stats.jsonl"
)

// Stats gives the statistics that the dataset brings: stats.json, else those of the episodes of a v2.1 set merged. nil where there are none.
func (d *Dataset) Stats(ctx context.Context) (st robocache.Stats, err error) {
	defer guard.Malformed("lerobot stats", &err)
	d.mu.Lock()
	if d.statsOK {
		defer d.mu.Unlock()
		return d.stats, nil
	}
	d.mu.Unlock()
	b, err := store.ReadFile(ctx, d.st, statsJSON, maxJSON)
	switch {
	case err == nil:
		st, err = parseStats(b)
	case errors.Is(err, robocache.ErrNotFound) && d.raw.major == 2:
		b, err = store.ReadFile(ctx, d.st, episodeStats, maxLines)
		if err == nil {
			st, err = mergeStats(b)
		} else if errors.Is(err, robocache.ErrNotFound) {
			err = nil
		}
	case errors.Is(err, robocache.ErrNotFound):
		err = nil
	}
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	d.stats, d.statsOK = st, true
	d.mu.Unlock()
	return st, nil
}

type rawStats map[string]map[string]json.RawMessage

func parseStats(b []byte) (robocache.Stats, error) {
	b, err := checkJSON(statsJSON, b)
	if err != nil {
		return nil, err
	}
	var raw rawStats
	if err := json.Unmarshal(pythonJSON(b), &raw); err != nil {
		return nil, jsonError(statsJSON, err)
	}
	out := robocache.Stats{}
	for key, m := range raw {
		s, err := oneStats(m)
		if err != nil {
			return nil, &robocache.Error{Class: robocache.ErrMalformed, Op: "lerobot", Where: robocache.Where{"file": statsJSON, "pointer": "/" + escapePointer(key)}, Msg: err.Error()}
		}
		out[key] = s
	}
	return out, nil
}

// pythonJSON turns NaN and Infinity, which Python writes, into null: they are no JSON.
func pythonJSON(b []byte) []byte {
	out := make([]byte, 0, len(b))
	inString := false
	for i := 0; i < len(b); i++ {
		c := b[i]
		switch {
		case inString && c == '\\' && i+1 < len(b):
			out = append(out, c, b[i+1])
			i++
			continue
		case c == '"':
			inString = !inString
		case inString:
		case c == 'N' && i+3 <= len(b) && string(b[i:i+3]) == "NaN":
			out = append(out, "null"...)
			i += 2
			continue
		case c == 'I' && i+8 <= len(b) && string(b[i:i+8]) == "Infinity":
			if n := len(out); n > 0 && out[n-1] == '-' {
				out = append(out[:n-1], "-1e308"...)
			} else {
				out = append(out, "1e308"...)
			}
			i += 7
			continue
		}
		out = append(out, c)
	}
	return out
}

func oneStats(m map[string]json.RawMessage) (*robocache.FeatureStats, error) {
	s := &robocache.FeatureStats{}
	for name, v := range m {
		flat, shape, err := flatten(v, 0)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		switch name {
		case "min":
			s.Min = flat
		case "max":
			s.Max = flat
		case "mean":
			s.Mean, s.Shape = flat, shape
		case "std":
			s.Std = flat
		case "count":
			if len(flat) > 0 && !math.IsNaN(flat[0]) {
				s.Count = int64(flat[0])
			}
		default:
			if len(name) > 1 && name[0] == 'q' {
				if s.Quantiles == nil {
					s.Quantiles = map[string][]float64{}
				}
				s.Quantiles[name] = flat
			}
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

// flatten gives a nested list in C order, with its shape; a number is a list of one. null is NaN.
func flatten(v json.RawMessage, depth int) ([]float64, []int, error) {
	if len(v) > 0 && v[0] != '[' {
		if string(v) == "null" {
			return []float64{math.NaN()}, []int{1}, nil
		}
		if string(v) == "true" || string(v) == "false" {
			return []float64{map[string]float64{"true": 1}[string(v)]}, []int{1}, nil
		}
		var f float64
		if err := json.Unmarshal(v, &f); err != nil {
			return nil, nil, fmt.Errorf("expected a number, found %.40s", v)
		}
		return []float64{f}, []int{1}, nil
	}
	var list []json.RawMessage
	if depth > 8 || json.Unmarshal(v, &list) != nil {
		return nil, nil, fmt.Errorf("expected a list of numbers, found %.40s", v)
	}
	var out []float64
	var inner []int
	for i, e := range list {
		f, s, err := flatten(e, depth+1)
		if err != nil {
			return nil, nil, err
		}
		if len(e) > 0 && e[0] != '[' {
			s = nil
		}
		if i == 0 {
			inner = s
		} else if fmt.Sprint(s) != fmt.Sprint(inner) {
			return nil, nil, fmt.Errorf("a ragged list")
		}
		out = append(out, f...)
	}
	return out, append([]int{len(list)}, inner...), nil
}

// moments merges counts, means and variances in the way of Chan, Golub and LeVeque: exact up to float64's rounding.
type moments struct {
	n         float64
	min, max  []float64
	mean, m2  []float64
	shape     []int
	noSpread  bool // some episode brought no std
	noExtrema bool
}

func (m *moments) add(s *robocache.FeatureStats) error {
	n := float64(s.Count)
	if n <= 0 || s.Mean == nil {
		return fmt.Errorf("count or mean is missing")
	}
	if m.mean == nil {
		m.shape = s.Shape
		m.mean, m.m2 = make([]float64, len(s.Mean)), make([]float64, len(s.Mean))
		m.min, m.max = make([]float64, len(s.Mean)), make([]float64, len(s.Mean))
		for i := range m.mean {
			m.min[i], m.max[i] = math.Inf(1), math.Inf(-1)
		}
	}
	if len(s.Mean) != len(m.mean) {
		return fmt.Errorf("%d numbers, earlier episodes have %d", len(s.Mean), len(m.mean))
	}
	m.noSpread = m.noSpread || s.Std == nil
	m.noExtrema = m.noExtrema || s.Min == nil || s.Max == nil
	total := m.n + n
	for i, mean := range s.Mean {
		d := mean - m.mean[i]
		m.mean[i] += d * n / total
		m.m2[i] += d * d * m.n * n / total
		if s.Std != nil {
			m.m2[i] += float64(s.Std[i] * s.Std[i] * n) // the conversion forbids a fused multiply-add, which not every build has
		}
		if s.Min != nil && s.Max != nil {
			m.min[i], m.max[i] = math.Min(m.min[i], s.Min[i]), math.Max(m.max[i], s.Max[i])
		}
	}
	m.n = total
	return nil
}

func (m *moments) result() *robocache.FeatureStats {
	s := &robocache.FeatureStats{Mean: m.mean, Count: int64(m.n), Shape: m.shape}
	if !m.noExtrema {
		s.Min, s.Max = m.min, m.max
	}
	if !m.noSpread {
		s.Std = make([]float64, len(m.m2))
		for i, v := range m.m2 {
			s.Std[i] = math.Sqrt(v / m.n)
		}
	}
	return s
}

// mergeStats merges the statistics of episodes. Quantiles cannot be merged and are not made up.
func mergeStats(b []byte) (robocache.Stats, error) {
	all := map[string]*moments{}
	err := lines(episodeStats, b, func(_ int, b []byte) error {
		var l struct {
			Stats rawStats `json:"stats"`
		}
		if err := json.Unmarshal(pythonJSON(b), &l); err != nil {
			return err
		}
		for key, raw := range l.Stats {
			s, err := oneStats(raw)
			if err == nil {
				if all[key] == nil {
					all[key] = &moments{}
				}
				err = all[key].add(s)
			}
			if err != nil {
				return fmt.Errorf("%s: %w", key, err)
			}
		}
		return nil
	})
	if err != nil || len(all) == 0 {
		return nil, err
	}
	out := robocache.Stats{}
	for k, m := range all {
		out[k] = m.result()
	}
	return out, nil
}
