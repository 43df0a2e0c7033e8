package mapping_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/mapping"
)

// plant is a dataset with two clocks: rows at 10 Hz, and a stream "imu" on its own clock with known
// values.
type plant struct{ info robocache.Info }

func newPlant() *plant {
	f := func(key, clock string, t robocache.DType, n int) robocache.Feature {
		return robocache.Feature{
			Key:   key,
			Clock: clock,
			Kind:  robocache.KindNumeric,
			DType: t,
			Shape: []int{n},
		}
	}
	note := robocache.Feature{
		Key:   "note",
		Kind:  robocache.KindText,
		DType: robocache.String,
		Shape: []int{1},
	}
	return &plant{
		robocache.Info{
			URI:      "plant",
			Format:   "plant",
			Episodes: 2,
			Frames:   7,
			Clock:    "",
			Features: []robocache.Feature{
				f(
					"arm",
					"",
					robocache.Float32,
					3,
				),
				f("grip", "", robocache.Float32, 1),
				f("count", "", robocache.Int32, 1),
				f("imu", "imu", robocache.Float64, 2),
				f("sent", "imu", robocache.Float64, 1),
				note,
			},
		},
	}
}

func (p *plant) Capabilities() *robocache.Capabilities {
	return &robocache.Capabilities{}
}

func (p *plant) Info() *robocache.Info { return &p.info }
func (p *plant) Len(e int) int         { return 3 + e }
func (p *plant) rows(e int, key string) int {
	if key == "imu" || key == "sent" {
		return 10 + e
	}
	return 3 + e
}

func (p *plant) Episode(_ context.Context, e int) (robocache.Episode, error) {
	return robocache.Episode{Position: e, Index: int64(e), Length: p.Len(e)}, nil
}

func (p *plant) Times(_ context.Context, e int, key string) ([]int64, error) {
	t := make([]int64, p.rows(e, key))
	for i := range t {
		t[i] = int64(i) * 100_000_000
		if key == "imu" || key == "sent" {
			t[i] = int64(i) * 3_000_000
		}
	}
	return t, nil
}

func (p *plant) value(key string, r robocache.Row, i int) float64 {
	if key == "sent" {
		return 1_700_000_000.25 + float64(r.Index)*0.003
	}
	return float64(len(key)*1000+r.Episode*100+r.Index*10+i) / 8
}

func (p *plant) Gather(_ context.Context, key string, rows []robocache.Row, dst []byte) error {
	f := p.info.Feature(key)
	at := 0
	for _, r := range rows {
		for i := range f.Elements() {
			v := p.value(key, r, i)
			switch f.DType {
			case robocache.Float32:
				binary.LittleEndian.PutUint32(dst[at:], math.Float32bits(float32(v)))
			case robocache.Float64:
				binary.LittleEndian.PutUint64(dst[at:], math.Float64bits(v))
			default:
				binary.LittleEndian.PutUint32(dst[at:], uint32(r.Index))
			}
			at += f.DType.Size()
		}
	}
	return nil
}

func (p *plant) Text(_ context.Context, key string, rows []robocache.Row) ([]string, error) {
	out := make([]string, len(rows))
	for i, r := range rows {
		if r.Index > 0 {
			out[i] = []string{"", "pick", "place"}[r.Episode+1]
		}
	}
	return out, nil
}

func (p *plant) Frames(context.Context, string, []robocache.Row, []robocache.FrameRef) error {
	return nil
}
func (p *plant) Stats(context.Context) (robocache.Stats, error) { return nil, nil }
func (p *plant) Close() error                                   { return nil }

func over(t *testing.T, text string) robocache.Dataset {
	t.Helper()
	m, err := mapping.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	ds, err := mapping.Over(context.Background(), newPlant(), m)
	if err != nil {
		t.Fatal(err)
	}
	return ds
}

func floats(t *testing.T, ds robocache.Dataset, key string, rows ...robocache.Row) []float64 {
	t.Helper()
	f := ds.Info().Feature(key)
	if f == nil {
		t.Fatalf("no %s in %v", key, ds.Info().Features)
	}
	b := make([]byte, len(rows)*f.RowBytes())
	if err := ds.Gather(context.Background(), key, rows, b); err != nil {
		t.Fatal(err)
	}
	return robocache.Float64s(nil, f.DType, b)
}

