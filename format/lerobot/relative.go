package lerobot

import (
	"cmp"
	"encoding/json"
	"slices"

	"github.com/goatnote-inc/robocache"
)

// readRelative reads whether info.json states that a feature is relative. "relative" is true, false
// or a list of channels, as our writer writes it. "is_relative", "delta" and "is_delta" are true or
// false, and "absolute" is the opposite. Entries with other values are ignored.
func readRelative(r *declared, f *robocache.Feature) {
	if f.Kind != robocache.KindNumeric || !f.DType.Float() {
		return
	}
	for _, entry := range []struct {
		raw      json.RawMessage
		isList   bool // a list of channels is allowed
		inverted bool
	}{
		{r.Relative, true, false},
		{r.IsRelative, false, false},
		{r.Delta, false, false},
		{r.IsDelta, false, false},
		{r.Absolute, false, true},
	} {
		var relative robocache.Relative
		if len(entry.raw) == 0 {
			continue
		}
		isEmptyList := string(entry.raw) == "[]"
		if !isEmptyList && relative.UnmarshalJSON(entry.raw) != nil {
			continue
		}
		isNamed := len(relative.Channels)+len(relative.Names) > 0
		switch {
		case isNamed && !entry.isList:
			continue
		// "absolute" states the opposite, and an empty list states that no channel is relative.
		case !isNamed && (entry.inverted || isEmptyList):
			relative.None = !relative.None
		}
		if channels, err := relative.Of(f); err == nil {
			f.Relative = channels
			f.RelativeReason = "as " + infoPath + " states"
			return
		}
	}
}

// modalityPart is one entry of modality.json.
type modalityPart struct {
	Start, End *int
	Key        string          `json:"original_key"`
	Absolute   json.RawMessage `json:"absolute"`
	Rotation   json.RawMessage `json:"rotation_type"`
}

// unsummable lists the rotation types of modality.json whose differences are not rotations, so that
// relative values cannot be added up.
var unsummable = []string{"quaternion", "rotation_6d", "matrix"}

// markRelative marks the parts of actions that modality.json states to be relative ("absolute":
// false). If it states only absolute parts, the whole stream is marked as absolute.
func markRelative(info *robocache.Info, parts map[string]modalityPart) {
	stated := map[string][]int{}
	for _, p := range parts {
		var absolute bool
		if json.Unmarshal(p.Absolute, &absolute) != nil {
			continue
		}
		key := cmp.Or(p.Key, "action")
		f := info.Feature(key)
		channels := append([]int{}, stated[key]...)
		for c := *p.Start; c < *p.End && !absolute; c++ {
			channels = append(channels, c)
		}
		stated[key] = channels
		var rotation string
		isNamed := json.Unmarshal(p.Rotation, &rotation) == nil
		if absolute || !isNamed || !slices.Contains(unsummable, rotation) {
			continue
		}
		for c := *p.Start; c < *p.End; c++ {
			f.Unsummable = append(f.Unsummable, c)
		}
		if rotation == "quaternion" && *p.End-*p.Start == 4 {
			f.Rotations = append(
				f.Rotations,
				robocache.Rotation{At: *p.Start, Form: robocache.FormQuat},
			)
		}
	}
	for key, channels := range stated {
		f := info.Feature(key)
		if f.Kind != robocache.KindNumeric || !f.DType.Float() {
			continue
		}
		slices.Sort(channels)
		slices.Sort(f.Unsummable)
		f.Relative = slices.Compact(channels)
		f.RelativeReason = "as " + modalityPath + " states"
	}
}
