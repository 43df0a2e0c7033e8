package loader

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/kernel"
	"github.com/goatnote-inc/robocache/loader/internal/column"
	"github.com/goatnote-inc/robocache/loader/internal/layout"
	"github.com/goatnote-inc/robocache/loader/options"
)

const fullAugment = `{"random_crop": {"size": [3, 5], "pad": 1}, "color_jitter": {"brightness": 0.3, "contrast": [0.6, 1.5], "saturation": 0.5, "hue": 0.1},
	"hflip": {"p": 0.5, "negate": {"action": [1]}, "swap": {"observation.state": [[0, 2]]}, "keep": ["count", "done"]},
	"noise": {"std": {"": 0.05, "observation.state": 0.25}}}`

func augmentOf(t *testing.T, text string) *Augment {
	t.Helper()
	c, err := options.ParseConfig([]byte(`{"augment": ` + text + `}`))
	if err != nil {
		t.Fatal(err)
	}
	return c.Augment
}

// plainSample holds the tensors of a sample before augmentation, by key.
type plainSample map[string][]byte

func plainSamples(
	t *testing.T,
	ds robocache.Dataset,
	cfg options.Config,
) func(row robocache.Row) plainSample {
	t.Helper()
	cfg.Augment, cfg.Cache, cfg.ImageDType, cfg.Normalize, cfg.Episodes = nil, "", "", Normalize{}, nil
	m, err := NewMap(bg, ds, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	number := map[robocache.Row]int64{}
	for i := range m.Len() {
		rows, _ := m.Rows([]int64{i})
		number[rows[0]] = i
	}
	return func(row robocache.Row) plainSample {
		b, err := m.Items(bg, []int64{number[row]})
		if err != nil {
			t.Fatal(err)
		}
		defer b.Release()
		out := plainSample{}
		for i := range b.Tensors {
			out[b.Tensors[i].Key] = bytes.Clone(b.Tensors[i].Data)
		}
		return out
	}
}

// TestAugmentIsAFunctionOfTheSample checks that every loader delivers what the kernel computes from
// the plain sample by seed, epoch and row, at any threads, batches, ranks, caches and order.
func TestAugmentIsAFunctionOfTheSample(t *testing.T) {
	const seed = 11
	f := newFake(13, 7, 9).withStills()
	base := options.Config{
		Augment: augmentOf(t, fullAugment),
		Order:   options.Order{Seed: seed},
		Windows: options.Windows{
			Keys:   []string{"cam", "img", "observation.state", "action", "count", "done", "index"},
			Deltas: deltas("cam", []float64{-0.1, 0}, "action", []float64{0, 0.1}),
		},
	}
	plain := plainSamples(t, f, base)
	images := func(key string, epoch uint64) kernel.ImageAugment {
		return kernel.ImageAugment{
			Seed:       seed,
			Epoch:      epoch,
			Camera:     column.KeyNumber(key),
			Height:     3,
			Width:      5,
			Pad:        1,
			Brightness: &[2]float64{0.7, 1.3},
			Contrast:   &[2]float64{0.6, 1.5},
			Saturation: &[2]float64{0.5, 1.5},
			Hue:        &[2]float64{-0.1, 0.1},
			Flip:       0.5,
			Noise:      0.05,
		}
	}
	flips, drawn := 0, map[string]bool{}
	check := func(name string, epoch uint64, b *layout.Batch, rows []robocache.Row) {
		t.Helper()
		for i, r := range rows {
			want := plain(r)
			sample := int64(r.Episode)<<32 | int64(r.Index)
			for _, key := range []string{"cam", "img"} {
				got := b.Tensor(key).Data[i*len(b.Tensor(key).Data)/b.Rows:]
				for step := range len(want[key]) / (3 * fakeH * fakeW) {
					a := images(key, epoch)
					d := a.Draw(sample, fakeH, fakeW, step)
					out := make([]byte, 3*3*5)
					form := kernel.ImageForm{}
					form.AugmentImage(
						out,
						want[key][step*3*fakeH*fakeW:],
						&d,
						[4]int{fakeH, fakeW, 3, 5},
					)
					if !bytes.Equal(got[step*45:(step+1)*45], out) {
						t.Fatalf(
							"%s: epoch %d, %v: %s, step %d is not what was drawn",
							name,
							epoch,
							r,
							key,
							step,
						)
					}
					drawn[string(out)] = true
				}
			}
			a := images("", epoch)
			flip := a.Flips(sample)
			action := slices.Clone(column.AsSlice[float64](want["action"]))
			state := slices.Clone(column.Floats32(want["observation.state"]))
			if flip {
				flips++
				action[1], action[3] = -action[1], -action[3]
				state[0], state[2] = state[2], state[0]
			}
			noise := kernel.Augment{
				Seed:  seed,
				Epoch: epoch,
				Op:    column.KeyNumber("observation.state"),
			}
			g := make([]float32, 3)
			noise.Normals(g, noise.Key(), sample, 0, 0)
			for k := range state {
				state[k] = kernel.FMA32(0.25, g[k], state[k])
			}
			if got := column.AsSlice[float64](b.Tensor("action").Data)[i*4:][:4]; !slices.Equal(got,
				action) {
				t.Fatalf("%s: epoch %d, %v: action %v, not %v", name, epoch, r, got, action)
			}
			if got := column.Floats32(b.Tensor("observation.state").Data)[i*3:][:3]; !slices.Equal(
				got,
				state,
			) {
				t.Fatalf("%s: epoch %d, %v: state %v, not %v", name, epoch, r, got, state)
			}
		}
	}
	dir := t.TempDir()
	for name, change := range map[string]func(*options.Config){
		"plain":      func(*options.Config) {},
		"threads":    func(c *options.Config) { c.Threads, c.BatchSize, c.Prefetch = 4, 3, 9 },
		"ram":        func(c *options.Config) { c.Cache = "ram" },
		"disk":       func(c *options.Config) { c.Cache, c.CacheFormat = dir, "rgb" },
		"disk again": func(c *options.Config) { c.Cache, c.CacheFormat = dir, "rgb" },
		"global":     func(c *options.Config) { c.Shuffle = Global },
		"pool":       func(c *options.Config) { c.Shuffle, c.PoolEpisodes = Pool, 2 },
		"rank":       func(c *options.Config) { c.Rank, c.WorldSize, c.BatchSize = 1, 2, 4 },
		"episodes":   func(c *options.Config) { c.Episodes = []int{1, 2} },
	} {
		cfg := base
		cfg.BatchSize = 5
		change(&cfg)
		l := mustLoader(t, f, cfg)
		for range 12 {
			b, err := l.Next(bg)
			if err == io.EOF {
				continue
			}
			if err != nil {
				t.Fatal(name, err)
			}
			rows, err := l.Rows(b.Indices)
			if err != nil {
				t.Fatal(err)
			}
			if x := l.Fields()[0]; !slices.Equal(x.Shape, []int{2, 3, 3, 5}) {
				t.Fatal(x.Shape)
			}
			check(name, uint64(b.Epoch), b, rows)
			b.Release()
		}
	}
	if flips == 0 || len(drawn) < 100 {
		t.Errorf("%d flips, %d different images", flips, len(drawn))
	}
}

// TestAugmentedFloats checks that normalized float images are the table of the augmented bytes: the
// value of each byte without augmentation.
func TestAugmentedFloats(t *testing.T) {
	f := newFake(6)
	norm := Normalize{
		Keys: map[string]Norm{
			"cam": {
				Mode: "mean_std",
				Mean: []float64{0.4, 0.5, 0.6},
				Std:  []float64{0.2, 0, 0.3},
			},
			"observation.state": {Mode: "mean_std"},
		},
	}
	cfg := options.Config{
		Augment: augmentOf(
			t,
			`{"color_jitter": {"hue": 0.2}, "hflip": {"p": 1, "negate": {"observation.state": [0, 1]}}}`,
		),
		Order:   options.Order{BatchSize: 6},
		Windows: options.Windows{Keys: []string{"cam", "observation.state"}},
	}
	b8, err := mustLoader(t, f, cfg).Next(bg)
	if err != nil {
		t.Fatal(err)
	}
	cfg.ImageDType, cfg.Normalize = "float32", norm
	l := mustLoader(t, f, cfg)
	b32, err := l.Next(bg)
	if err != nil {
		t.Fatal(err)
	}
	if inv := l.Normalizers()[0].Keys["cam"]; len(inv.Scale) != 3 {
		t.Errorf("no way back: %+v", inv)
	}
	// The float value of a byte is the one without augmentation, per channel.
	cfg.Augment = nil
	plain, err := mustLoader(t, f, cfg).Next(bg)
	if err != nil {
		t.Fatal(err)
	}
	cfg.ImageDType, cfg.Normalize = "uint8", Normalize{}
	bytes8, err := mustLoader(t, f, cfg).Next(bg)
	if err != nil {
		t.Fatal(err)
	}
	becomes, seen := map[[2]int]uint32{}, 0
	channel := func(i int) int { return i / (fakeW * fakeH) % 3 }
	for i, v := range bytes8.Tensor("cam").Data {
		becomes[[2]int{channel(i), int(v)}] = math.Float32bits(
			column.Floats32(plain.Tensor("cam").Data)[i],
		)
	}
	for i, v := range b8.Tensor("cam").Data {
		want, ok := becomes[[2]int{channel(i), int(v)}]
		if !ok {
			continue
		}
		seen++
		if got := column.Floats32(b32.Tensor("cam").Data)[i]; math.Float32bits(got) != want {
			t.Fatalf("element %d, byte %d: %v, not %v", i, v, got, math.Float32frombits(want))
		}
	}
	if seen < 50 {
		t.Error(seen, "bytes were compared")
	}
	// The state is mirrored as it was recorded, then normalised.
	for i, x := range column.Floats32(b8.Tensor("observation.state").Data) {
		k := i % 3
		want := -column.Floats32(plain.Tensor("observation.state").Data)[i] - 2*[]float32{
			1,
			2,
			3,
		}[k]/[]float32{2, 1, 4}[k]
		if k == 1 {
			want = 0 // constant
		} else if k == 2 {
			want = column.Floats32(plain.Tensor("observation.state").Data)[i]
		}
		if got := column.Floats32(b32.Tensor("observation.state").Data)[i]; math.Abs(
			float64(got-want),
		) > 1e-4 {
			t.Fatalf("state %d: %v, not %v", i, got, want)
		}
		if plain := stateValue(robocache.Row{Index: i / 3}, k); k < 2 && x != -plain || k == 2 &&
			x != plain {
			t.Fatalf("state %d is %v, recorded %v", i, x, plain)
		}
	}
}

// On a timeline rows are interpolated, mirrored, normalised; a mask's zeros stay zeros.
func TestAugmentOnATimeline(t *testing.T) {
	f := newFake(12, 9)
	hz := robocache.Rate{Num: 25, Den: 1}
	base := options.Config{
		Order: options.Order{BatchSize: 8},
		Windows: options.Windows{
			Hz:     &hz,
			Keys:   []string{"observation.state", "cam"},
			Deltas: deltas("observation.state", []float64{-0.3, 0, 0.013}),
		},
	}
	masked, err := options.ParseConfig([]byte(`{"align": {"edge": "mask"}}`))
	if err != nil {
		t.Fatal(err)
	}
	base.Align = masked.Align
	read := func(text string) (out []float32) {
		cfg := base
		if text != "" {
			cfg.Augment = augmentOf(t, text)
		}
		l := mustLoader(t, f, cfg)
		for {
			b, err := l.Next(bg)
			if err == io.EOF {
				return out
			}
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, column.Floats32(b.Tensor("observation.state").Data)...)
			b.Release()
		}
	}
	plain, flipped, noisy := read(
		"",
	), read(
		`{"hflip": {"p": 1, "swap": {"observation.state": [[0, 1]]}, "negate": {"observation.state": [0]}}}`,
	), read(
		`{"noise": {"std": {"observation.state": 1}}}`,
	)
	changed := 0
	for i := 0; i < len(plain); i += 3 {
		if !slices.Equal(flipped[i:i+3], []float32{-plain[i+1], plain[i], plain[i+2]}) {
			t.Fatalf("row %d: %v, recorded %v", i/3, flipped[i:i+3], plain[i:i+3])
		}
		if zero := []float32{
			0,
			0,
			0,
		}; slices.Equal(
			plain[i:i+3],
			zero,
		) != slices.Equal(
			noisy[i:i+3],
			zero,
		) {
			t.Fatalf("row %d: %v with noise, %v without", i/3, noisy[i:i+3], plain[i:i+3])
		}
		if noisy[i] != plain[i] {
			changed++
		}
	}
	if changed < len(plain)/6 {
		t.Errorf("noise changed %d of %d rows", changed, len(plain)/3)
	}
}