func TestJoinSliceScale(t *testing.T) {
	ds := over(t, `
streams:
  state: {from: [grip, arm], unit: rad, names: [g, x, y, z]}
  tip: {from: [arm, grip], slice: [2, 4], scale: 2}
  renamed: {from: [imu], interpolation: previous}
task: note
`)
	p, r := newPlant(), robocache.Row{Episode: 1, Index: 2}
	if got, want := floats(t, ds, "state", r), []float64{
		p.value("grip", r, 0),
		p.value("arm", r, 0),
		p.value("arm", r, 1),
		p.value("arm", r, 2),
	}; !slices.Equal(
		got,
		want,
	) {
		t.Errorf("state %v, want %v", got, want)
	}
	r0 := robocache.Row{Episode: 0, Index: 0}
	if got, want := floats(t, ds, "tip", r, r0), []float64{
		2 * p.value("arm", r, 2),
		2 * p.value("grip", r, 0),
		2 * p.value("arm", r0, 2),
		2 * p.value("grip", r0, 0),
	}; !slices.Equal(
		got,
		want,
	) {
		t.Errorf("tip %v, want %v", got, want)
	}
	var keys []string
	for _, f := range ds.Info().Features {
		keys = append(keys, f.Key)
	}
	if want := []string{
		"tip",
		"state",
		"count",
		"renamed",
		"sent",
		"note",
	}; !slices.Equal(
		keys,
		want,
	) {
		t.Errorf("keys %v, want %v", keys, want)
	}
	if f := ds.Info().
		Feature("state"); f.Unit != "rad" || string(f.Names) != `["g","x","y","z"]` ||
		f.Shape[0] != 4 {
		t.Errorf("state %+v", f)
	}
	if f := ds.Info().Feature("renamed"); f.Interpolation != "previous" || f.Clock != "imu" {
		t.Errorf("renamed %+v", f)
	}
	if len(ds.Info().Tasks) != 2 || ds.Info().Tasks[1].Text != "place" {
		t.Errorf("tasks %v", ds.Info().Tasks)
	}
	if text, err := ds.Text(context.Background(), "task", []robocache.Row{r, r0}); err != nil ||
		text[0] != "place" || text[1] != "pick" {
		t.Errorf("task %q, %v", text, err)
	}
	if ep, _ := ds.Episode(context.Background(), 1); len(ep.Tasks) != 1 || ep.Tasks[0] != "place" {
		t.Errorf("episode %+v", ep)
	}
}

func TestClocks(t *testing.T) {
	ds := over(t, `
streams:
  imu: {from: [imu], clock: "timestamps:sent", offset_ns: -1700000000000000000}
  late: {from: [arm], offset_ns: 5}
  raw: {from: [sent]}
clock: sent
rest: drop
`)
	ctx := context.Background()
	timestamps, err := ds.Times(ctx, 0, "imu")
	if err != nil || len(timestamps) != 10 || timestamps[0] != 250_000_000 ||
		timestamps[9]-277_000_000 > 300 ||
		timestamps[9] < 276_999_700 {
		t.Errorf("imu %v, %v", timestamps, err) // float64 seconds of 2023 have steps of 238 ns
	}
	if late, _ := ds.Times(ctx, 0, "late"); late[0] != 5 || late[1] != 100_000_005 {
		t.Errorf("late %v", late)
	}
	if ds.Len(1) != 11 || ds.Info().Frames != 21 || ds.Info().Clock != "imu" {
		t.Errorf("anchored: %d rows of %d, clock %q", ds.Len(1), ds.Info().Frames, ds.Info().Clock)
	}
	if own, _ := ds.Times(ctx, 0, ""); own[1] != 3_000_000 {
		t.Errorf("own %v", own)
	}
}

// A clock runs 500 ppm fast. The drift counts from the first timestamp, or from a given moment. The
// offset is added afterwards.
func TestDrift(t *testing.T) {
	ds := over(t, `
streams:
  imu: {from: [imu], drift: 500, offset_ns: 7}
  late: {from: [sent], drift: {ppm: 500, at: -1.0}}
`)
	// 27 ms and 1.027 s × 500/1.0005 ppm
	for key, want := range map[string]int64{
		"imu":  9*3_000_000 + 7 - 13_493,
		"late": 9*3_000_000 - 513_243,
	} {
		got, err := ds.Times(context.Background(), 0, key)
		if err != nil || got[9] != want || ds.Info().Feature(key).Clock != key {
			t.Errorf("%s: %v, want %d at the end, %v", key, got, want, err)
		}
	}
}

// farPlant has timestamps near the limit of valid timestamps, on two clocks.
type farPlant struct{ *plant }

