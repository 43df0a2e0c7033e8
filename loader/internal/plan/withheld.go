package plan

import (
	"slices"
)

// NotDelivered names a stream that cannot be delivered and the reason.
type NotDelivered struct {
	Source int    `json:"source"` // position in the mixture
	Key    string `json:"key"`
	Reason string `json:"reason"`
}

// Withheld returns the streams that a source declares and cannot deliver. number is the source's
// position in the mixture.
func (src *Source) Withheld(number int) []NotDelivered {
	out := slices.Clone(src.undelivered)
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
