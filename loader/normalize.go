package loader

import (
	"encoding/json"
)

// Normalize says which keys are normalised and how. One mode for all means: the float features that have statistics, without
// bookkeeping columns and pictures; a key that is named is normalised or refused.
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
			if err := json.Unmarshal(raw, &one); err != nil {
				return misuse("normalize", "a mode, or {mode, clip, mean, std, low, high} for "+key, clip(string(raw)))
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
