package quality

import (
	"bytes"
	"errors"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/store"
)

func measureFake(t *testing.T, s *fakeSet, opt Options) *Table {
	t.Helper()
	table, err := Measure(t.Context(), s, opt)
	if err != nil {
		t.Fatal(err)
	}
	return table
}

// codesOf returns the codes of the findings of an episode.
func codesOf(table *Table, episode int64) (codes []string) {
	for _, f := range table.Findings() {
		if f.Where["episode"] == episode {
			codes = append(codes, f.Code)
		}
	}
	return codes
}

// equalTables reports whether two tables have the same values; NaN equals NaN.
func equalTables(t *testing.T, a, b *Table) bool {
	t.Helper()
	var x, y bytes.Buffer
	if err := errors.Join(a.EncodeParquet(&x), b.EncodeParquet(&y)); err != nil {
		t.Fatal(err)
	}
	return bytes.Equal(x.Bytes(), y.Bytes())
}

// Threads, the choice of episodes and shards do not change a value (quality.Q1).
func TestValuesDoNotDependOnTheWork(t *testing.T) {
	s := newFakeSet(40)
	want := measureFake(t, s, Options{})
	if got := measureFake(t, s, Options{Threads: 4}); !equalTables(t, got, want) {
		t.Error("with four threads: another table")
	}
	some := measureFake(t, s, Options{Episodes: []int{7, 3}})
	if !slices.Equal(some.Episodes, []int64{3, 7}) ||
		some.Columns["jerk_rms"][1] != want.Columns["jerk_rms"][7] {
		t.Errorf("episodes %v: other values", some.Episodes)
	}
	scale, err := ScaleOf(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	var shards []*Table
	for k := range 3 {
		var list []int
		for e := k; e < 40; e += 3 {
			list = append(list, e)
		}
		shards = append(
			shards,
			measureFake(t, s, Options{Episodes: list, Scale: scale, IsShard: true}),
		)
	}
	merged, err := Merge(shards)
	if err != nil {
		t.Fatal(err)
	}
	if !equalTables(t, merged, want) {
		t.Error("merged shards: another table")
	}
}

// A run that was interrupted continues with the rows of its parts.
func TestRunIsResumed(t *testing.T) {
	s := newFakeSet(partRows + 20)
	want := measureFake(t, s, Options{})
	parts := filepath.Join(t.TempDir(), "out.parquet.parts")
	const failing = 262 // after the first part, and not in the sample of the scale
	s.fail[failing] = robocache.Temporary("gather", nil, "the network is gone")
	_, err := Measure(t.Context(), s, Options{Parts: parts})
	if !errors.Is(err, robocache.ErrTemporary) {
		t.Fatalf("%v, want ErrTemporary", err)
	}
	saved, err := os.ReadDir(parts)
	if err != nil || len(saved) != 2 {
		t.Fatalf("%d parts (%v), want 2", len(saved), err)
	}
	delete(s.fail, failing)
	s.reads.Store(0)
	got := measureFake(t, s, Options{Parts: parts})
	if !equalTables(t, got, want) {
		t.Error("the resumed table differs")
	}
	if limit := 5 * s.info.Frames / 2; s.reads.Load() > limit { // the scale reads all rows of both
		t.Errorf("%d rows were read of %d", s.reads.Load(), limit)
	}
	if _, err := os.Stat(parts); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the folder of parts stays: %v", err)
	}
}

// storedSet is a fakeSet with files.
type storedSet struct {
	*fakeSet
	files store.Store
}

func (s storedSet) Store() store.Store { return s.files }

