package options

import (
	"bytes"
	"encoding/json"
	"strconv"

	"github.com/goatnote-inc/robocache"
)

// Normalize says which keys are normalised and how. One mode for all means: every float feature, without bookkeeping columns
// (Feature.Default, and those named timestamp), images and rows of varying length; integers and booleans stay as they are. What is meant is normalised or refused: statistics
// that the dataset lacks are computed at opening where the pass is small, or where Config.ComputeStats asks for it (statistics.go).
type Normalize struct {
	Mode string
	Keys map[string]Norm
}

// Norm is how one key is normalised. Without vectors of its own the dataset's statistics are taken.
type Norm struct {
	Mode string    `json:"mode"`           // "mean_std" | "min_max" | "quantiles" (q01, q99) | "quantile10" (q10, q90)
	Clip bool      `json:"clip,omitempty"` // to [-1, 1]; not for mean_std
	Mean []float64 `json:"mean,omitempty"`
	Std  []float64 `json:"std,omitempty"`
	Low  []float64 `json:"low,omitempty"` // min, q01 or q10
	High []float64 `json:"high,omitempty"`
}

// IsZero lets JSON leave it out.
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
			dec.DisallowUnknownFields() // "means" passed over would be the dataset's own statistics, silently
			if err := dec.Decode(&one); err != nil {
				return Misuse("normalize", "a mode, or {mode, clip, mean, std, low, high} for "+key, Clip(string(raw)))
			}
		}
		n.Keys[key] = one
		return nil
	})
}

// MarshalJSON writes what UnmarshalJSON reads.
func (n Normalize) MarshalJSON() ([]byte, error) {
	if n.Keys != nil {
		return json.Marshal(n.Keys)
	}
	return json.Marshal(n.Mode)
}

// Check refuses modes that there are not, whether or not a column would come to use them.
func (n *Normalize) Check() error {
	known := func(mode string) bool {
		return mode == "mean_std" || mode == "min_max" || mode == "quantiles" || mode == "quantile10"
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

// Own gives the vectors that the configuration brings.
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

// Of finds the mode's vectors in statistics; nil where they are not there.
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

// In says whether they are there.
func (n *Norm) In(s *robocache.FeatureStats) bool {
	low, high := n.Of(s)
	return len(low) > 0 && len(low) == len(high)
}
