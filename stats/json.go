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

// Names are the statistics in the order in which they are written.
var Names = []string{"min", "max", "mean", "std", "count", "q01", "q10", "q50", "q90", "q99"}

// Vector gives one statistic of a feature by its stored name; nil where there is none. The count is
// not among them.
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

// Marshal writes statistics in the shape of lerobot's meta/stats.json: features and statistics in a
// fixed order, so that equal statistics are equal bytes.
func Marshal(s robocache.Stats) ([]byte, error) { return marshal(s, false) }

// Told is Marshal for people and other programs: a number that is not finite is null, and what is
// nil is left out.
func Told(s robocache.Stats) ([]byte, error) { return marshal(s, true) }

func marshal(s robocache.Stats, lenient bool) ([]byte, error) {
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
				v = nest(vec, s[key].Shape, lenient)
			}
			text, err := json.Marshal(v)
			if err != nil {
				return nil, robocache.Malformed("write statistics", robocache.Where{"stream": key, "column": n}, "").
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

// number is written as Python does, 1.0 rather than 1: a reader that takes types from the text
// would get integers.
type number float64

func (n number) MarshalJSON() ([]byte, error) {
	b, err := json.Marshal(float64(n))
	if err == nil && !bytes.ContainsAny(b, ".e") {
		b = append(b, ".0"...)
	}
	return b, err
}

// nest gives a flat vector its axes: (3,1,1) is [[[r]],[[g]],[[b]]].
func nest(v []float64, shape []int, lenient bool) []any {
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
		out[i] = nest(v[i*step:(i+1)*step], shape[1:], lenient)
	}
	return out[:shape[0]]
}
