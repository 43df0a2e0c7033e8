package lerobot

import (
	"cmp"
	"encoding/json"
	"slices"

	"github.com/goatnote-inc/robocache"
)

// readRelative reads whether info.json states that a feature is relative: "relative" with true,
// false or a list of channels, which our writer writes; "is_relative", "delta" and "is_delta" with
// true or false; "absolute" with the opposite. Entries of another meaning are ignored.
func readRelative(r *declared, f *robocache.Feature) {
	if f.Kind != robocache.KindNumeric || !f.DType.Float() {
		return
	}
	for _, entry := range []struct {
		raw      json.RawMessage
		isList   bool // a list of channels is allowed
		inverted bool
	}{{r.Relative, true, false}, {r.IsRelative, false, false}, {r.Delta, false, false}, {r.IsDelta, false, false}, {r.Absolute, false, true}} {
		var relative robocache.Relative
		if len(entry.raw) == 0 ||
			string(entry.raw) != "[]" && relative.UnmarshalJSON(entry.raw) != nil {
			continue
		}
		named := len(relative.Channels)+len(relative.Names) > 0
		switch {
		case named && !entry.isList:
			continue
		case !named && (entry.inverted || string(entry.raw) == "[]"):
			relative.None = !relative.None
		}
		if channels, err := relative.Of(f); err == nil {
			f.Relative, f.RelativeReason = channels, "as "+infoPath+" states"
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

// unsummable are the rotation types of modality.json whose differences are no rotations: relative
// ones do not add up.
var unsummable = []string{"quaternion", "rotation_6d", "matrix"}

// markRelative marks the parts of actions that modality.json states to be relative ("absolute":
// false), or the whole stream as absolute if it states only that.
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
		if absolute || json.Unmarshal(p.Rotation, &rotation) != nil ||
			!slices.Contains(unsummable, rotation) {
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
		f.Relative, f.RelativeReason = slices.Compact(channels), "as "+modalityPath+" states"
	}
}
