package rlds

import (
	"slices"
	"strings"
	"unicode"

	"github.com/goatnote-inc/robocache"
)

// deltaSets lists datasets of Open X-Embodiment whose features.json does not state that their
// action is relative. The action is six changes of the end effector's pose (position, then rotation
// to first order) and an absolute gripper.
var deltaSets = []string{
	"bridge",
	"bridge_orig",
	"bridge_openx",
	"bridge_v2",
	"bridge_data_v2",
	"nyu_rot",
	"stanford_hydra",
	"austin_buds",
	"austin_sailor",
	"austin_sirius",
	"maniskill",
	"utaustin_mutex",
}

// markRelative marks an action as relative if its description states this, or if the dataset is
// known for it.
func (d *Dataset) markRelative(f *robocache.Feature, l *leaf) {
	n := f.Elements()
	if l.key != "action" || f.Kind != robocache.KindNumeric || f.Ragged() || !f.DType.Float() ||
		n > 7 {
		return
	}
	name := strings.TrimSuffix(strings.ToLower(d.info.Name), "_converted_externally_to_rlds")
	name = strings.TrimSuffix(name, "_dataset")
	libero := strings.HasPrefix(name, "libero_") // OpenVLA's copies
	switch {
	case describesDelta(l.description):
		f.RelativeReason = "by its description in " + featuresName
	case n == 7 && (slices.Contains(deltaSets, name) || libero):
		f.RelativeReason = "as known of " + d.info.Name
	default:
		return
	}
	// There is no error, because no channels are named.
	f.Relative, _ = robocache.Relative{}.Of(f)
}

// describesDelta reports whether a description of an action calls it a change of a pose or of
// joints.
func describesDelta(text string) bool {
	words := strings.FieldsFunc(
		strings.ToLower(text),
		func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) },
	)
	if slices.Contains(words, "absolute") ||
		slices.ContainsFunc(words, func(w string) bool { return strings.HasPrefix(w, "quat") }) {
		return false
	}
	return slices.ContainsFunc(
		words,
		func(w string) bool { return w == "delta" || w == "deltas" || w == "relative" },
	)
}
