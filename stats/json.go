package stats

import (
	"bytes"
	"encoding/json"
	"sort"

	"github.com/goatnote-inc/robocache"
)

// Names are the statistics in the order in which they are written.
var Names = []string{"min", "max", "mean", "std", "count", "q01", "q10", "q50", "q90", "q99"}

// Vector gives one statistic of a feature by its stored name; nil where there is none. The count is not among them.
func Vector(fs *robocache.FeatureStats, name string) []float64 {
	switch name {
	case "min":
		return fs.Min
	case "max":
		return fs.Max
	case "mean":
		return fs.Mean
	case "std":
		return fs.Std
	}
	return fs.Quantiles[name]
}

// Marshal writes statistics in the shape of lerobot's meta/stats.json: features and statistics in a fixed order, so that
// equal statistics are equal bytes.
func Marshal(s robocache.Stats) ([]byte, error) {
	keys := make([]string, 0, len(s))
	for k := range s {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	out := []byte("{")
	for i, k := range keys {
		if i > 0 {
			out = append(out, ',')
		}
		name, err := json.Marshal(k)
		if err != nil {
			return nil, &robocache.Error{Class: robocache.ErrMalformed, Op: "write statistics", Where: robocache.Where{"stream": k}, Err: err}
		}
		out = append(append(append(out, "\n    "...), name...), ": {"...)
		first := true
		for _, n := range Names {
			var v any
			if n == "count" {
				v = []int64{s[k].Count}
			} else if vec := Vector(s[k], n); vec != nil {
				v = nest(vec, s[k].Shape)
			} else {
				continue
			}
			text, err := marshalFloats(v)
			if err != nil {
				return nil, &robocache.Error{Class: robocache.ErrMalformed, Op: "write statistics", Where: robocache.Where{"stream": k, "column": n}, Err: err}
			}
			if !first {
				out = append(out, ',')
			}
			first = false
			out = append(append(append(out, "\n        \""...), n...), "\": "...)
			out = append(out, text...)
		}
		out = append(out, "\n    }"...)
	}
	return append(out, "\n}\n"...), nil
}

// marshalFloats writes floats as Python does, 1.0 rather than 1: a reader that takes types from the text would get integers.
func marshalFloats(v any) ([]byte, error) {
	switch v := v.(type) {
	case float64:
		b, err := json.Marshal(v)
		if err == nil && !bytes.ContainsAny(b, ".e") {
			b = append(b, ".0"...)
		}
		return b, err
	case []float64:
		return marshalList(len(v), func(i int) any { return v[i] })
	case []any:
		return marshalList(len(v), func(i int) any { return v[i] })
	}
	return json.Marshal(v)
}

func marshalList(n int, at func(int) any) ([]byte, error) {
	out := []byte{'['}
	for i := range n {
		if i > 0 {
			out = append(out, ", "...)
		}
		b, err := marshalFloats(at(i))
		if err != nil {
			return nil, err
		}
		out = append(out, b...)
	}
	return append(out, ']'), nil
}

// nest gives a flat vector its axes: (3,1,1) is [[[r]],[[g]],[[b]]].
func nest(v []float64, shape []int) any {
	if len(shape) <= 1 {
		return v
	}
	if shape[0] <= 0 || len(v)%shape[0] != 0 {
		return v
	}
	step := len(v) / shape[0]
	out := make([]any, shape[0])
	for i := range out {
		out[i] = nest(v[i*step:(i+1)*step], shape[1:])
	}
	return out
}