// Integers that are interpolated on their way to floats are so under augmentation too.
func TestAugmentOfIntegersOnATimeline(t *testing.T) {
	f := newFake(12, 9)
	hz := robocache.Rate{Num: 25, Den: 1}
	read := func(text string) (out []float32) {
		cfg, err := options.ParseConfig(
			[]byte(
				`{"batch_size": 8, "keys": ["count"], "align": {"modes": {"count": "linear"}, "dtypes": {"count": "float32"}}}`,
			),
		)
		if err != nil {
			t.Fatal(err)
		}
		cfg.Hz = &hz
		if text != "" {
			cfg.Augment = augmentOf(t, text)
		}
		l := mustLoader(t, f, cfg)
		defer l.Close()
		for {
			b, err := l.Next(bg)
			if err == io.EOF {
				return out
			}
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, column.Floats32(b.Tensor("count").Data)...)
			b.Release()
		}
	}
	plain, tiny := read(""), read(`{"noise": {"std": {"count": 1e-30}}}`)
	if !slices.EqualFunc(
		plain,
		tiny,
		func(a, b float32) bool { return a == b || a == 0 && b < 1e-20 && b > -1e-20 },
	) {
		t.Errorf("with next to no noise %v, without %v", tiny[:8], plain[:8])
	}
}

