package options

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/goatnote-inc/robocache"
)

// SampleLimits bounds the samples of an episode by their windows, and by ranges of rows.
type SampleLimits struct {
	// PadBefore and PadAfter are the numbers of rows by which the windows of a sample may leave its
	// episode at the start and at the end. They add samples outside the episode if they are larger
	// than the windows. nil: each row is a sample, whatever its windows.
	PadBefore *int `json:"pad_before,omitempty"`
	PadAfter  *int `json:"pad_after,omitempty"`
	// Segments holds ranges of rows by the index of the episode. Only their rows are samples, and
	// episodes that are not named have none. Windows may leave a segment. nil: all rows.
	Segments Segments `json:"segments,omitempty"`
}

// maxPadding is the maximum of PadBefore and PadAfter.
const maxPadding = MaxSteps

// check rejects a padding that is negative or too large, and segments that overlap.
func (l *SampleLimits) check() error {
	for name, n := range map[string]*int{"pad_before": l.PadBefore, "pad_after": l.PadAfter} {
		if n != nil && (*n < 0 || *n > maxPadding) {
			return Misuse(name, fmt.Sprintf("0 to %d rows", maxPadding), strconv.Itoa(*n))
		}
	}
	for episode, list := range l.Segments {
		end := 0
		for _, s := range list {
			if s[0] < end || s[1] < s[0] {
				return Misuse(fmt.Sprintf("segments of episode %d", episode),
					"ranges [start, end) of rows, ascending and disjoint",
					Clip(fmt.Sprint(list)))
			}
			end = s[1]
		}
	}
	return nil
}

// Segments holds ranges [start, end) of rows by the index of the episode. In JSON an end of null is
// the end of the episode.
type Segments map[int64][][2]int

// UnmarshalJSON reads {"episode": [[start, end], …], …}.
func (s *Segments) UnmarshalJSON(b []byte) error {
	var raw map[string][][2]*int
	if err := json.Unmarshal(b, &raw); err != nil {
		return Misuse("segments", `{"episode": [[start, end], …]}`, Clip(string(b)))
	}
	*s = Segments{}
	for name, list := range raw {
		episode, err := strconv.ParseInt(name, 10, 64)
		if err != nil {
			return Misuse("segments", "indices of episodes", strconv.Quote(name))
		}
		ranges := make([][2]int, len(list))
		for i, r := range list {
			if r[0] == nil {
				return Misuse("segments", "a start for each range of episode "+name, "null")
			}
			ranges[i] = [2]int{*r[0], math.MaxInt}
			if r[1] != nil {
				ranges[i][1] = *r[1]
			}
		}
		(*s)[episode] = ranges
	}
	return nil
}

// MarshalJSON writes the form that UnmarshalJSON reads.
func (s Segments) MarshalJSON() ([]byte, error) {
	out := map[string][][2]any{}
	for episode, list := range s {
		ranges := [][2]any{}
		for _, r := range list {
			to := any(r[1])
			if r[1] == math.MaxInt {
				to = nil
			}
			ranges = append(ranges, [2]any{r[0], to})
		}
		out[strconv.FormatInt(episode, 10)] = ranges
	}
	return json.Marshal(out)
}

// Positions returns the ranges by the position of the episode in the dataset.
func (s Segments) Positions(info *robocache.Info) (map[int][][2]int, error) {
	if s == nil {
		return nil, nil
	}
	out := make(map[int][][2]int, len(s))
	for index, list := range s {
		position, err := info.EpisodePosition(index)
		if err != nil {
			return nil, robocache.At(err, robocache.Where{"option": "segments"})
		}
		out[position] = list
	}
	return out, nil
}

// Beyond selects the value of rows of a window that are outside the episode.
type Beyond string

const (
	BeyondRepeat  Beyond = "repeat"  // the edge row; default
	BeyondZero    Beyond = "zero"    // zeros, which normalization does not change
	BeyondNeutral Beyond = "neutral" // 0 for relative numbers, which hold changes; else the edge row
	BeyondDrop    Beyond = "drop"    // such a sample does not exist
)

var beyondRules = []Beyond{BeyondRepeat, BeyondZero, BeyondNeutral, BeyondDrop}

// BeyondRules holds a rule by key. The key "" applies to all windows without a rule of their own.
// In JSON a text is the rule of all windows.
type BeyondRules map[string]Beyond

// UnmarshalJSON reads a rule, or {key: rule}.
func (r *BeyondRules) UnmarshalJSON(b []byte) error {
	*r = BeyondRules{}
	var all Beyond
	if json.Unmarshal(b, &all) == nil {
		(*r)[""] = all
		return nil
	}
	type plain BeyondRules
	if err := json.Unmarshal(b, (*plain)(r)); err != nil {
		return Misuse("beyond", "a rule, or {key: rule}", Clip(string(b)))
	}
	return nil
}

// MarshalJSON writes the form that UnmarshalJSON reads.
func (r BeyondRules) MarshalJSON() ([]byte, error) {
	if all, isAll := r[""]; isAll && len(r) == 1 {
		return json.Marshal(all)
	}
	return json.Marshal(map[string]Beyond(r))
}

// Of returns the rule of a key.
func (r BeyondRules) Of(key string) Beyond {
	if rule, own := r[key]; own {
		return rule
	}
	if rule, all := r[""]; all {
		return rule
	}
	return BeyondRepeat
}

// check rejects unknown rules.
func (r BeyondRules) check() error {
	for key, rule := range r {
		if !slices.Contains(beyondRules, rule) {
			option := strings.TrimSpace("beyond " + key)
			return Misuse(option, `"repeat", "zero", "neutral" or "drop"`, string(rule))
		}
	}
	return nil
}

// streams returns the keys with a rule of their own that are not vectors.
func (r BeyondRules) streams(vectors Vectors) []string {
	return slices.DeleteFunc(Keys(r), func(key string) bool {
		return key == "" || vectors.Of(key) != nil
	})
}