func (p farPlant) Times(ctx context.Context, e int, key string) ([]int64, error) {
	t, err := p.plant.Times(ctx, e, key)
	for i := range t {
		t[i] -= 1<<62 - 2e9
	}
	return t, err
}

func (p farPlant) Capabilities() *robocache.Capabilities {
	return &robocache.Capabilities{Clocks: p.Clocks, TimesBy: p.TimesBy}
}

func (p farPlant) Clocks(string) []string { return []string{"header", "log"} }
func (p farPlant) TimesBy(ctx context.Context, e int, key, _ string) ([]int64, error) {
	return p.Times(ctx, e, key)
}

// If the given moment is so far away that the corrected timestamps are out of range, the error is
// misuse, for every clock of the stream.
func TestFarDrift(t *testing.T) {
	m, err := mapping.Parse(
		[]byte("streams:\n  imu: {from: [imu], drift: {ppm: -90000, at: 4611686018427387903ns}}\n"),
	)
	if err != nil {
		t.Fatal(err)
	}
	ds, err := mapping.Over(t.Context(), farPlant{newPlant()}, m)
	if err != nil {
		t.Fatal(err)
	}
	timesBy := ds.Capabilities().TimesBy
	if timesBy == nil {
		t.Fatal("no clocks")
	}
	_, first := ds.Times(t.Context(), 0, "imu")
	_, second := timesBy(t.Context(), 0, "imu", "log")
	for _, err := range []error{first, second} {
		if !errors.Is(err, robocache.ErrMisuse) ||
			!strings.Contains(err.Error(), "lies too far from the stream's timestamps") ||
			!strings.Contains(err.Error(), "imu") {
			t.Errorf("%v", err)
		}
	}
}

func TestRefusals(t *testing.T) {
	for text, want := range map[string]string{
		"streams: {a: {from: [arm], sclae: 2}}":         "sclae",
		"streams: {a: {from: [arm]}, a: {from: [arm]}}": "already defined",
		"streams: {a: {from: []}}":                      "at least one key",
		"streams: {a: {from: [nothing]}}":               "it has arm",
		"streams: {a: {from: [arm, imu]}}":              "one dtype",
		"streams: {a: {from: [arm, note]}}":             "numeric",
		"streams: {a: {from: [imu], slice: [1, 3]}}":    "at most 2",
		"streams: {a: {from: [imu], slice: [1, 1]}}":    "from < to",
		"streams: {a: {from: [count], scale: 2}}":       "floating-point",
		"streams: {a: {from: [arm], scale: .nan}}":      "",
		"streams: {a: {from: [arm], clock: 'timestamps:sent'}}": "one number a row, on " +
			"the clock of arm",
		"streams: {a: {from: [arm], clock: wall}}":                    "timestamps:<key>",
		"streams: {a: {from: [arm], names: [x]}}":                     "3 of them",
		"streams: {a: {from: [arm], offset_ns: 9223372036854775807}}": "2^62",
		"streams: {a: {from: [arm], drift: 200000}}":                  "parts in a million",
		"streams: {a: {from: [arm], drift: {rate: 1}}}":               "rate",
		"rest: some":   "keep or drop",
		"hz: -3":       "rate",
		"[1, 2]":       "",
		"task: arm":    "a text stream",
		"clock: gone":  "it has arm",
		"streams: 7":   "",
		"a: 1\n---\nb": "more than one",
		"\t":           "",
	} {
		m, err := mapping.Parse([]byte(text))
		if err == nil {
			_, err = mapping.Over(context.Background(), newPlant(), m)
		}
		if !errors.Is(err, robocache.ErrMisuse) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want one that says %q", text, err, want)
		}
	}
}

// TestSuggested is mapping.M6.
func TestSuggested(t *testing.T) {
	p := newPlant()
	p.info.Features[1].Key = "odd: key # \"'\n"
	var b bytes.Buffer
	if err := mapping.Suggest(&b, p); err != nil {
		t.Fatal(err)
	}
	m, err := mapping.Parse(b.Bytes())
	if err != nil {
		t.Fatalf("%v in\n%s", err, b.String())
	}
	ds, err := mapping.Over(context.Background(), p, m)
	if err != nil {
		t.Fatal(err)
	}
	for i, f := range ds.Info().Features {
		if w := p.info.Features[i]; f.Key != w.Key || f.Clock != w.Clock || f.DType != w.DType ||
			!slices.Equal(f.Shape, w.Shape) {
			t.Errorf("stream %d: %+v, want %+v", i, f, w)
		}
	}
}

