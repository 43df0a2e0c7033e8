package align

import (
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/tests/capabilities"
)

// TestCapabilitiesOfView checks that a view does not offer its source's rows, clocks, video files
// and recordings, because its grid has other rows.
func TestCapabilitiesOfView(t *testing.T) {
	capabilities.Check(t, map[string]capabilities.Rule{
		"GatherRagged": capabilities.Overrides,
		"LeaseFrames":  capabilities.Clears,
		"Valid":        capabilities.Clears, // masks are streams of the view
		"Clocks":       capabilities.Clears,
		"TimesBy":      capabilities.Clears,
		"Message":      capabilities.Clears,
		"Rows":         capabilities.Clears,
		"VideoStart":   capabilities.Clears,
		"LimitMemory":  capabilities.Passes,
		"SideStreams":  capabilities.Passes,
		"Recording":    capabilities.Clears,
		"Origin":       capabilities.Always,
		"Lacks":        capabilities.Clears,
		"Diagnose":     capabilities.Passes,
		"Noticed":      capabilities.Passes,
	}, func(ds robocache.Dataset) robocache.Dataset {
		cfg := Config{HZ: robocache.Rate{Num: 20, Den: 1}, Keys: []string{capabilities.State}}
		v, err := View(t.Context(), ds, cfg, ViewOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return v
	})
}
