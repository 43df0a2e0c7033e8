package loader

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"math"
	"slices"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/kernel"
	"github.com/goatnote-inc/robocache/loader/internal/column"
	"github.com/goatnote-inc/robocache/loader/internal/layout"
)

const drawnConfig = `"keys": ["observation.state", "index"], "image_size": [4, 6],
	"choose": {"image": ["cam", "wide"], "words": ["task", "label"], "still": ["img"]},
	"goal": {"goal_state": "observation.state", "goal_image": "cam", "goal_words": "label"},
	"delta_indices": {"image": [-1, 0, 2], "goal_state": [0, 1]}`

// parsedConfig parses options, and writes and parses them again.
func parsedConfig(t testing.TB, text string) Config {
	t.Helper()
	cfg, err := ParseConfig([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	again, err := json.Marshal(cfg.Windows)
	if err == nil {
		cfg.Windows = Windows{}
		err = json.Unmarshal(again, &cfg.Windows)
	}
	if err != nil {
		t.Fatalf("%s: %v", again, err)
	}
	return cfg
}

// drawOf computes the draw of a sample in [0, 1) by the documented formula.
func drawOf(seed, epoch uint64, key string, r robocache.Row) float64 {
	h := fnv.New32a()
	h.Write([]byte("draw " + key))
	k := kernel.Philox([4]uint32{uint32(epoch), 0, h.Sum32(), 0}, [2]uint32{uint32(seed), 0})
	x := kernel.Philox(
		[4]uint32{2 << 30, 0, uint32(r.Index), uint32(r.Episode)},
		[2]uint32{k[0], k[1]},
	)
	return float64(x[0]) / (1 << 32)
}

// drawnReference gives the values of streams by row.
type drawnReference struct {
	f       *fake
	windows *Map // with the window of images
	rows    *Map // without windows
}

func newDrawnReference(t testing.TB, f *fake) *drawnReference {
	t.Helper()
	open := func(text string) *Map {
		m, err := NewMap(bg, f, parsedConfig(t, text))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { m.Close() })
		return m
	}
	return &drawnReference{f: f, rows: open(`{"image_size": [4, 6]}`), windows: open(
		`{"keys": ["cam", "wide", "observation.state"], "image_size": [4, 6],
		"delta_indices": {"cam": [-1, 0, 2], "wide": [-1, 0, 2], "observation.state": [0, 1]}}`,
	)}
}

// value returns one item of a stream.
func (d *drawnReference) value(t testing.TB, m *Map, key string, r robocache.Row) []byte {
	t.Helper()
	b, err := m.Items(bg, []int64{int64(d.f.base(r.Episode) + r.Index)})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Release()
	if texts := b.Text(key); texts != nil {
		return []byte(texts[0])
	}
	return bytes.Clone(b.Tensor(key).Data)
}

// batchValue returns the value of sample i of a batch.
func batchValue(b *layout.Batch, key string, i int) []byte {
	if texts := b.Text(key); texts != nil {
		return []byte(texts[i])
	}
	data := b.Tensor(key).Data
	size := len(data) / b.Rows
	return data[i*size : (i+1)*size]
}

// check compares the drawn keys of a batch with the streams, by the documented draws.
func (d *drawnReference) check(t testing.TB, b *layout.Batch, l *Loader, seed, epoch uint64) {
	t.Helper()
	rows, err := l.Rows(b.Indices)
	if err != nil {
		t.Fatal(err)
	}
	for i, r := range rows {
		u := func(key string) float64 { return drawOf(seed, epoch, key, r) }
		goal := func() robocache.Row {
			later := d.f.lengths[r.Episode] - 1 - r.Index
			if later == 0 {
				return r
			}
			return robocache.Row{
				Episode: r.Episode,
				Index:   r.Index + 1 + int(math.Floor(u("goal")*float64(later))),
			}
		}
		first := func(key, a, b string) string {
			if u(key) < 0.5 {
				return a
			}
			return b
		}
		for key, want := range map[string][]byte{
			"image":      d.value(t, d.windows, first("image", "cam", "wide"), r),
			"words":      d.value(t, d.rows, first("words", "task", "label"), r),
			"still":      d.value(t, d.rows, "img", r),
			"goal_state": d.value(t, d.windows, "observation.state", goal()),
			"goal_image": d.value(t, d.rows, "cam", goal()),
			"goal_words": d.value(t, d.rows, "label", goal()),
		} {
			if got := batchValue(b, key, i); !bytes.Equal(got, want) {
				t.Fatalf("row %v of epoch %d: %s is not as drawn: %.40q, want %.40q", r, epoch, key,
					got, want)
			}
		}
	}
}

// TestDrawnKeysHoldTheirDraws compares choices and goals with their streams: in all orders, for two
// ranks, with several threads, and after a restore at each step.
func TestDrawnKeysHoldTheirDraws(t *testing.T) {
	f := newFake(9, 1, 6, 12).withWide().withStills()
	reference := newDrawnReference(t, f)
	for _, shuffle := range []string{`"global"`, `"pool"`} {
		cfg := parsedConfig(t, fmt.Sprintf(`{%s, "shuffle": %s, "batch_size": 3, "seed": 5,
			"threads": 3, "pool_episodes": 2, "world_size": 2}`, drawnConfig, shuffle))
		seen := map[int64]int{}
		for rank := range 2 {
			cfg.Rank = rank
			l := mustLoader(t, f, cfg)
			for epoch := range uint64(2) {
				for {
					b, err := l.Next(bg)
					if errors.Is(err, io.EOF) {
						break
					}
					if err != nil {
						t.Fatal(err)
					}
					reference.check(t, b, l, 5, epoch)
					for _, s := range b.Indices {
						seen[s]++
					}
					b.Release()
					resumed := mustLoader(t, f, cfg)
					if err := resumed.Restore(l.State(), false); err != nil {
						t.Fatal(err)
					}
					at := uint64(resumed.Epoch())
					if b, err = resumed.Next(bg); err == nil {
						reference.check(t, b, resumed, 5, at)
						b.Release()
					}
					resumed.Close()
				}
			}
		}
		for s := range int64(28) {
			if seen[s] < 2 {
				t.Errorf("shuffle %s: sample %d was delivered %d times in two epochs", shuffle, s,
					seen[s])
			}
		}
	}
}

// TestChoicesAreTheFirstStreamInFileOrder compares a Loader in file order and a Map.
func TestChoicesAreTheFirstStreamInFileOrder(t *testing.T) {
	f := newFake(7, 5).withWide().withStills()
	cfg := parsedConfig(t, "{"+drawnConfig+`, "shuffle": false, "batch_size": 12}`)
	reference := newDrawnReference(t, f)
	b, err := mustLoader(t, f, cfg).Next(bg)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Release()
	m, err := NewMap(bg, f, cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	items, err := m.Items(bg, b.Indices)
	if err != nil {
		t.Fatal(err)
	}
	defer items.Release()
	rows, _ := m.Rows(b.Indices)
	for i, r := range rows {
		for key, want := range map[string][]byte{
			"image": reference.value(t, reference.windows, "cam", r),
			"words": reference.value(t, reference.rows, "task", r),
		} {
			if got := batchValue(b, key, i); !bytes.Equal(got, want) {
				t.Errorf("row %v: %s is not the first stream", r, key)
			}
		}
		for _, x := range m.Fields() {
			if !bytes.Equal(batchValue(b, x.Key, i), batchValue(items, x.Key, i)) {
				t.Errorf("row %v: %s of the Map differs", r, x.Key)
			}
		}
	}
}

// TestOnlyTheChosenStreamIsRead counts the frames that a choice asks for.
func TestOnlyTheChosenStreamIsRead(t *testing.T) {
	f := newFake(40, 60).withWide()
	l := mustLoader(t, f, parsedConfig(t, `{"shuffle": "global", "batch_size": 10,
		"image_size": [4, 6], "choose": {"image": ["cam", "wide"]}}`))
	for _, x := range l.Fields() {
		if x.Key == "cam" || x.Key == "wide" {
			t.Errorf("%s is delivered beside the choice", x.Key)
		}
	}
	probed := f.touched["cam"] + f.touched["wide"]
	epochOf(t, nil, l)
	cam, wide := f.touched["cam"], f.touched["wide"]-probed
	if probed > 2 || cam+wide != 100 || cam < 30 || wide < 30 || l.Stats().Frames != 100 {
		t.Errorf("%d frames of cam and %d of wide, %d delivered, want 100 in all", cam, wide,
			l.Stats().Frames)
	}
}

// TestGoalsOnATimeline checks the rows of goals with hz, and their normalization by the statistics
// of the stream.
func TestGoalsOnATimeline(t *testing.T) {
	f := newFake(9, 4)
	l := mustLoader(t, f, parsedConfig(t, `{"hz": 20, "shuffle": "global", "batch_size": 4,
		"drop_n_last_frames": 2,
		"keys": ["observation.state"], "goal": {"later": "observation.state"},
		"normalize": "min_max", "align": {"modes": {"observation.state": "previous"}}}`))
	for {
		b, err := l.Next(bg)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		rows, _ := l.Rows(b.Indices)
		got := column.Floats32(b.Tensor("later").Data)
		for i, r := range rows {
			ticks := 2*f.lengths[r.Episode] - 1 - 2 // without those that are no samples
			goal := r.Index
			if later := ticks - 1 - r.Index; later > 0 {
				goal += 1 + int(drawOf(0, 0, "goal", r)*float64(later))
			}
			// The statistics of the fake say min 0 and max 10.
			state := stateValue(robocache.Row{Episode: r.Episode, Index: goal / 2}, 0)
			if want := 2*state/10 - 1; math.Abs(float64(got[3*i]-want)) > 1e-4 {
				t.Fatalf("tick %v: got %g, want %g of tick %d", r, got[3*i], want, goal)
			}
		}
		b.Release()
	}
}

// TestDrawnKeysOfMixtures checks that a source without a stream pads the key.
func TestDrawnKeysOfMixtures(t *testing.T) {
	both, one := newFake(8, 6).withWide(), newFake(5)
	cfg := parsedConfig(t, `{"shuffle": "pool", "batch_size": 4, "image_size": [4, 6],
		"keys": ["action"], "missing": "pad", "choose": {"image": ["cam", "wide"]},
		"goal": {"later": "action"}}`)
	l, err := NewMix(bg, []Mix{{Dataset: both}, {Dataset: one}}, cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for {
		b, err := l.Next(bg)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		sources := column.AsSlice[int64](b.Tensor("dataset_index").Data)
		for i, source := range sources {
			if pad := b.Tensor("image_is_pad").Data[i]; int64(pad) != source {
				t.Errorf("source %d: image_is_pad is %d", source, pad)
			}
		}
		b.Release()
	}
	cfg.Goal[0].Streams[0] = "nothing"
	if _, err := NewMix(bg, []Mix{{Dataset: both}, {Dataset: one}}, cfg); !errors.Is(
		err,
		robocache.ErrMisuse,
	) {
		t.Errorf("a goal that no source has: %v", err)
	}
}

func TestBadDrawnKeysAreRejected(t *testing.T) {
	f := newFake(5).withWide().withStills()
	for text, class := range map[string]error{
		`"choose": {"x": ["observation.state", "action"]}`:          robocache.ErrMisuse,
		`"choose": {"x": ["observation.state", "label"]}`:           robocache.ErrMisuse,
		`"choose": {"x": ["observation.state", "cam"]}`:             robocache.ErrMisuse,
		`"choose": {"x": ["done", "count"]}`:                        robocache.ErrMisuse,
		`"choose": {"x": ["language_events"]}`:                      robocache.ErrUnsupported,
		`"goal": {"x": "language_events"}`:                          robocache.ErrUnsupported,
		`"choose": {"x": ["cam"]}, "windows": {"x": [0]}`:           robocache.ErrUnsupported,
		`"choose": {"x": ["cam", "wide"]}`:                          robocache.ErrMisuse,
		`"choose": {"x": ["cam", "label"]}, "image_size": [4, 6]`:   robocache.ErrMisuse,
		`"choose": {"x": ["cam", "img"]}, "image_size": [4, 6]`:     robocache.ErrMisuse,
		`"choose": {"x": ["cam", "cam"]}`:                           robocache.ErrMisuse,
		`"choose": {"x": []}`:                                       robocache.ErrMisuse,
		`"choose": {"x": ["camera"]}`:                               robocache.ErrMisuse,
		`"choose": {"x": ["cam"]}, "goal": {"x": "cam"}`:            robocache.ErrMisuse,
		`"goal": {"x": "x"}`:                                        robocache.ErrMisuse,
		`"goal": {"x": ["cam"]}`:                                    robocache.ErrMisuse,
		`"goal": {"x": "label"}, "delta_indices": {"x": [0, 1]}`:    robocache.ErrMisuse,
		`"goal": {"x": "cam"}, "augment": {"cameras": ["goal_x"]}`:  robocache.ErrMisuse,
		`"choose": {"x": ["cam"]}, "delta_indices": {"cam": [0,1]}`: robocache.ErrMisuse,
	} {
		cfg, err := ParseConfig([]byte(`{"shuffle": "global", ` + text + "}"))
		if err == nil {
			_, err = New(bg, f, cfg)
		}
		if !errors.Is(err, class) {
			t.Errorf("%s: got %v, want %v", text, err, class)
		}
	}
}

// TestChosenNumbersHoldTheirDraws compares a choice of numbers with its streams: rows, windows beyond
// the episode, a timeline and one normalization, on the host and finished as on a device.
func TestChosenNumbersHoldTheirDraws(t *testing.T) {
	const norm = `"normalize": {"x": {"mode": "min_max", "low": [-9e3, 0, 0], "high": [9e3, 9e3, 1]}}`
	normalized := func(v float64, k int) float64 {
		low, high := [3]float64{-9e3, 0, 0}[k], [3]float64{9e3, 9e3, 1}[k]
		return 2*(v-low)/(high-low) - 1
	}
	plain := func(v float64, _ int) float64 { return v }
	for _, x := range []struct {
		options string
		rows    []int
		isZero  bool // beyond the episode
		value   func(v float64, k int) float64
	}{
		{`"keys": ["index"]`, []int{0}, false, plain},
		{`"delta_indices": {"x": [-2, 1]}`, []int{-2, 1}, false, plain},
		{`"delta_indices": {"x": [-2, 1]}, "beyond": {"x": "zero"}`, []int{-2, 1}, true, plain},
		{`"hz": 10, "keys": ["observation.state"]`, []int{0}, false, plain},
		{`"delta_indices": {"x": [-1, 0]}, ` + norm, []int{-1, 0}, false, normalized},
	} {
		cfg := parsedConfig(
			t,
			`{"choose": {"x": ["observation.state", "twin"]}, "seed": 3, "dtype": "float32",
			"shuffle": "global", "batch_size": 5, `+x.options+`}`,
		)
		for _, isRaw := range []bool{false, true} {
			cfg.Raw = isRaw
			f := newFake(9, 1, 6).withTwin()
			l := mustLoader(t, f, cfg)
			if slices.ContainsFunc(l.Fields(), func(f Field) bool { return f.Key == "twin" }) {
				t.Errorf("%s: a stream of the choice is delivered", x.options)
			}
			streams := [2]int{}
			for {
				b, err := l.Next(bg)
				if errors.Is(err, io.EOF) {
					break
				}
				if err != nil {
					t.Fatal(err)
				}
				rows, _ := l.Rows(b.Indices)
				got := column.Floats32(b.Tensor("x").Data)
				for i, r := range rows {
					sign := 1.0
					stream := int(2 * drawOf(3, 0, "x", r))
					if streams[stream]++; stream == 1 {
						sign = -1
					}
					for j, offset := range x.rows {
						at := r
						at.Index = min(max(r.Index+offset, 0), f.lengths[r.Episode]-1)
						for k := range 3 {
							want := x.value(sign*float64(stateValue(at, k)), k)
							if x.isZero && at.Index != r.Index+offset {
								want = 0
							}
							got := got[(i*len(x.rows)+j)*3+k]
							if math.Abs(want-float64(got)) > 1e-6*math.Max(1, math.Abs(want)) {
								t.Fatalf("%s: row %v: got %g, want %g", x.options, at, got, want)
							}
						}
					}
				}
				b.Release()
			}
			if streams[0] < 3 || streams[1] < 3 {
				t.Errorf("%s: draws %v", x.options, streams)
			}
		}
	}
	own := `{"choose": {"x": ["observation.state", "twin"]}, "shuffle": "global", "keys": ["index"],
		"normalize": {"x": "min_max"}, "compute_stats": true, "dtype": "float32"}`
	cfg, err := ParseConfig([]byte(own))
	if err == nil {
		_, err = New(bg, newFake(5).withTwin(), cfg)
	}
	if !errors.Is(err, robocache.ErrMisuse) {
		t.Errorf("streams with different statistics: %v", err)
	}
}

// TestContractOfDrawnKeys checks that a contract has the first stream of a choice, and no goal.
func TestContractOfDrawnKeys(t *testing.T) {
	f := newFake(5).withTwin().withWide()
	l := mustLoader(t, f, parsedConfig(t, `{"shuffle": "global", "image_size": [4, 6],
		"dtype": "float32", "keys": ["cam"], "hz": 10, "align": {"causal": true},
		"choose": {"x": ["twin", "observation.state"], "image": ["wide", "cam"], "act": ["action"]},
		"goal": {"later": "cam"}, "delta_indices": {"x": [-1, 0], "later": [-1, 0]}}`))
	c, err := l.Contract()
	if err != nil {
		t.Fatal(err)
	}
	var outputs, streams []string
	for _, x := range c.Outputs {
		outputs = append(outputs, x.Key)
	}
	for _, x := range c.Streams {
		streams = append(streams, x.Key)
	}
	slices.Sort(outputs)
	slices.Sort(streams)
	got, _ := json.Marshal(c.Options.Windows)
	if !slices.Equal(outputs, []string{"cam", "image", "x"}) ||
		!slices.Equal(streams, []string{"cam", "twin", "wide"}) ||
		!bytes.Contains(got, []byte(`"choose":{"x":["twin"],"image":["wide"]}`)) ||
		bytes.Contains(got, []byte("goal")) || len(c.Options.Indices) != 1 {
		t.Errorf("outputs %v, streams %v, options %s", outputs, streams, got)
	}
}

// TestRawBatchesOfDrawnKeys finishes raw batches with drawn keys like a device, and compares them with
// those of the host.
func TestRawBatchesOfDrawnKeys(t *testing.T) {
	const keys = `"shuffle": "global", "batch_size": 6, "image_size": [4, 6], "keys": ["cam"],
		"image_dtype": "float32", "choose": {"image": ["cam", "wide"]},
		"goal": {"later": "action", "goal_image": "wide"}, "delta_indices": {"image": [-1, 0]},
		"normalize": {"later": {"mode": "min_max", "low": [0, 0], "high": [4000, 4000]}}`
	for name, more := range map[string]string{
		"rows":      ``,
		"timeline":  `, "hz": 23`,
		"augmented": `, "augment": {"random_crop": {"size": [3, 4]}, "noise": {"std": 0.1}}`,
		"shared":    `, "augment": {"color_jitter": {"hue": 0.1}, "shared": true}, "hz": 7`,
	} {
		cfg := parsedConfig(t, "{"+keys+more+"}")
		host := mustLoader(t, newFake(9, 5, 4).withWide(), cfg)
		cfg.Raw = true
		raw := mustLoader(t, newFake(9, 5, 4).withWide(), cfg)
		for {
			want, err := host.Next(bg)
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			b, err := raw.Next(bg)
			if err != nil {
				t.Fatal(err)
			}
			values, k := finished(t, raw, b), 0
			for _, x := range raw.Fields() {
				if x.Text() {
					continue
				}
				data := want.Tensor(x.Key).Data
				if !bytes.Equal(values[k][:len(data)], data) {
					t.Errorf("%s: %s of a raw batch differs", name, x.Key)
				}
				k++
			}
			want.Release()
			b.Release()
		}
	}
}

// TestGoalsUseTheFramesOfTheirCamera counts the frames that a pool decodes for a camera and its goal.
func TestGoalsUseTheFramesOfTheirCamera(t *testing.T) {
	f := newFake(20, 30, 10)
	f.gop = 1
	reference := newDrawnReference(t, newFake(20, 30, 10).withWide())
	l := mustLoader(t, f, parsedConfig(t, `{"shuffle": "pool", "pool_episodes": 2,
		"batch_size": 5, "keys": ["cam"], "image_size": [4, 6], "goal": {"goal_image": "cam"}}`))
	for epoch := range uint64(2) {
		for {
			b, err := l.Next(bg)
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			rows, _ := l.Rows(b.Indices)
			for i, r := range rows {
				goal := r
				if later := f.lengths[r.Episode] - 1 - r.Index; later > 0 {
					goal.Index += 1 + int(drawOf(0, epoch, "goal", r)*float64(later))
				}
				for key, at := range map[string]robocache.Row{"cam": r, "goal_image": goal} {
					want := reference.value(t, reference.rows, "cam", at)
					if !bytes.Equal(batchValue(b, key, i), want) {
						t.Fatalf("row %v of epoch %d: %s is not row %v", r, epoch, key, at)
					}
				}
			}
			b.Release()
		}
		// The second epoch begins with frames of the third.
		if n := f.decoded.Load(); epoch == 0 && n != 60 {
			t.Errorf("%d frames are decoded in an epoch of 60", n)
		}
	}
}
