package inspect

import (
	"encoding/json"
	"strconv"

	"github.com/goatnote-inc/robocache"
)

// ChannelNames gives each channel of a row of a numeric stream a name: the format's own where there are as many, else its place in the shape.
func ChannelNames(f *robocache.Feature) []string {
	var v any
	if json.Unmarshal(f.Names, &v) == nil {
		if own := named(v, f.Elements()); own != nil {
			return own
		}
	}
	names := make([]string, f.Elements())
	for i := range names {
		rest := i
		for k := len(f.Shape) - 1; k >= 0; k-- {
			place := strconv.Itoa(rest % f.Shape[k])
			if rest /= f.Shape[k]; names[i] != "" {
				place += ","
			}
			names[i] = place + names[i]
		}
	}
	return names
}

// named finds a list of n texts: by itself, or as {"motors": […]} and [[…]], which LeRobot's recorders write too.
func named(v any, n int) []string {
	switch v := v.(type) {
	case []any:
		if len(v) == 1 && n != 1 {
			return named(v[0], n)
		}
		var out []string
		for _, x := range v {
			if text, ok := x.(string); ok {
				out = append(out, text)
			}
		}
		if len(out) == n && len(v) == n {
			return out
		}
	case map[string]any:
		if len(v) == 1 {
			for _, x := range v {
				return named(x, n)
			}
		}
	}
	return nil
}