// TestAugmentOfMixtures checks that a mixture augments each source as the source alone, in the
// source's own epochs. A sample of a later pass has a new draw.
func TestAugmentOfMixtures(t *testing.T) {
	a, b := newFake(4), newFake(40)
	b.tag = "b"
	weight := 1.0
	aug := augmentOf(t, `{"noise": {"std": 0.3}}`)
	for _, order := range []Shuffle{Global, Pool} {
		l, err := NewMix(
			bg,
			[]options.Mix{
				{Dataset: a, Weight: &weight},
				{Dataset: b, Weight: &weight, MixFrames: options.MixFrames{Augment: &Augment{}}},
			},
			options.Config{
				Mixture: options.Mixture{EpochSize: 24},
				Augment: aug,
				Order:   options.Order{BatchSize: 4, Shuffle: order, Seed: 3},
				Windows: options.Windows{Keys: []string{"cam", "index"}},
			},
		)
		if err != nil {
			t.Fatal(err)
		}
		alone := map[[2]int64]string{}
		for epoch := range 4 {
			one := mustLoader(
				t,
				a,
				options.Config{
					Augment: aug,
					Order:   options.Order{BatchSize: 4, Seed: 3},
					Windows: options.Windows{Keys: []string{"cam", "index"}},
				},
			)
			if err := one.SetEpoch(int64(epoch)); err != nil {
				t.Fatal(err)
			}
			batch, err := one.Next(bg)
			if err != nil {
				t.Fatal(err)
			}
			for i, index := range column.AsSlice[int64](batch.Tensor("index").Data) {
				alone[[2]int64{int64(epoch), index}] = string(
					batch.Tensor("cam").Data[i*3*fakeW*fakeH:][:3*fakeW*fakeH],
				)
			}
		}
		plain := plainSamples(
			t,
			b,
			options.Config{Windows: options.Windows{Keys: []string{"cam", "index"}}},
		)
		times := map[int64]int64{}
		for {
			batch, err := l.Next(bg)
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			index := column.AsSlice[int64](batch.Tensor("index").Data)
			for i, source := range column.AsSlice[int64](batch.Tensor(layout.DatasetIndex).Data) {
				cam := string(batch.Tensor("cam").Data[i*3*fakeW*fakeH:][:3*fakeW*fakeH])
				if source == 1 {
					if want := plain(robocache.Row{Index: int(index[i])}); cam !=
						string(want["cam"]) {
						t.Fatal("a source without augmentation was augmented")
					}
					continue
				}
				if want := alone[[2]int64{times[index[i]], index[i]}]; cam != want {
					t.Fatalf(
						"%s: sample %d, for the %d. time, is not what the source gives alone",
						order,
						index[i],
						times[index[i]]+1,
					)
				}
				times[index[i]]++
			}
			batch.Release()
		}
		if times[0] != 3 {
			t.Errorf("%v", times)
		}
		l.Close()
	}
}

