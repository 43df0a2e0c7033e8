package rlds

import (
	"slices"
	"strings"
	"unicode"

	"github.com/goatnote-inc/robocache"
)

// deltaSets are data sets of Open X-Embodiment whose `action` is six changes of the end effector's
// pose (position, then rotation to first order) and an absolute gripper, though their features.json
// does not say so.
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

// markRelative marks an action as relative if its description calls it that, or its data set is
// known for it.
func (d *Dataset) markRelative(f *robocache.Feature, l *leaf) {
	n := f.Elements()
	if l.key != "action" || f.Kind != robocache.KindNumeric || f.Ragged() || !f.DType.Float() ||
		n > 7 {
		return
	}
	name := strings.TrimSuffix(strings.ToLower(d.raw.Name), "_converted_externally_to_rlds")
	name = strings.TrimSuffix(name, "_dataset")
	libero := strings.HasPrefix(name, "libero_") // OpenVLA's copies
	switch {
	case describesDelta(l.description):
		f.RelativeReason = "by its description in " + featuresName
	case n == 7 && (slices.Contains(deltaSets, name) || libero):
		f.RelativeReason = "as known of " + d.raw.Name
	default:
		return
	}
	// An error is of channels that are named, and none is.
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
