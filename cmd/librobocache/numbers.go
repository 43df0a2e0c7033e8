//go:build cgo

package main

import (
	"encoding/json"
	"math"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/jsonmeta"
)

// number is a float64 in JSON. NaN is null, and an infinity is a number that every parser reads as
// infinite.
type number float64

func (n number) MarshalJSON() ([]byte, error) {
	switch f := float64(n); {
	case math.IsNaN(f):
		return []byte("null"), nil
	case math.IsInf(f, -1):
		return []byte("-1e999"), nil
	case math.IsInf(f, 1):
		return []byte("1e999"), nil
	default:
		return json.Marshal(f)
	}
}

// UnmarshalJSON parses the output of MarshalJSON.
func (n *number) UnmarshalJSON(b []byte) error {
	switch string(b) {
	case "null":
		*n = number(math.NaN())
	case "1e999":
		*n = number(math.Inf(1))
	case "-1e999":
		*n = number(math.Inf(-1))
	default:
		if json.Unmarshal(b, (*float64)(n)) != nil {
			return robocache.Misuse("arguments", nil, "").Expected("a number", jsonmeta.Words(b))
		}
	}
	return nil
}

// number32 is a float32 in JSON, encoded like number.
type number32 float32

func (n *number32) UnmarshalJSON(b []byte) error {
	var f number
	err := f.UnmarshalJSON(b)
	*n = number32(f)
	return err
}

// castFloats converts a slice between two float types. nil stays nil.
func castFloats[To, From ~float64](v []From) []To {
	if v == nil {
		return nil
	}
	out := make([]To, len(v))
	for i, x := range v {
		out[i] = To(x)
	}
	return out
}

// featureStats is the JSON form of robocache.FeatureStats.
type featureStats struct {
	Min       []number            `json:"min,omitempty"`
	Max       []number            `json:"max,omitempty"`
	Mean      []number            `json:"mean,omitempty"`
	Std       []number            `json:"std,omitempty"`
	Count     int64               `json:"count"`
	Quantiles map[string][]number `json:"quantiles,omitempty"`
	Shape     []int               `json:"shape,omitempty"`
}

func newFeatureStats(v *robocache.FeatureStats, scale func(float64) float64) featureStats {
	told := func(list []float64) []number {
		out := castFloats[number](list)
		for i, x := range out {
			out[i] = number(scale(float64(x)))
		}
		return out
	}
	out := featureStats{
		Min:       told(v.Min),
		Max:       told(v.Max),
		Mean:      told(v.Mean),
		Std:       told(v.Std),
		Count:     v.Count,
		Quantiles: map[string][]number{},
		Shape:     v.Shape,
	}
	for q, list := range v.Quantiles {
		out.Quantiles[q] = told(list)
	}
	return out
}

func (f *featureStats) toStats() *robocache.FeatureStats {
	out := &robocache.FeatureStats{
		Min:   castFloats[float64](f.Min),
		Max:   castFloats[float64](f.Max),
		Mean:  castFloats[float64](f.Mean),
		Std:   castFloats[float64](f.Std),
		Count: f.Count,
		Shape: f.Shape,
	}
	for k, v := range f.Quantiles {
		if out.Quantiles == nil {
			out.Quantiles = map[string][]float64{}
		}
		out.Quantiles[k] = castFloats[float64](v)
	}
	return out
}

// statsOf converts statistics from the client. nil stays nil.
func statsOf(given map[string]featureStats) robocache.Stats {
	if given == nil {
		return nil
	}
	out := make(robocache.Stats, len(given))
	for k, f := range given {
		out[k] = f.toStats()
	}
	return out
}
