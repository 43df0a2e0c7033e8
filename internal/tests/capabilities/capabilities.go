// Package capabilities helps to test wrappers of datasets. It has a dataset with every capability,
// and a check of the capabilities that a wrapper passes on.
package capabilities

import (
	"context"
	"maps"
	"reflect"
	"slices"
	"testing"

	"github.com/goatnote-inc/robocache"
)

// Rule describes how a wrapper treats a capability of its source.
type Rule string

const (
	Passes    Rule = "passes"    // the wrapper has the source's function
	Overrides Rule = "overrides" // the wrapper has its own function if the source has one
	// the wrapper has its own function, whether the source has one or not
	Always Rule = "always"
	Clears Rule = "clears" // the wrapper lacks the capability
)

// Keys of the dataset's streams, both float32 of shape [1]. Episode 1 lacks Extra, which is
// required only if requested.
const (
	State = "observation.state"
	Extra = "extra"
)

// Check checks that the wrapper made by wrap follows rules, which must have an entry for each
// capability. It wraps one dataset with every capability, and one with only those in needs.
func Check(
	t *testing.T,
	rules map[string]Rule,
	wrap func(robocache.Dataset) robocache.Dataset,
	needs ...string,
) {
	t.Helper()
	names := Names()
	if ruled := slices.Sorted(maps.Keys(rules)); !slices.Equal(ruled,
		slices.Sorted(slices.Values(names))) {
		t.Fatalf("rules for %v, want for each of %v", ruled, names)
	}
	for _, has := range [][]string{names, needs} {
		source := New(has...)
		w := wrap(source)
		if w == source {
			t.Fatal("wrap returns the dataset itself")
		}
		if first, second := w.Capabilities(), w.Capabilities(); first != second {
			t.Error("Capabilities returns another struct at each call")
		}
		for _, name := range names {
			own, wrapped := pointer(w, name), pointer(source, name)
			got := Overrides
			switch {
			case own == 0:
				got = Clears
			case own == wrapped:
				got = Passes
			case wrapped == 0:
				got = Always
			}
			want := rules[name]
			if wrapped == 0 && want != Always {
				want = Clears
			} else if wrapped != 0 && want == Always {
				want = Overrides
			}
			if got != want {
				t.Errorf("%s of a dataset with %v: %s, want %s", name, has, got, want)
			}
		}
	}
}

// Names returns the names of all capabilities.
func Names() (names []string) {
	fields := reflect.TypeFor[robocache.Capabilities]()
	for i := range fields.NumField() {
		names = append(names, fields.Field(i).Name)
	}
	return names
}

// pointer returns the address of the function of a capability, or 0 if the dataset lacks it.
func pointer(ds robocache.Dataset, name string) uintptr {
	return reflect.ValueOf(ds.Capabilities()).Elem().FieldByName(name).Pointer()
}

// New returns a dataset of two episodes of four rows at 10 Hz, with the named capabilities.
func New(names ...string) robocache.Dataset {
	d := &dataset{info: robocache.Info{
		URI:      "capabilities",
		Format:   "capabilities",
		FPS:      robocache.Rate{Num: 10, Den: 1},
		Episodes: 2,
		Frames:   8,
		Splits:   map[string]string{"train": "1:2"},
	}}
	for _, key := range []string{State, Extra} {
		d.info.Features = append(d.info.Features, robocache.Feature{
			Key:       key,
			Kind:      robocache.KindNumeric,
			DType:     robocache.Float32,
			Shape:     []int{1},
			OnlyAsked: key == Extra,
		})
	}
	all := robocache.Capabilities{
		GatherRagged: d.gatherRagged,
		LeaseFrames:  d.leaseFrames,
		Valid:        d.valid,
		Clocks:       d.clocks,
		TimesBy:      d.timesBy,
		Message:      d.message,
		Rows:         d.rows,
		VideoStart:   d.videoStart,
		LimitMemory:  d.limitMemory,
		SideStreams:  d.sideStreams,
		Recording:    d.recording,
		Origin:       d.origin,
		Lacks:        d.lacks,
		Diagnose:     d.diagnose,
		Noticed:      d.noticed,
	}
	for _, name := range names {
		field := reflect.ValueOf(&d.offered).Elem().FieldByName(name)
		field.Set(reflect.ValueOf(all).FieldByName(name))
	}
	return d
}

type dataset struct {
	info    robocache.Info
	offered robocache.Capabilities
}

func (d *dataset) Info() *robocache.Info                          { return &d.info }
func (d *dataset) Capabilities() *robocache.Capabilities          { return &d.offered }
func (d *dataset) Len(int) int                                    { return 4 }
func (d *dataset) Close() error                                   { return nil }
func (d *dataset) Stats(context.Context) (robocache.Stats, error) { return nil, nil }
func (d *dataset) clocks(string) []string                         { return nil }
func (d *dataset) limitMemory(int64)                              {}
func (d *dataset) sideStreams() map[string]float64                { return nil }
func (d *dataset) recording(int) string                           { return "recording" }
func (d *dataset) noticed() []robocache.Finding                   { return nil }
func (d *dataset) rows(context.Context, int, string) (int, error) { return 4, nil }

// message returns a source whose topic is the key.
func (d *dataset) message(key string) *robocache.MessageSource {
	return &robocache.MessageSource{Topic: "/" + key}
}

func (d *dataset) lacks(
	episode int,
	key string,
) bool {
	return episode == 1 && key == Extra
}

func (d *dataset) Episode(_ context.Context, episode int) (robocache.Episode, error) {
	return robocache.Episode{Position: episode, Index: int64(episode), Length: 4}, nil
}

func (d *dataset) Times(context.Context, int, string) ([]int64, error) {
	return []int64{0, 1e8, 2e8, 3e8}, nil
}

func (d *dataset) Gather(_ context.Context, _ string, _ []robocache.Row, dst []byte) error {
	clear(dst)
	return nil
}

func (d *dataset) Text(_ context.Context, _ string, rows []robocache.Row) ([]string, error) {
	return make([]string, len(rows)), nil
}

func (d *dataset) Frames(context.Context, string, []robocache.Row, []robocache.FrameRef) error {
	return nil
}

func (d *dataset) gatherRagged(context.Context, string, []robocache.Row) ([]byte, []int, error) {
	return nil, nil, nil
}

func (d *dataset) leaseFrames(
	context.Context, string, []robocache.Row, []robocache.FrameRef,
) (func(), error) {
	return nil, nil
}

func (d *dataset) valid(_ context.Context, _ string, _ []robocache.Row, valid []uint8) error {
	for i := range valid {
		valid[i] = 1
	}
	return nil
}

func (d *dataset) timesBy(context.Context, int, string, string) ([]int64, error) { return nil, nil }

func (d *dataset) videoStart(
	context.Context,
	int,
	string,
) (int64, bool, error) {
	return 0, false, nil
}

func (d *dataset) origin(context.Context, int) (*robocache.Origin, error) {
	return &robocache.Origin{Dataset: "elsewhere", File: "recorded", Checksum: "sum"}, nil
}

func (d *dataset) diagnose(
	context.Context,
	robocache.DiagnoseOptions,
) ([]robocache.Finding, error) {
	return nil, nil
}
