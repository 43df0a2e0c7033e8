package inspect

import (
	"encoding/json"
	"math"

	"github.com/goatnote-inc/robocache"
)

// Stats is the statistics that a dataset brings. In JSON it has the keys and shapes of LeRobot's stats.json, as `robocache stats --json`
// prints them; a number that is not finite is null, for JSON has no word for it.
type Stats robocache.Stats

// MarshalJSON writes feature → {min, max, mean, std, count, q01 …}.
func (s Stats) MarshalJSON() ([]byte, error) {
	out := make(map[string]map[string]any, len(s))
	for key, f := range s {
		if f == nil {
			continue
		}
		one := map[string]any{"count": []int64{f.Count}}
		put := func(name string, v []float64) {
			if v != nil {
				one[name] = nested(v, f.Shape)
			}
		}
		put("min", f.Min)
		put("max", f.Max)
		put("mean", f.Mean)
		put("std", f.Std)
		for name, v := range f.Quantiles {
			put(name, v)
		}
		out[key] = one
	}
	return json.Marshal(out)
}

// nested is v as lists of the given shape; flat where the shape is that of another number of values.
func nested(v []float64, shape []int) any {
	n := 1
	for _, d := range shape {
		n *= d
	}
	if n != len(v) || len(shape) < 2 {
		flat := make([]any, len(v))
		for i, x := range v {
			if !math.IsNaN(x) && !math.IsInf(x, 0) {
				flat[i] = x
			}
		}
		return flat
	}
	rows := make([]any, shape[0])
	step := n / max(1, shape[0])
	for i := range rows {
		rows[i] = nested(v[i*step:(i+1)*step], shape[1:])
	}
	return rows
}
