package plan

import (
	"slices"
)

// NotDelivered is a stream that cannot be given, and why.
type NotDelivered struct {
	Source int    `json:"source"` // its place in a mixture
	Key    string `json:"key"`
	Reason string `json:"reason"`
}

// Withheld lists the streams that a source declares and cannot give.
func (src *Source) Withheld(number int) []NotDelivered {
	out := slices.Clone(src.left)
	for _, f := range src.Dataset.Info().Findings {
		if f.NotDelivered != "" {
			out = append(out, NotDelivered{Key: f.NotDelivered, Reason: f.Message})
		}
	}
	for i := range out {
		out[i].Source = number
	}
	return out
}
