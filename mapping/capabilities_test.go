package mapping_test

import (
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/tests/capabilities"
	"github.com/goatnote-inc/robocache/mapping"
)

// A mapped dataset has other streams and times than its base.
func TestCapabilitiesOfMapping(t *testing.T) {
	capabilities.Check(t, map[string]capabilities.Rule{
		"GatherRagged": capabilities.Overrides,
		"LeaseFrames":  capabilities.Overrides,
		"Valid":        capabilities.Overrides,
		"Clocks":       capabilities.Overrides,
		"TimesBy":      capabilities.Overrides,
		"Message":      capabilities.Overrides,
		"Rows":         capabilities.Clears, // a stream may use the timestamps of another one
		"VideoStart":   capabilities.Clears,
		"LimitMemory":  capabilities.Passes,
		"SideStreams":  capabilities.Passes,
		"Recording":    capabilities.Clears,
		"Origin":       capabilities.Always,
		"Lacks":        capabilities.Overrides,
		"Diagnose":     capabilities.Passes,
		"Noticed":      capabilities.Passes,
	}, func(ds robocache.Dataset) robocache.Dataset {
		m, err := mapping.Parse([]byte("streams:\n  pose: {from: [" + capabilities.State + "]}\n"))
		if err != nil {
			t.Fatal(err)
		}
		over, err := mapping.Over(t.Context(), ds, m)
		if err != nil {
			t.Fatal(err)
		}
		return over
	})
}
