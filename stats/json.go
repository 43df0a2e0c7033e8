package stats

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/goatnote-inc/robocache"
)

// Names are the names of the statistics, in the order in which they are written.
var Names = []string{"min", "max", "mean", "std", "count", "q01", "q10", "q50", "q90", "q99"}

// Vector returns one statistic of a feature by its stored name, or nil if there is none. It does
// not return the count.
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

// Marshal writes statistics in the form of lerobot's meta/stats.json. Features and statistics have
// a fixed order, so that equal statistics give equal bytes.
func Marshal(s robocache.Stats) ([]byte, error) { return marshalStats(s, false) }

// Told is Marshal for people and other programs: numbers that are not finite become null, and nil
// features are left out.
func Told(s robocache.Stats) ([]byte, error) { return marshalStats(s, true) }

func marshalStats(s robocache.Stats, lenient bool) ([]byte, error) {
	var features []string
	for _, key := range slices.Sorted(maps.Keys(s)) {
		if s[key] == nil && lenient {
			continue
		}
		var lines []string
		for _, n := range Names {
			var v any = []int64{s[key].Count}
			if n != "count" {
				vec := Vector(s[key], n)
				if vec == nil {
					continue
				}
				v = nestVector(vec, s[key].Shape, lenient)
			}
			text, err := json.Marshal(v)
			if err != nil {
				return nil, robocache.Malformed("write statistics", robocache.Where{
					"stream": key,
					"column": n,
				}, "").
					WithCause(err)
			}
			lines = append(
				lines,
				fmt.Sprintf(
					"\n        %q: %s",
					n,
					bytes.ReplaceAll(text, []byte(","), []byte(", ")),
				),
			)
		}
		name, err := json.Marshal(key)
		if err != nil {
			return nil, robocache.Malformed("write statistics", robocache.Where{"stream": key}, "").
				WithCause(err)
		}
		features = append(
			features,
			fmt.Sprintf("\n    %s: {%s\n    }", name, strings.Join(lines, ",")),
		)
	}
	return []byte("{" + strings.Join(features, ",") + "\n}\n"), nil
}

// number is written as Python does, 1.0 instead of 1, because a reader that infers types from the
// text would get integers.
type number float64

func (n number) MarshalJSON() ([]byte, error) {
	b, err := json.Marshal(float64(n))
	if err == nil && !bytes.ContainsAny(b, ".e") {
		b = append(b, ".0"...)
	}
	return b, err
}

// nestVector gives a flat vector its axes: (3,1,1) becomes [[[r]],[[g]],[[b]]].
func nestVector(v []float64, shape []int, lenient bool) []any {
	out := make([]any, len(v))
	for i := range v {
		if finite := v[i]-v[i] == 0; finite || !lenient {
			out[i] = number(v[i])
		}
	}
	if len(shape) <= 1 || shape[0] <= 0 || len(v)%shape[0] != 0 {
		return out
	}
	step := len(v) / shape[0]
	for i := range shape[0] {
		out[i] = nestVector(v[i*step:(i+1)*step], shape[1:], lenient)
	}
	return out[:shape[0]]
}