// Parts of another state of the files are not used.
func TestPartsOfOtherFilesAreNotUsed(t *testing.T) {
	folder := t.TempDir()
	files, err := store.Open(folder)
	if err != nil {
		t.Fatal(err)
	}
	data := filepath.Join(folder, "data.bin")
	if err := os.WriteFile(data, make([]byte, 8), 0o600); err != nil {
		t.Fatal(err)
	}
	s := storedSet{newFakeSet(300), files}
	const failing = 262
	s.fail[failing] = robocache.Temporary("gather", nil, "the network is gone")
	parts := filepath.Join(folder, "meta", "quality.parquet.parts")
	if _, err := Measure(t.Context(), s, Options{Parts: parts}); err == nil {
		t.Fatal("no error")
	}
	clear(s.fail)
	later := time.Now().Add(time.Minute)
	if err := os.Chtimes(data, later, later); err != nil {
		t.Fatal(err)
	}
	s.reads.Store(0)
	table, err := Measure(t.Context(), s, Options{Parts: parts})
	if err != nil {
		t.Fatal(err)
	}
	if least := 2 * s.info.Frames; s.reads.Load() < least { // state and action
		t.Errorf("%d rows were read, want %d and those of the scale", s.reads.Load(), least)
	}
	other := *table
	other.State += "0"
	if _, err := Merge([]*Table{table, &other}); !errors.Is(err, robocache.ErrMalformed) {
		t.Errorf("shards of two states: %v", err)
	}
}

// A resumed run measures an episode again that could not be measured.
func TestFailedEpisodeIsMeasuredAgain(t *testing.T) {
	s := newFakeSet(300)
	parts := filepath.Join(t.TempDir(), "out.parquet.parts")
	const damaged, failing = 11, 262 // neither is in the sample of the scale
	s.fail[damaged] = robocache.Malformed("gather", nil, "damaged")
	s.fail[failing] = robocache.Temporary("gather", nil, "the network is gone")
	if _, err := Measure(t.Context(), s, Options{Parts: parts}); err == nil {
		t.Fatal("no error")
	}
	clear(s.fail)
	table := measureFake(t, s, Options{Parts: parts})
	if table.Errors[damaged] != "" || !equalTables(t, table, measureFake(t, s, Options{})) {
		t.Errorf("error %q", table.Errors[damaged])
	}
}

// An episode that cannot be read has a row without values and a finding; the others are measured.
func TestUnreadableEpisodeIsARow(t *testing.T) {
	s := newFakeSet(5)
	s.fail[2] = robocache.Malformed("gather", nil, "damaged")
	table := measureFake(t, s, Options{})
	if v := table.Columns["idle"][2]; v == v || table.Errors[2] == "" || table.Errors[1] != "" {
		t.Errorf("idle %v, errors %q", v, table.Errors)
	}
	if got := codesOf(table, 2); !slices.Equal(got, []string{"not-measured"}) {
		t.Errorf("findings %v", got)
	}
	if table.Columns["score"][2] != 0 {
		t.Errorf("score %v, want 0", table.Columns["score"][2])
	}
}

// Values that are not finite are counted also in a channel that never has another value.
func TestNotFiniteIsCounted(t *testing.T) {
	s := newFakeSet(3)
	for e, v := range s.values["observation.state"] {
		for i := range v {
			v[i] = math.NaN()
		}
		clear(s.values["action"][e])
	}
	table := measureFake(t, s, Options{})
	for _, v := range table.Columns["not_finite"] {
		expectNear(t, "not_finite", v, 0.5, 0)
	}
}

// Timestamps that repeat are counted also if most of them do.
func TestRepeatedTimesAreCounted(t *testing.T) {
	c := clock{hasRate: true, times: []int64{0, 0, 0, 0, 5, 5, 5, 4}}
	c.measureSteps()
	x := &recording{clocks: []clock{c}}
	expectNear(t, "duplicated", duplicatedTimesMetric.measure(x), 5, 0)
	expectNear(t, "backward", backwardTimesMetric.measure(x), 1, 0)
	if v := gapsMetric.measure(x); v == v {
		t.Errorf("gaps %v", v)
	}
}

