package edit

import (
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/tests/capabilities"
)

// The result of an edit has other rows, keys and positions than its sources.
func TestCapabilitiesOfResult(t *testing.T) {
	rules := map[string]capabilities.Rule{
		"GatherRagged": capabilities.Always,
		"LeaseFrames":  capabilities.Clears,
		"Valid":        capabilities.Always,
		"Clocks":       capabilities.Clears,
		"TimesBy":      capabilities.Clears,
		"Message":      capabilities.Clears,
		"Rows":         capabilities.Always,
		"VideoStart":   capabilities.Clears,
		"LimitMemory":  capabilities.Passes,
		"SideStreams":  capabilities.Always,
		"Recording":    capabilities.Clears,
		"Origin":       capabilities.Always,
		"Lacks":        capabilities.Always,
		"Diagnose":     capabilities.Clears,
		"Noticed":      capabilities.Always,
	}
	wrap := func(sources ...robocache.Dataset) robocache.Dataset {
		plan := &Plan{FPS: robocache.Rate{Num: 10, Den: 1}, Sources: make([]Source, len(sources))}
		for i := range sources {
			plan.Episodes = append(plan.Episodes, Episode{Source: i, To: 4})
		}
		v, err := newPlanDataset(t.Context(), plan, sources)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	capabilities.Check(t, rules, func(ds robocache.Dataset) robocache.Dataset { return wrap(ds) })
	// With several sources, none of their capabilities remain.
	rules["LimitMemory"] = capabilities.Clears
	capabilities.Check(
		t,
		rules,
		func(ds robocache.Dataset) robocache.Dataset { return wrap(ds, ds) },
	)
}
