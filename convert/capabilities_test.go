package convert

import (
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/tests/capabilities"
)

func cutWhole(t *testing.T, ds robocache.Dataset) robocache.Dataset {
	t.Helper()
	cut, err := cutEpisodes(t.Context(), ds, &Options{}, &robocache.WriteOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return cut
}

// Segments have other rows and positions than the episodes of their source.
func TestCapabilitiesOfSegments(t *testing.T) {
	capabilities.Check(t, map[string]capabilities.Rule{
		"GatherRagged": capabilities.Overrides,
		"LeaseFrames":  capabilities.Clears,
		"Valid":        capabilities.Overrides,
		"Clocks":       capabilities.Clears,
		"TimesBy":      capabilities.Clears,
		"Message":      capabilities.Passes,
		"Rows":         capabilities.Clears,
		"VideoStart":   capabilities.Clears,
		"LimitMemory":  capabilities.Passes,
		"SideStreams":  capabilities.Passes,
		"Recording":    capabilities.Clears,
		"Origin":       capabilities.Always,
		"Lacks":        capabilities.Overrides,
		"Diagnose":     capabilities.Clears,
		"Noticed":      capabilities.Passes,
	}, func(ds robocache.Dataset) robocache.Dataset { return cutWhole(t, ds) })
}

// TestSegmentsLackStreams checks that drop_invalid keeps track of the streams that an episode
// lacks, for formats that leave them out of that episode.
func TestSegmentsLackStreams(t *testing.T) {
	cut := cutWhole(t, capabilities.New("Lacks"))
	if !robocache.Lacks(cut, 1, capabilities.Extra) || robocache.Lacks(cut, 0, capabilities.Extra) {
		t.Error("want a segment of episode 1 to lack the stream, and none of episode 0")
	}
}
