package align

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"sort"
	"strings"
	"testing"

	"github.com/goatnote-inc/robocache"
)

// fake is one episode whose streams have their own clocks. Numeric values are functions of time, so
// that a test can compute the expected aligned row.
type fake struct {
	info    robocache.Info
	clocks  map[string][]int64
	gathers int
}

func newFake() *fake {
	hz := func(r int64, t0, t1 int64) []int64 {
		return Uniform(t0, t1, robocache.Rate{
			Num: r,
			Den: 1,
		})
	}
	num := func(key string, d robocache.DType, shape ...int) robocache.Feature {
		return robocache.Feature{Key: key, Kind: robocache.KindNumeric, DType: d, Shape: shape}
	}
	return &fake{
		info: robocache.Info{Episodes: 1, Features: []robocache.Feature{
			num(
				"joints",
				robocache.Float32,
				2,
			),
			num("force", robocache.Float64, 3),
			num("gripper", robocache.Bool, 1),
			num("stage", robocache.Int64, 1),
			num("ticks", robocache.Int32, 1),
			{
				Key:   "camera",
				Kind:  robocache.KindVideo,
				DType: robocache.Uint8,
				Shape: []int{4, 4, 3},
			},
			{Key: "words", Kind: robocache.KindText, DType: robocache.String, Shape: []int{1}},
			{
				Key:     "index",
				Kind:    robocache.KindNumeric,
				DType:   robocache.Int64,
				Shape:   []int{1},
				Default: true,
			},
		}},
		clocks: map[string][]int64{
			"joints": hz(100, 0, 1e9),
			"force":  hz(333, 100e6, 900e6),
			"camera": hz(30, -200e6, 2e9),
			"":       hz(30, 0, 2e9),
		},
	}
}

func (f *fake) Capabilities() *robocache.Capabilities {
	return &robocache.Capabilities{}
}

func (f *fake) Info() *robocache.Info { return &f.info }
func (f *fake) Len(int) int           { return len(f.clocks[""]) }
func (f *fake) Close() error          { return nil }
func (f *fake) Episode(context.Context, int) (robocache.Episode, error) {
	return robocache.Episode{}, nil
}
func (f *fake) Stats(context.Context) (robocache.Stats, error) { return nil, nil }
func (f *fake) Times(_ context.Context, _ int, key string) ([]int64, error) {
	if c, ok := f.clocks[key]; ok {
		return slices.Clone(c), nil
	}
	return slices.Clone(f.clocks[""]), nil
}

// value returns the value of a channel at a time. It is exactly linear in time, so that linear
// alignment reproduces it.
func value(t int64, channel int) float64 { return float64(t)*1e-9*8 + float64(channel) }

func (f *fake) Gather(_ context.Context, key string, rows []robocache.Row, dst []byte) error {
	f.gathers += len(rows)
	ft := f.info.Feature(key)
	clock, _ := f.Times(context.Background(), 0, key)
	if len(dst) != len(rows)*ft.RowBytes() {
		return fmt.Errorf("%d bytes for %d rows", len(dst), len(rows))
	}
	w := dst[:0]
	for _, r := range rows {
		for c := range ft.Elements() {
			v := value(clock[r.Index], c)
			switch ft.DType {
			case robocache.Float32:
				w = binary.LittleEndian.AppendUint32(w, math.Float32bits(float32(v)))
			case robocache.Float64:
				w = binary.LittleEndian.AppendUint64(w, math.Float64bits(v))
			case robocache.Int64:
				w = binary.LittleEndian.AppendUint64(w, uint64(r.Index))
			case robocache.Int32:
				w = binary.LittleEndian.AppendUint32(w, uint32(r.Index))
			case robocache.Bool:
				w = append(w, byte(r.Index&1))
			}
		}
	}
	return nil
}

func (f *fake) Text(_ context.Context, key string, rows []robocache.Row) ([]string, error) {
	var out []string
	for _, r := range rows {
		out = append(out, fmt.Sprintf("%s %d", key, r.Index))
	}
	return out, nil
}

func (f *fake) Frames(
	_ context.Context,
	_ string,
	rows []robocache.Row,
	out []robocache.FrameRef,
) error {
	for i, r := range rows {
		out[i] = robocache.FrameRef{Path: "v.mp4", Ordinal: r.Index, Missing: r.Index == 20}
	}
	return nil
}

