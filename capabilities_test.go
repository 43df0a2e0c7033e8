package robocache_test

import (
	"context"
	"maps"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/tests/capabilities"
)

// passesAll returns the rules of a wrapper that passes on all capabilities but a recording.
func passesAll() map[string]capabilities.Rule {
	rules := map[string]capabilities.Rule{}
	for _, name := range capabilities.Names() {
		rules[name] = capabilities.Passes
	}
	rules["Recording"], rules["Origin"] = capabilities.Clears, capabilities.Always
	return rules
}

func TestCapabilitiesOfPart(t *testing.T) {
	const format = "capabilities of a part"
	var whole robocache.Dataset
	robocache.Register(robocache.Format{
		Name: format,
		Open: func(context.Context, string, robocache.OpenOptions) (robocache.Dataset, error) {
			return whole, nil
		},
		Detect: func(context.Context, string, robocache.OpenOptions) (bool, error) {
			return false, nil
		},
	})
	rules := passesAll()
	for _, name := range []string{
		"GatherRagged",
		"LeaseFrames", "Valid", "TimesBy", "Rows", "VideoStart", "Lacks", "Diagnose",
	} {
		rules[name] = capabilities.Overrides
	}
	capabilities.Check(t, rules, func(ds robocache.Dataset) robocache.Dataset {
		whole = ds
		part, err := robocache.Open(
			t.Context(),
			t.TempDir(),
			robocache.OpenOptions{Format: format, Split: "train"},
		)
		if err != nil {
			t.Fatal(err)
		}
		return part
	})
}

func TestCapabilitiesOfPadLacking(t *testing.T) {
	rules := passesAll()
	maps.Copy(rules, map[string]capabilities.Rule{
		"GatherRagged": capabilities.Overrides,
		"LeaseFrames":  capabilities.Overrides,
		"Rows":         capabilities.Overrides,
		"Valid":        capabilities.Always,
		"Lacks":        capabilities.Clears,
	})
	capabilities.Check(t, rules, robocache.PadLacking, "Lacks")
}

func TestCapabilitiesOfWithoutUnasked(t *testing.T) {
	capabilities.Check(t, passesAll(), robocache.WithoutUnasked)
}

// TestWrappersKeepOrigin checks that a recorded origin is known behind PadLacking and
// WithoutUnasked.
func TestWrappersKeepOrigin(t *testing.T) {
	ds := capabilities.New("Origin", "Recording", "Lacks")
	for name, w := range map[string]robocache.Dataset{
		"PadLacking": robocache.PadLacking(ds), "WithoutUnasked": robocache.WithoutUnasked(ds),
	} {
		got, err := robocache.OriginOf(t.Context(), w, 1)
		if err != nil || got.File != "recorded" || got.Checksum != "sum" {
			t.Errorf("%s: origin %+v, %v; want the recorded one", name, got, err)
		}
	}
}

// TestWithoutUnaskedKeepsLacks checks that a dataset knows which streams an episode lacks.
func TestWithoutUnaskedKeepsLacks(t *testing.T) {
	w := robocache.WithoutUnasked(capabilities.New("Lacks"))
	if !robocache.Lacks(w, 1, capabilities.Extra) || robocache.Lacks(w, 1, capabilities.State) {
		t.Error(
			"the wrapper does not report the stream that episode 1 lacks, or reports another one",
		)
	}
}

// TestFunctionsWithoutCapabilities checks the answers for a dataset that has no capability.
func TestFunctionsWithoutCapabilities(t *testing.T) {
	ds, rows := capabilities.New(), []robocache.Row{{Index: 1}}
	if _, _, err := robocache.GatherRagged(t.Context(), ds, capabilities.State, rows); err == nil {
		t.Error("GatherRagged returns no error")
	}
	valid := []uint8{0}
	if err := robocache.Valid(t.Context(), ds, capabilities.State, rows, valid); err != nil ||
		valid[0] != 1 {
		t.Errorf("Valid writes %v, %v; want 1", valid, err)
	}
	done, err := robocache.LeaseFrames(
		t.Context(),
		ds,
		"camera",
		rows,
		make([]robocache.FrameRef, 1),
	)
	if done != nil || err != nil {
		t.Errorf("LeaseFrames returns a lease, or %v", err)
	}
	n, err := robocache.RowsIn(
		t.Context(),
		ds,
		0,
		&robocache.Feature{Key: capabilities.State, Clock: "own"},
	)
	if n != 4 || err != nil {
		t.Errorf("RowsIn returns %d, %v; want 4", n, err)
	}
	if robocache.ClocksOf(ds, "") != nil || robocache.Lacks(ds, 1, capabilities.Extra) ||
		len(robocache.Findings(ds)) != 0 {
		t.Error("ClocksOf, Lacks and Findings: want none")
	}
}

// BenchmarkValid measures the call of a capability.
func BenchmarkValid(b *testing.B) {
	ds, rows, valid := capabilities.New("Valid"), []robocache.Row{{}}, []uint8{0}
	b.ReportAllocs()
	for b.Loop() {
		if err := robocache.Valid(b.Context(), ds, capabilities.State, rows, valid); err != nil {
			b.Fatal(err)
		}
	}
}
