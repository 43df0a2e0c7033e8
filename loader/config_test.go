package loader

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/align"
	"github.com/goatnote-inc/robocache/loader/internal/column"
	"github.com/goatnote-inc/robocache/loader/options"
)

func TestKeyOrderAndDTypes(t *testing.T) {
	f := newFake(10)
	d := deltas("action", []float64{0, 0.1}, "cam", []float64{0}, "count", []float64{0})
	for compat, want := range map[string]string{
		"": "cam uint8 [1 3 4 6]; observation.state float32 [3]; action float64 [2 2]; " +
			"count int16 [1]; done bool []; label string []; language_events json []; index " +
			"int64 []; action_is_pad bool [2]; cam_is_pad bool [1]; count_is_pad bool [1]; task " +
			"string []",
		"lerobot": "cam float32 [3 4 6]; observation.state float32 [3]; action float32 [2 2]; " +
			"count int64 [1]; done bool []; label string []; language_events json []; index " +
			"int64 []; action_is_pad bool [2]; cam_is_pad bool [1]; count_is_pad bool [1]; task " +
			"string []",
	} {
		m, err := NewMap(
			bg,
			f,
			options.Config{Windows: options.Windows{Compat: options.Compat(compat), Deltas: d}},
		)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, x := range m.Fields() {
			got = append(got, fmt.Sprint(x.Key, " ", x.DType, " ", x.Shape))
		}
		if g := strings.Join(got, "; "); g != want {
			t.Errorf("compat %q:\n got %s\nwant %s", compat, g, want)
		}
		m.Close()
	}
}

func TestCasts(t *testing.T) {
	f := newFake(20)
	m, err := NewMap(
		bg,
		f,
		options.Config{
			Windows: options.Windows{Compat: "lerobot", Keys: []string{"action", "count"}},
		},
	)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	b, err := m.Items(bg, []int64{3, 19, 3})
	if err != nil {
		t.Fatal(err)
	}
	a, c := column.Floats32(b.Tensor("action").Data), column.AsSlice[int64](b.Tensor("count").Data)
	if a[0] != float32(float64(3)+0.1) || a[4] != a[0] || c[1] != 19 {
		t.Errorf("%v %v", a, c)
	}
	b.Release()
	if _, err := m.Items(bg, []int64{20}); !errors.Is(err, robocache.ErrMisuse) {
		t.Errorf("an index past the end gives %v", err)
	}
	if b, err := m.Items(bg, nil); err != nil || b.Rows != 0 {
		t.Errorf("no items: %v", err)
	}
}

func TestConfigErrors(t *testing.T) {
	f := newFake(10)
	for text, want := range map[string]string{
		`{"batchsize": 3}`:                             "nearest: batch_size",
		`{"keys": ["cams"]}`:                           "nearest: cam",
		`{"delta_timestamps": {"actin": [0]}}`:         "nearest: action",
		`{"delta_timestamps": {"action": [0.05]}}`:     "0.05",
		`{"delta_timestamps": {"label": [0]}}`:         "text",
		`{"episodes": [1]}`:                            "episodes",
		`{"rank": 2, "world_size": 2}`:                 "Rank: expected",
		`{"normalize": "mean_sd", "keys": ["action"]}`: "mean_std",
		`{"normalize": {"observation.state": {"mode": "mean_std", "means": [1]}}}`: "means",
		`{"deadline_s": 1e10}`:  "Deadline: expected",
		`{"deadline_s": 1e-12}`: "Deadline: expected",
		`{"hz": 5, "align": {"offset": {"action": "2305843009213693952ns"}}}`: "offset",
		`{"normalize": "mean_sd"}`:                         "mean_std",
		`{"normalize": {"actoin": "mean_std"}}`:            "action",
		`{"image_size": [1]}`:                              "ImageSize: expected",
		`{"hz": 0}`:                                        "rate",
		`{"align": {"hz": 5, "modes": {"cam": "linear"}}}`: "not computed with",
		`{"episodes": []}`:                                 "",
		`{"batch_size": 11, "drop_last": true}`: "an epoch of 10 samples holds " +
			"no batch: BatchSize: 11",
		`{"batch_size": 6, "drop_last": true, "world_size": 2}`: "BatchSize: 6 × WorldSize: 2, " +
			"12 samples a step",
	} {
		cfg, err := options.ParseConfig([]byte(text))
		if err == nil {
			_, err = New(bg, f, cfg)
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, expected %q in it", text, err, want)
		}
		if !errors.Is(err, robocache.ErrMisuse) && !errors.Is(err, robocache.ErrUnsupported) &&
			!errors.Is(err, robocache.ErrMalformed) {
			t.Errorf("%s: %v has no class", text, err)
		}
	}
	cfg, err := options.ParseConfig(
		[]byte(
			`{"shuffle": true, "memory_budget": "1.5GiB", "delta_timestamps": {"b": [0, -1], "a": [1]}, "align": {"hz": "30000/1001", "edge": "mask", "max_gap": {"x": 0.05, "y": "7ns"}}, "normalize": {"q": {"mode": "min_max", "low": [1], "high": [2]}}}`,
		),
	)
	if err != nil || cfg.Shuffle != Global || cfg.MemoryBudget != 3<<29 ||
		cfg.Deltas[0].Key != "b" ||
		cfg.Align.MaxGap.For("x") != 50_000_000 ||
		cfg.Align.MaxGap.For("y") != 7 ||
		cfg.Align.Edge.For("z") != align.EdgeMask {
		t.Errorf("%+v %v", cfg, err)
	}
	raw, err := json.Marshal(cfg)
	if err != nil {
		t.Fatal(err)
	}
	back, err := options.ParseConfig(raw)
	if err != nil || back.Deltas[1].Key != "a" || back.Normalize.Keys["q"].Low[0] != 1 {
		t.Errorf("round trip: %s %v", raw, err)
	}
}

