package options

import (
	"bytes"
	"encoding/json"
	"strconv"

	"github.com/goatnote-inc/robocache"
)

// Normalize states which keys are normalized and how. A Mode applies to every float feature except
// bookkeeping columns (Feature.Default, and those named timestamp), images and rows of varying
// length. Integers and booleans are never normalized.
//
// A selected key is normalized or rejected. Statistics that the dataset lacks are computed at
// opening if the pass is small, or if Config.ComputeStats is set.
type Normalize struct {
	Mode string
	Keys map[string]Norm
}

// Norm states how one key is normalized. Without vectors (Mean and Std, or Low and High), the
// dataset's statistics apply.
type Norm struct {
	// "mean_std" | "min_max" | "quantiles" (q01, q99) | "quantile10" (q10, q90)
	Mode string    `json:"mode"`
	Clip bool      `json:"clip,omitempty"` // to [-1, 1]; not for mean_std
	Mean []float64 `json:"mean,omitempty"`
	Std  []float64 `json:"std,omitempty"`
	Low  []float64 `json:"low,omitempty"` // min, q01 or q10
	High []float64 `json:"high,omitempty"`
}

// IsZero reports whether nothing is normalized. JSON then omits the option.
func (n Normalize) IsZero() bool { return n.Mode == "" && len(n.Keys) == 0 }

// UnmarshalJSON reads a mode, or {key: mode or {mode, clip, mean, std, low, high}}.
func (n *Normalize) UnmarshalJSON(b []byte) error {
	*n = Normalize{}
	if string(b) == "null" || string(b) == "false" {
		return nil
	}
	if json.Unmarshal(b, &n.Mode) == nil {
		return nil
	}
	n.Keys = map[string]Norm{}
	return orderedObject(b, "normalize", func(key string, raw json.RawMessage) error {
		var one Norm
		if json.Unmarshal(raw, &one.Mode) != nil {
			dec := json.NewDecoder(bytes.NewReader(raw))
			// ignoring "means" would silently apply the dataset's statistics
			dec.DisallowUnknownFields()
			if err := dec.Decode(&one); err != nil {
				return Misuse(
					"normalize",
					"a mode, or {mode, clip, mean, std, low, high} for "+key,
					Clip(string(raw)),
				)
			}
		}
		n.Keys[key] = one
		return nil
	})
}

// MarshalJSON writes the form that UnmarshalJSON reads.
func (n Normalize) MarshalJSON() ([]byte, error) {
	if n.Keys != nil {
		return json.Marshal(n.Keys)
	}
	return json.Marshal(n.Mode)
}

// Check rejects unknown modes, even of columns that would not use them.
func (n *Normalize) Check() error {
	known := func(mode string) bool {
		return mode == "mean_std" || mode == "min_max" || mode == "quantiles" ||
			mode == "quantile10"
	}
	bad := func(mode string) error {
		return Misuse("normalize", "mean_std, min_max, quantiles or quantile10", mode)
	}
	if n.Mode != "" && !known(n.Mode) {
		return bad(n.Mode)
	}
	for _, k := range Keys(n.Keys) {
		if mode := n.Keys[k].Mode; !known(mode) {
			return bad(k + ": " + strconv.Quote(mode))
		}
	}
	return nil
}

// Own returns the configured vectors, or nil.
func (n *Norm) Own() [][]float64 {
	if n.Mode == "mean_std" {
		if n.Mean != nil || n.Std != nil {
			return [][]float64{n.Mean, n.Std}
		}
		return nil
	}
	if n.Low != nil || n.High != nil {
		return [][]float64{n.Low, n.High}
	}
	return nil
}

// Of returns the mode's vectors of statistics. They are nil if the statistics lack them.
func (n *Norm) Of(s *robocache.FeatureStats) (low, high []float64) {
	switch n.Mode {
	case "mean_std":
		return s.Mean, s.Std
	case "min_max":
		return s.Min, s.Max
	case "quantiles":
		return s.Quantiles["q01"], s.Quantiles["q99"]
	case "quantile10":
		return s.Quantiles["q10"], s.Quantiles["q90"]
	}
	return nil, nil
}

// In reports whether statistics have the mode's vectors.
func (n *Norm) In(s *robocache.FeatureStats) bool {
	low, high := n.Of(s)
	return len(low) > 0 && len(low) == len(high)
}