// TestSuggestedGroups checks that named parts of streams become streams, and that groups remain only
// where a mapping does not change their stream.
func TestSuggestedGroups(t *testing.T) {
	p := newPlant()
	p.info.Groups = []robocache.Group{
		{Kind: "state", Name: "turn", Key: "arm", End: 3, Rotation: "axis_angle"},
		{Kind: "state", Name: "last", Key: "arm", Start: 2, End: 3},
		{Kind: "video", Name: "front", Key: "camera"},
	}
	var b bytes.Buffer
	if err := mapping.Suggest(&b, p); err != nil {
		t.Fatal(err)
	}
	m, err := mapping.Parse(b.Bytes())
	if err != nil {
		t.Fatalf("%v in\n%s", err, b.String())
	}
	ds, err := mapping.Over(context.Background(), p, m)
	if err != nil {
		t.Fatal(err)
	}
	info := ds.Info()
	turn, last := info.Feature("state.turn"), info.Feature("state.last")
	if turn == nil || len(turn.Rotations) != 1 || last == nil || last.Elements() != 1 {
		t.Fatalf("%+v, %+v in\n%s", turn, last, b.String())
	}
	row := robocache.Row{Episode: 1, Index: 2}
	if got, want := floats(t, ds, "state.last", row), p.value("arm", row, 2); got[0] != want {
		t.Errorf("the part: %v, want %v", got, want)
	}
	if info.Group("state", "turn") == nil || info.Group("video", "front") != nil {
		t.Errorf("groups: %+v", info.Groups)
	}
	changed := over(t, "streams: {arm: {from: [grip]}}")
	if info = changed.Info(); len(info.Groups) != 0 {
		t.Errorf("groups of a replaced stream: %+v", info.Groups)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte("streams: {a: {from: [b], slice: [1, 2]}}\nhz: 29.97\n"))
	f.Add([]byte("a: &x [1]\nb: [*x, *x]"))
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := mapping.Parse(b)
		if err == nil {
			_, err = mapping.Over(context.Background(), newPlant(), m)
		}
		if err != nil && !errors.Is(err, robocache.ErrMisuse) &&
			!errors.Is(err, robocache.ErrResourceLimit) &&
			!errors.Is(err, robocache.ErrMalformed) {
			t.Fatal(err)
		}
	})
}

// TestClockByNewName: clock: names a stream by its key in the dataset or in the mapping.
func TestClockByNewName(t *testing.T) {
	for _, name := range []string{"imu", "inertia"} {
		m, err := mapping.Parse([]byte("clock: " + name + "\nstreams: {inertia: {from: [imu]}}"))
		if err != nil {
			t.Fatal(err)
		}
		ds, err := mapping.Over(t.Context(), newPlant(), m)
		if err != nil || ds.Info().Clock != "imu" || ds.Len(1) != 11 {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestClockOfMovedStream checks clock: for a stream whose timestamps the mapping changes. Its new
// name selects the changed timestamps, and its name in the dataset the original ones.
func TestClockOfMovedStream(t *testing.T) {
	for name, want := range map[string]int64{"imu": 3_000_000, "inertia": 3_000_005} {
		ds := over(
			t,
			"clock: "+name+"\n"+
				"streams: {inertia: {from: [imu], offset_ns: 5}, sent: {from: [sent]}}",
		)
		if ds.Len(1) != 11 || ds.Info().Frames != 21 || ds.Info().Clock != name {
			t.Errorf(
				"%s: %d rows of %d, clock %q",
				name,
				ds.Len(1),
				ds.Info().Frames,
				ds.Info().Clock,
			)
		}
		if own, err := ds.Times(t.Context(), 0, ""); err != nil || own[1] != want {
			t.Errorf("%s: %v, want %d at row 1: %v", name, own, want, err)
		}
	}
}

// TestNewNamesOfTimesAndTasks checks that timestamps:<key> and task: accept the new name of a
// stream.
func TestNewNamesOfTimesAndTasks(t *testing.T) {
	ds := over(
		t,
		"task: words\n"+
			"streams:\n"+
			"  when: {from: [sent]}\n"+
			"  words: {from: [note]}\n"+
			"  inertia: {from: [imu], clock: 'timestamps:when'}",
	)
	if times, err := ds.Times(t.Context(), 0, "inertia"); err != nil || len(times) != 10 {
		t.Errorf("%v, %v", times, err)
	}
	if ep, err := ds.Episode(t.Context(), 1); err != nil || len(ep.Tasks) != 1 ||
		ep.Tasks[0] != "place" {
		t.Errorf("%+v, %v", ep, err)
	}
}