func TestAugmentMisuse(t *testing.T) {
	f := newFake(6).withStills()
	f.info.Features = append(
		f.info.Features,
		robocache.Feature{
			Key:      "depth",
			Kind:     robocache.KindVideo,
			DType:    robocache.Uint16,
			Shape:    []int{fakeH, fakeW, 1},
			Height:   fakeH,
			Width:    fakeW,
			Channels: 1,
			Depth:    &robocache.Depth{},
		},
	)
	flip := func(more string) string { return `{"hflip": {"p": 0.5` + more + `}}` }
	all := `"observation.state", "action", "count", "done", "depth"`
	for _, x := range []struct{ text, keys, says string }{
		{`{"random_crop": {"size": [5, 6]}}`, "cam", "4×6"},
		{`{"random_crop": {"size": [5, 7], "pad": 1}}`, "cam", ""},
		{`{"random_crop": {"size": [7, 7], "pad": 1}}`, "cam", "6×8"},
		{`{"random_crop": {"size": [3]}}`, "cam", "height, width"},
		{`{"random_crop": {"pad": -1}}`, "cam", "pad"},
		{
			flip(`, "keep": ["action"]`)[:9] + `{"p": 1.5, "keep": [` + all + `]}}`,
			"",
			"probability",
		},
		{`{"color_jitter": {"hue": 0.6}}`, "cam", "hue"},
		{`{"color_jitter": {"hue": [-0.7, 0]}}`, "cam", "hue"},
		{`{"color_jitter": {"brightness": -0.1}}`, "cam", "brightness"},
		{`{"color_jitter": {"contrast": [1, 0.5]}}`, "cam", "contrast"},
		{`{"color_jitter": {"saturation": [0, 9]}}`, "cam", "saturation"},
		{`{"color_jitter": {"brigthness": 0.1}}`, "cam", "brightness"},
		{`{"colour_jitter": {}}`, "cam", "color_jitter"},
		{`{"random_crop": 3}`, "cam", "object"},
		{`{"random_crop": {"size": "big"}}`, "cam", ""},
		{`{"cameras": ["depth"], "random_crop": {"size": [2, 2]}}`, "", "depth is not augmented"},
		{`{"cameras": ["action"], "random_crop": {"size": [2, 2]}}`, "", "not a camera"},
		{`{"cameras": ["camm"], "random_crop": {"size": [2, 2]}}`, "", "cam"},
		{`{"random_crop": {"size": [2, 2]}}`, "action", "no colour camera"},
		{`{"random_crop": {"size": [2, 2]}}`, "cam,depth", "depth is not augmented"},
		{`{"random_crop": {"size": [2, 2], "keep": ["depth"]}}`, "cam,depth", ""},
		{`{"random_crop": {"size": [2, 2], "keep": ["depht"]}}`, "cam,depth", "depth"},
		{`{"random_crop": {"size": [2, 2], "keep": ["cam"]}}`, "cam", "cropped"},
		{flip(""), "cam,action,index", "action"},
		{flip(`, "negate": {"action": [0]}`), "", "observation.state"},
		{flip(`, "keep": [` + all[:len(all)-9] + `]`), "", "depth"},
		{flip(`, "negate": {"action": [2]}`), "cam,action", "0 to 1"},
		{flip(`, "negate": {"action": [-1]}`), "cam,action", "0 to 1"},
		{flip(`, "swap": {"action": [[0, 1], [1, 0]]}`), "cam,action", "once"},
		{flip(`, "negate": {"acton": [0]}`), "cam,action", "action"},
		{flip(`, "keep": ["action"], "negate": {"action": [0]}`), "cam,action", "one of them"},
		{flip(`, "negate": {"done": [0]}`), "cam,done", "sign"},
		{flip(`, "keep": ["cam", "action"]`), "cam,action", "mirrored"},
		{`{"noise": {"std": -1}}`, "cam", "std"},
		{`{"noise": {"std": {"action": -1}}}`, "cam,action", "std"},
		{`{"noise": {"std": {"count": 1}}}`, "cam,count", "floating"},
		{`{"noise": {}}`, "cam", "std"},
		{`{"noise": {"std": {"actoin": 1}}}`, "cam,action", "action"},
		{flip(`, "keep": [` + all + `]`), "", ""},
	} {
		var cfg options.Config
		text := `{"augment": ` + x.text + `}`
		if x.keys != "" {
			list, _ := json.Marshal(strings.Split(x.keys, ","))
			text = fmt.Sprintf(`{"augment": %s, "keys": %s}`, x.text, list)
		}
		cfg, err := options.ParseConfig([]byte(text))
		if err == nil {
			var l *Loader
			if l, err = New(bg, f, cfg); err == nil {
				l.Close()
			}
		}
		if x.says == "" && err == nil {
			continue
		}
		if x.says != "" &&
			(!errors.Is(err, robocache.ErrMisuse) || !strings.Contains(err.Error(), x.says)) ||
			x.says == "" && !errors.Is(err, robocache.ErrMisuse) {
			t.Errorf("%s: %v, not %q", x.text, err, x.says)
		}
	}
	if _, err := NewMap(bg, f, options.Config{Augment: &Augment{}}); !errors.Is(err,
		robocache.ErrUnsupported) {
		t.Error(err)
	}
	moved := `{"keys": ["cam", "depth"], "image_transform": [{"random_crop": [2, 2]}]}`
	cfg, err := options.ParseConfig([]byte(moved))
	if err == nil {
		_, err = New(bg, f, cfg)
	}
	if !errors.Is(err, robocache.ErrMisuse) || !strings.Contains(err.Error(), "depth") {
		t.Errorf("%s: %v", moved, err)
	}
}
