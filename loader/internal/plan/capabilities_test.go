package plan

import (
	"maps"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/tests/capabilities"
	"github.com/goatnote-inc/robocache/loader/internal/column"
)

// A mask of numbers that are not finite changes no keys, no times and no images.
func TestCapabilitiesOfMaskedNaN(t *testing.T) {
	rules := map[string]capabilities.Rule{}
	for _, name := range capabilities.Names() {
		rules[name] = capabilities.Passes
	}
	maps.Copy(rules, map[string]capabilities.Rule{
		"Valid":     capabilities.Always,
		"Message":   capabilities.Overrides, // it states the mask
		"Recording": capabilities.Clears,
		"Origin":    capabilities.Always,
	})
	capabilities.Check(t, rules, func(ds robocache.Dataset) robocache.Dataset {
		return maskNaN(ds, column.NewFiniteRows(ds))
	})
}

// A source of a mixture has other keys than its dataset.
func TestCapabilitiesOfRenamed(t *testing.T) {
	capabilities.Check(t, map[string]capabilities.Rule{
		"GatherRagged": capabilities.Overrides,
		"LeaseFrames":  capabilities.Overrides,
		"Valid":        capabilities.Overrides,
		"Clocks":       capabilities.Overrides,
		"TimesBy":      capabilities.Overrides,
		"Message":      capabilities.Overrides,
		"Rows":         capabilities.Overrides,
		"VideoStart":   capabilities.Overrides,
		"LimitMemory":  capabilities.Passes,
		"SideStreams":  capabilities.Overrides,
		"Recording":    capabilities.Clears,
		"Origin":       capabilities.Always,
		"Lacks":        capabilities.Overrides,
		"Diagnose":     capabilities.Passes,
		"Noticed":      capabilities.Passes,
	}, func(ds robocache.Dataset) robocache.Dataset {
		r, err := RenameDataset(ds, map[string]string{capabilities.State: "pose"})
		if err != nil {
			t.Fatal(err)
		}
		return r
	})
}

// TestWrappersDescribeMessages checks that a source of a mixture gives the messages of a stream
// under its new key, and that a mask is part of the description.
func TestWrappersDescribeMessages(t *testing.T) {
	ds := capabilities.New("Message")
	r, err := RenameDataset(ds, map[string]string{capabilities.State: "pose"})
	if err != nil {
		t.Fatal(err)
	}
	masked := maskNaN(r, column.NewFiniteRows(r))
	for _, c := range []struct {
		ds     robocache.Dataset
		key    string
		finite bool
	}{{r, "pose", false}, {masked, "pose", true}} {
		got := robocache.MessageOf(c.ds, c.key)
		if got == nil || got.Topic != "/"+capabilities.State || got.FiniteOnly != c.finite {
			t.Errorf(
				"%+v, want the topic of %s, finite only: %v",
				got,
				capabilities.State,
				c.finite,
			)
		}
	}
}
