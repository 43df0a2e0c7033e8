package robocache

import (
	"fmt"
	"maps"
	"slices"
)

// SideDropped returns the finding that the samples of streams in recordings/
// (Capabilities.SideStreams) are left out, and why.
func SideDropped(streams map[string]float64, why string) Finding {
	keys := slices.Sorted(maps.Keys(streams))
	return Finding{
		Severity: SeverityWarning,
		Code:     "recordings-dropped",
		Where:    Where{"streams": keys},
		Message: fmt.Sprintf(
			"the samples of %v at their native rates, in recordings/, are left out: %s; "+
				"the rows keep the last one before each",
			keys,
			why,
		),
		Hint: "The folder recordings is a dataset too: " +
			Command("convert SET/recordings DST --to=mcap"),
	}
}