func TestNormalize(t *testing.T) {
	for mode, want := range map[string][]float32{
		"mean_std": {(1003 - 1) / (2 + 1e-8), 0, (1003.25 - 3) / (4 + 1e-8)},
		"min_max":  {2*1003/float32(10) - 1, 0, 2*(1003.25-1)/float32(2) - 1},
	} {
		m, err := NewMap(
			bg,
			newFake(4, 10),
			options.Config{
				Statistics: options.Statistics{Normalize: Normalize{Mode: mode}},
				Windows:    options.Windows{Keys: []string{"observation.state", "action", "count"}},
			},
		)
		if err != nil {
			t.Fatal(err)
		}
		b, err := m.Items(bg, []int64{7})
		if err != nil {
			t.Fatal(err)
		}
		got := column.Floats32(b.Tensor("observation.state").Data)
		for i := range want {
			if d := got[i] - want[i]; d > 1e-4 || d < -1e-4 {
				t.Errorf("%s: %v, expected %v", mode, got, want)
				break
			}
		}
		n := m.Normalizers()[0].Keys["observation.state"]
		for i, x := range []float64{1003, 0, 1003.25} {
			back := float64(got[i])*float64(n.Scale[i]) + float64(n.Shift[i])
			if n.Mode == "min_max" {
				back = (float64(got[i])+1)*float64(n.Scale[i])/2 + float64(n.Shift[i])
			}
			if i != 1 && (back-x > 1e-2 || x-back > 1e-2) {
				t.Errorf("%s: the inverse of column %d is %v", mode, i, back)
			}
		}
		if w := m.Stats().Warnings; len(w) != 1 || !strings.Contains(w[0], "observation.state[1]") {
			t.Errorf("warnings %v", w)
		}
		b.Release()
		m.Close()
	}
}

// Opt-in, by recorded timestamps.
func TestTolerance(t *testing.T) {
	f := newFake(10)
	f.late = func(key string, _ int) int64 {
		if key == "cam" {
			return 3_000_000
		}
		return 0
	}
	for tol, ok := range map[float64]bool{0.002: false, 0.004: true, 1e12: true} {
		m, err := NewMap(
			bg,
			f,
			options.Config{Windows: options.Windows{Tolerance: &tol, Keys: []string{"cam"}}},
		)
		if err != nil {
			t.Fatal(err)
		}
		_, err = m.Items(bg, []int64{3})
		if (err == nil) != ok {
			t.Errorf("tolerance %v: %v", tol, err)
		}
		m.Close()
	}
}

// FuzzConfig checks that any JSON is parsed or rejected with a class, and that a loader of the
// parsed configuration does not panic.
func FuzzConfig(f *testing.F) {
	for _, s := range []string{
		`{}`,
		`{"batch_size": 3, "shuffle": false}`,
		`{"delta_timestamps": {"action": [0, 0.1]}, "hz": 12.5}`,
		`{"align": {"hz": 5, "edge": {"*": "mask"}, "max_gap": 0.1}}`,
		`{"normalize": {"observation.state": {"mode": "min_max", "low": [0], "high": [1]}}}`,
		`{"memory_budget": "1GiB", "episodes": [1, 0], "image_size": [2, 2]}`,
		`{"choose": {"a": ["cam"]}, "goal": {"b": "action"}, "delta_indices": {"b": [0, 2]}}`,
		`{"episode_weights": {"0": 0.5, "1": 3}, "where": "length > 2", "shuffle": "pool"}`,
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		cfg, err := options.ParseConfig([]byte(s))
		if err == nil {
			cfg.BatchSize, cfg.Threads = min(cfg.BatchSize, 1000), min(cfg.Threads, 2)
			if cfg.Align != nil || cfg.Hz != nil {
				return // rates of 1e9 make long timelines of small fakes
			}
			var l *Loader
			if l, err = New(bg, newFake(3, 4), cfg); err == nil {
				l.Close()
				return
			}
		}
		var e *robocache.Error
		if !errors.As(err, &e) || e.Class == nil {
			t.Errorf("%s: %v has no class", s, err)
		}
	})
}