func mustConfig(t *testing.T, text string) Config {
	t.Helper()
	c, err := ParseConfig([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestEpisode(t *testing.T) {
	ds := newFake()
	a, err := Episode(
		context.Background(),
		ds,
		0,
		mustConfig(
			t,
			`{"hz": 50, "keys": ["joints","force","gripper","stage","camera","words","task"], "edge": {"*": "clamp", "words": "mask"}}`,
		),
	)
	if err != nil {
		t.Fatal(err)
	}
	// The intersection is the extent of force: 0.1 … 0.9 s. Its last timestamp is 100e6 + 266
	// periods of 333 Hz.
	last := 100_000_000 + nanos(robocache.Rate{Num: 333, Den: 1}, 266)
	if want := Uniform(100e6, last, robocache.Rate{Num: 50, Den: 1}); !slices.Equal(a.Times, want) {
		t.Fatalf(
			"%d times from %d to %d, want %d",
			len(a.Times),
			a.Times[0],
			a.Times[len(a.Times)-1],
			len(want),
		)
	}
	for _, c := range []struct {
		key  string
		mode Mode
	}{
		{"joints", Linear},
		{"force", Linear},
		{"gripper", Previous},
		{"stage", Previous},
		{"camera", Nearest},
		{"words", Previous},
		{"task", Previous},
	} {
		if s := a.Stream(c.key); s == nil || s.Mode != c.mode || len(s.Valid) != len(a.Times) ||
			slices.Contains(s.Valid, 0) && c.key != "camera" {
			t.Errorf("%s: %+v", c.key, s)
		}
	}
	j := a.Stream("joints")
	f := a.Stream("force")
	st := a.Stream("stage")
	cam := a.Stream("camera")
	w := a.Stream("words")
	rows, camera := ds.clocks[""], ds.clocks["camera"]
	for i, at := range a.Times {
		for c := range 2 {
			if v := math.Float32frombits(
				binary.LittleEndian.Uint32(j.Data[8*i+4*c:]),
			); math.Abs(
				float64(v)-value(at, c),
			) > 1e-6 {
				t.Fatalf("joints %d at %d: %v, want %v", c, at, v, value(at, c))
			}
		}
		for c := range 3 {
			if v := math.Float64frombits(
				binary.LittleEndian.Uint64(f.Data[24*i+8*c:]),
			); math.Abs(
				v-value(at, c),
			) > 1e-12 {
				t.Fatalf("force %d at %d: %v, want %v", c, at, v, value(at, c))
			}
		}
		k := sort.Search(len(rows), func(i int) bool { return rows[i] > at }) - 1
		if v := int(binary.LittleEndian.Uint64(st.Data[8*i:])); v != k ||
			w.Text[i] != fmt.Sprintf("words %d", k) {
			t.Fatalf("stage at %d: %d and %q, want %d", at, v, w.Text[i], k)
		}
		r := int(cam.Rows[i])
		for n := range camera {
			if d := abs(camera[n] - at); d < abs(camera[r]-at) {
				t.Fatalf("camera at %d: row %d, but row %d is nearer", at, r, n)
			}
		}
		if (r == 20) == (cam.Valid[i] == 1) {
			t.Fatalf("camera row %d: valid %d, and row 20 is missing", r, cam.Valid[i])
		}
	}
}

func abs(x int64) int64 { return max(x, -x) }

// TestPlansAreShared covers align.A1: streams on one clock with the same options share one plan.
func TestPlansAreShared(t *testing.T) {
	ds := newFake()
	a := aligner{
		ctx:        context.Background(),
		ds:         ds,
		budgetLeft: 1 << 20,
		cfg: mustConfig(
			t,
			`{"hz": 10, "keys": ["stage", "gripper", "words", "ticks", "camera"], "modes": {"ticks": "next"}}`,
		),
	}
	if _, err := a.alignEpisode(); err != nil {
		t.Fatal(err)
	}
	if len(a.clocks) != 2 || len(a.plans) != 3 {
		t.Errorf(
			"%d clocks and %d plans, want 2 and 3 (previous, next, and the camera's)",
			len(a.clocks),
			len(a.plans),
		)
	}
}

// TestEpisodeTimeline checks extents, explicit times, offsets, and masks outside the data.
func TestEpisodeTimeline(t *testing.T) {
	ds := newFake()
	ctx := context.Background()
	span := func(text string) *Aligned {
		t.Helper()
		a, err := Episode(ctx, ds, 0, mustConfig(t, text))
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	if a := span(`{"hz": 10, "keys": ["joints", "camera"], "extent": "union"}`); a.Times[0] !=
		-200e6 || a.Times[len(a.Times)-1] != 2000e6 {
		t.Errorf("union: %v", a.Times)
	}
	if a := span(`{"hz": 10, "keys": ["joints", "camera"], "extent": "force"}`); a.Times[0] !=
		100e6 || len(a.Times) != 8 {
		t.Errorf("a stream that is not selected gives the extent: %v", a.Times)
	}
	a := span(
		`{"times_ns": [500000000, 5000000000, -1000000000, 250000000], "keys": ["joints", "camera", "words"], "edge": "mask", "offset": {"joints": 0.25}}`,
	)
	if !slices.Equal(a.Times, []int64{5e8, 5e9, -1e9, 25e7}) {
		t.Fatalf("times %v", a.Times)
	}
	for _, s := range a.Streams {
		if !slices.Equal(s.Valid, []uint8{1, 0, 0, 1}) {
			t.Errorf("%s: valid %v", s.Key, s.Valid)
		}
	}
	j := a.Stream("joints").Data
	// at 0.5 s it shows the value recorded at 0.25 s: 8·0.25
	if v := math.Float32frombits(binary.LittleEndian.Uint32(j)); v != 2 {
		t.Errorf("offset: %v", v)
	}
	if !bytes.Equal(j[8:24], make([]byte, 16)) || a.Stream("camera").Rows[1] != -1 ||
		a.Stream("words").Text[2] != "" {
		t.Errorf(
			"masked rows are not empty: %v %v %q",
			j[8:24],
			a.Stream("camera").Rows,
			a.Stream("words").Text,
		)
	}
	// Only the necessary samples are read.
	ds.gathers = 0
	span(`{"times_ns": [500000000, 520000000], "keys": ["joints"]}`)
	if ds.gathers > 3 {
		t.Errorf("%d rows were gathered for 3", ds.gathers)
	}
	if a := span(
		`{"hz": 10, "keys": ["ticks"], "modes": {"ticks": "mean"}, "dtypes": {"ticks": "float32"}}`,
	); a.Streams[0].DType != robocache.Float32 ||
		len(a.Streams[0].Data) != 4*len(a.Times) {
		t.Errorf("integers into float32: %+v", a.Streams[0])
	}
	// All streams except the bookkeeping ones.
	if a := span(`{"hz": 10}`); len(a.Streams) != 7 || a.Stream("index") != nil {
		t.Errorf("%d streams", len(a.Streams))
	}
	empty := newFake()
	empty.clocks["joints"] = nil
	if a, err := Episode(ctx, empty, 0,
		mustConfig(t, `{"times_ns": [1], "keys": ["joints"]}`)); err != nil ||
		a.Streams[0].Valid[0] != 0 || len(a.Streams[0].Data) != 8 {
		t.Errorf("a stream without samples: %v", err)
	}
	if a, err := Episode(ctx, empty, 0,
		mustConfig(t, `{"hz": 10, "keys": ["joints", "camera"]}`)); err != nil || len(a.Times) !=
		0 {
		t.Errorf("an empty intersection: %v", err)
	}
}

func TestEpisodeErrors(t *testing.T) {
	ds := newFake()
	ds.clocks["force"][5] = 0
	for _, c := range []struct {
		config string
		ep     int
		class  error
		phrase string
	}{
		{
			`{"hz": 10, "keys": ["words"], "modes": {"words": "linear"}}`,
			0,
			robocache.ErrMisuse,
			"text stream",
		},
		{
			`{"hz": 10, "keys": ["gripper"], "modes": {"gripper": "linear"}}`,
			0,
			robocache.ErrMisuse,
			"boolean stream",
		},
		{
			`{"hz": 10, "keys": ["camera"], "modes": {"camera": "mean"}}`,
			0,
			robocache.ErrMisuse,
			"video stream",
		},
		{
			`{"hz": 10, "keys": ["stage"], "modes": {"stage": "linear"}}`,
			0,
			robocache.ErrMisuse,
			"integers",
		},
		{
			`{"hz": 10, "keys": ["words"], "dtypes": {"words": "float32"}}`,
			0,
			robocache.ErrMisuse,
			"numeric",
		},
		{
			`{"hz": 10, "keys": ["force"]}`,
			0,
			robocache.ErrMalformed,
			"timestamps must not decrease",
		},
		{`{"hz": 10, "keys": ["joint"]}`, 0, robocache.ErrMisuse, "did you mean joints"},
		{
			`{"hz": 10, "keys": ["joints"], "max_gap": {"jonts": 1}}`,
			0,
			robocache.ErrMisuse,
			"did you mean joints",
		},
		{
			`{"hz": 10, "keys": ["joints"], "clock": {"joints": "log"}}`,
			0,
			robocache.ErrUnsupported,
			"clock",
		},
		{`{"keys": ["joints"]}`, 0, robocache.ErrMisuse, "either hz or times"},
		{`{"hz": 10, "times_ns": [1]}`, 0, robocache.ErrMisuse, "either hz or times"},
		{`{"times_ns": [1], "extent": "union"}`, 0, robocache.ErrMisuse, "extent"},
		{
			`{"hz": 10, "keys": ["joints"], "extent": "unoin"}`,
			0,
			robocache.ErrMisuse,
			"unknown extent",
		},
		{`{"hz": 10, "keys": ["joints"]}`, 1, robocache.ErrNotFound, "episode"},
		{
			`{"hz": 10, "keys": ["joints"], "memory_budget": 100}`,
			0,
			robocache.ErrResourceLimit,
			"budget",
		},
		{`{"hz": 1000000000, "keys": ["joints"]}`, 0, robocache.ErrResourceLimit, "budget"},
		{
			`{"times_ns": [9000000000], "keys": ["joints"], "edge": "error"}`,
			0,
			robocache.ErrMisuse,
			"outside the source range",
		},
		{
			`{"times_ns": [1], "keys": ["joints"], "modes": {"joints": "mean"}}`,
			0,
			robocache.ErrMisuse,
			"window",
		},
		{
			`{"times_ns": [1000000], "keys": ["joints"], "edge": "error", "max_gap": 0.009}`,
			0,
			robocache.ErrMalformed,
			"gap exceeds max_gap",
		},
	} {
		_, err := Episode(context.Background(), ds, c.ep, mustConfig(t, c.config))
		if !errors.Is(err, c.class) || !strings.Contains(err.Error(), c.phrase) {
			t.Errorf("%s: %v", c.config, err)
		}
	}
	for _, c := range []struct{ text, hint string }{
		{`{"hz": 10, "max_gpa": 1}`, "max_gap"},
		{`{"edge": "clmap"}`, "clamp"},
		{`{"modes": {"a": "lerp"}}`, "linear"},
		{`{"times_ns": ["x"]}`, ""},
		{`{"max_gap": 1e300}`, "seconds as a number"},
		{`{"max_gap": 50000000}`, "as nanoseconds 50 ms"},
		{`{"latency": {"a": "0.1"}}`, "with a unit"},
		{`nonsense`, ""},
		{`{"hz": 10}, "edge": "mask"}`, "after its object"},
	} {
		if _, err := ParseConfig([]byte(c.text)); !errors.Is(err, robocache.ErrMisuse) ||
			!strings.Contains(err.Error(), c.hint) {
			t.Errorf("%s: %v", c.text, err)
		}
	}
}

// TestConfigJSON checks durations in seconds and with units, a value for all streams or one per
// stream, and encoding.
func TestConfigJSON(t *testing.T) {
	c := mustConfig(
		t,
		`{"keys": ["a"], "hz": "30000/1001", "extent": "union", "modes": {"q": "slerp"}, "edge": {"*": "mask", "a": "error"}, "max_gap": 0.05, "offset": {"a": -1.5e-3, "b": 7}, "latency": {"a": "250us", "b": "1.5 s"}, "quats": {"q": [[3, 4, 5, 6]]}, "dtypes": {"a": "float32"}}`,
	)
	if c.HZ != (robocache.Rate{Num: 30000, Den: 1001}) || c.MaxGap.For("x") != 50_000_000 ||
		c.Offset["a"] != -1_500_000 ||
		c.Offset["b"] != 7e9 ||
		c.Latency["a"].Fixed != 250_000 ||
		c.Latency["b"].Fixed != 15e8 ||
		c.Edge.For("a") != EdgeError ||
		c.Edge.For("b") != EdgeMask ||
		c.Modes["q"] != Slerp {
		t.Errorf("%+v", c)
	}
	b, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	if again := mustConfig(t, string(b)); !reflect.DeepEqual(c, again) {
		t.Errorf("%s\n%+v\n%+v", b, c, again)
	}
	if b, _ := json.Marshal(Config{}); string(b) != "{}" {
		t.Errorf("the zero configuration is %s", b)
	}
	if c := mustConfig(t,
		`{"times_ns": [1760000000000000001, 9007199254740993, 500000000]}`); !slices.Equal(c.Times,
		[]int64{1760000000000000001, 9007199254740993, 5e8}) {
		t.Errorf("times %v", c.Times)
	}
}

// FuzzParseConfig checks that any bytes give a configuration or Misuse, and that a configuration
// survives a round trip.
func FuzzParseConfig(f *testing.F) {
	f.Add([]byte(`{"hz": 30, "edge": {"*": "mask"}, "max_gap": 0.1}`))
	f.Add([]byte(`{"times_ns": [1, 2500000000, 3], "quats": {"q": [[0, 1, 2, 3]]}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := ParseConfig(b)
		if err != nil {
			if !errors.Is(err, robocache.ErrMisuse) {
				t.Fatal(err)
			}
			return
		}
		out, err := json.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := ParseConfig(out); err != nil {
			t.Fatalf("%s: %v", out, err)
		}
		c.Budget = 1 << 20 // a grid of 1 MHz is legal, but takes seconds
		_, _ = Episode(context.Background(), newFake(), 0, c)
	})
}