// Bad input gives defined values: NaN values, constant streams, one row, no rows, no roles, no
// clock.
func TestBadInputIsDefined(t *testing.T) {
	nan := newFakeSet(3)
	for i := range nan.values["observation.state"][1] {
		nan.values["observation.state"][1][i] = math.NaN()
	}
	nan.values["action"][2][5] = math.Inf(1)
	constant := newFakeSet(3)
	for e := range 3 {
		clear(constant.values["observation.state"][e])
		clear(constant.values["action"][e])
	}
	short := newFakeSet(4)
	for e, rows := range []int{0, 1, 2, 3} {
		for _, key := range []string{"observation.state", "action"} {
			short.values[key][e] = short.values[key][e][:7*rows]
		}
	}
	timeless := newFakeSet(3)
	timeless.info.FPS = robocache.Rate{}
	equal := newFakeSet(2)
	equal.times[""] = [][]int64{make([]int64, equal.Len(0)), make([]int64, equal.Len(1))}
	bare := newFakeSet(2)
	bare.info.Features[0].Key, bare.info.Features[1].Key = "a", "b"
	bare.values["a"], bare.values["b"] = bare.values["observation.state"], bare.values["action"]
	bare.info.Features[1].Names = nil
	empty := newFakeSet(0)
	for name, s := range map[string]*fakeSet{
		"nan": nan, "constant": constant, "short": short, "timeless": timeless, "equal": equal,
		"bare": bare, "empty": empty,
	} {
		table := measureFake(t, s, Options{})
		for column, values := range table.Columns {
			for i, v := range values {
				if math.IsInf(v, 0) {
					t.Errorf("%s: %s of episode %d is %v", name, column, i, v)
				}
			}
		}
		for e, problem := range table.Errors {
			if problem != "" {
				t.Errorf("%s: episode %d: %s", name, e, problem)
			}
		}
		table.Findings()
		if name == "nan" && !(table.Columns["not_finite"][1] > 0.4) {
			t.Errorf("not_finite %v", table.Columns["not_finite"])
		}
		if name == "timeless" && !table.Timeless {
			t.Error("the rows have no clock, and the table does not state it")
		}
	}
}

// An episode beyond the budget is not measured, and says so.
func TestBudgetBoundsAnEpisode(t *testing.T) {
	table := measureFake(t, newFakeSet(2), Options{Budget: 1000})
	if !strings.Contains(table.Errors[0], "budget") {
		t.Errorf("error %q", table.Errors[0])
	}
}

// The files of all formats have the values, and a Parquet file is read equal.
func TestTableIsWritten(t *testing.T) {
	s := newFakeSet(6)
	want := measureFake(t, s, Options{})
	dir := t.TempDir()
	for _, name := range []string{"t.csv", "t.json", "meta/quality.parquet"} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := want.Write(t.Context(), filepath.Join(dir, name)); err != nil {
			t.Fatal(name, err)
		}
	}
	got, err := Load(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	if !equalTables(t, got, want) || got.Fingerprint != want.Fingerprint ||
		got.SketchStates != 6 || !reflect.DeepEqual(got.Tasks, want.Tasks) {
		t.Error("the table that was read differs")
	}
	if _, err := Load(t.Context(), t.TempDir()); !errors.Is(err, robocache.ErrNotFound) {
		t.Errorf("%v, want ErrNotFound", err)
	}
	if err := want.Write(
		t.Context(),
		filepath.Join(dir, "t.txt"),
	); !errors.Is(
		err,
		robocache.ErrMisuse,
	) {
		t.Errorf("%v, want ErrMisuse", err)
	}
}

// Every metric has a unique name, a summary and a source, and a rule has a code.
func TestMetricsAreDescribed(t *testing.T) {
	seen := map[string]bool{}
	for _, m := range registry {
		if m.Name == "" || m.Summary == "" || m.Source == "" || m.Group == "" || seen[m.Name] {
			t.Errorf("metric %+v", m.Metric)
		}
		seen[m.Name] = true
		if m.rule != nil && (m.rule.code == "" || m.rule.hint == "") {
			t.Errorf("the rule of %s has no code or hint", m.Name)
		}
	}
	if len(registry) < 40 {
		t.Errorf("%d metrics", len(registry))
	}
}

// The page for users names every metric and every code of a finding.
func TestPageNamesEveryMetric(t *testing.T) {
	page, err := os.ReadFile("../docs/quality.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range registry {
		if !bytes.Contains(page, []byte("| `"+m.Name+"` |")) {
			t.Errorf("docs/quality.md lacks %s", m.Name)
		}
		if m.rule != nil && !bytes.Contains(page, []byte("`"+m.rule.code+"`")) {
			t.Errorf("docs/quality.md lacks the code %s", m.rule.code)
		}
	}
}
