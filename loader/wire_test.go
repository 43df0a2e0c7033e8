package loader

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/align"
	"github.com/goatnote-inc/robocache/kernel"
	"github.com/goatnote-inc/robocache/loader/internal/layout"
	"github.com/goatnote-inc/robocache/loader/internal/plan"
	"github.com/goatnote-inc/robocache/loader/options"
)

// finished finishes a raw batch like a device: it copies the buffers and runs the operation.
func finished(t *testing.T, l *Loader, b *layout.Batch) [][]byte {
	t.Helper()
	f, err := l.Finish(b.Rows)
	if err != nil {
		t.Fatal(err)
	}
	buffers, _ := b.Buffers()
	if len(buffers) != len(f.Buffers) {
		t.Fatalf("%d buffers, Finish says %d", len(buffers), len(f.Buffers))
	}
	moved := make([][]byte, len(buffers))
	for i := range buffers {
		if len(buffers[i].Data) != f.Buffers[i] {
			t.Fatalf(
				"buffer %d has %d bytes, Finish says %d",
				i,
				len(buffers[i].Data),
				f.Buffers[i],
			)
		}
		moved[i] = bytes.Clone(buffers[i].Data)
	}
	made := make([][]byte, len(f.Outputs))
	for i := range made {
		made[i] = bytes.Repeat([]byte{0xa5}, f.Outputs[i].Bytes)
	}
	at := func(p plan.Place) []byte {
		if p.Output {
			return made[p.Index]
		}
		return moved[p.Index][p.Offset:]
	}
	if f.Op != nil {
		tensors := f.Op.Tensors()
		if len(tensors) != len(f.Places) {
			t.Fatalf("%d tensors, %d places", len(tensors), len(f.Places))
		}
		for i, x := range tensors {
			x.Data = at(f.Places[i])[:x.Len()*x.DType.Size()]
		}
		if err := (kernel.Reference{}).Run(f.Op); err != nil {
			t.Fatal(err)
		}
	}
	if f.Images != nil {
		for i, x := range f.Images.Tensors() {
			x.Data = at(f.Drawn[i])[:x.Len()*x.DType.Size()]
		}
		if err := (kernel.Reference{}).Run(f.Images); err != nil {
			t.Fatal(err)
		}
	}
	var out [][]byte
	for i, p := range f.Fields {
		_ = i
		out = append(out, at(p))
	}
	return out
}

// loader.L25: a raw batch, finished by one op, is the batch that the loader makes itself, to the
// bit; and each stored byte is in it once.
func TestRawBatchesFinishToTheSame(t *testing.T) {
	stats := map[string]Norm{
		"observation.state": {
			Mode: "mean_std",
			Mean: []float64{1, 500, 3},
			Std:  []float64{2, 0, 7},
		},
		"action": {
			Mode: "min_max",
			Low:  []float64{-3, 2},
			High: []float64{900, 2000},
			Clip: true,
		},
		"cam": {
			Mode: "mean_std",
			Mean: []float64{0.4, 0.5, 0.6},
			Std:  []float64{0.2, 0.3, 0.4},
		},
	}
	hz := &robocache.Rate{Num: 23, Den: 1}
	window := deltas("observation.state", []float64{-0.3, 0, 0.1}, "cam", []float64{0, 0.2})
	for name, c := range map[string]struct {
		cfg options.Config
		mix bool
		raw int // tensors that are left to do
	}{
		"plain": {options.Config{}, false, 0},
		"float frames": {
			options.Config{Images: options.Images{ImageDType: "float32"}},
			false,
			2,
		},
		"normalised": {
			options.Config{
				Images:     options.Images{ImageDType: "float32"},
				Statistics: options.Statistics{Normalize: Normalize{Keys: stats}},
				Windows:    options.Windows{Deltas: window},
			},
			false,
			4,
		},
		"lerobot's types": {
			options.Config{Windows: options.Windows{Compat: "lerobot"}},
			false,
			3,
		},
		"timeline": {
			options.Config{Windows: options.Windows{Hz: hz, Deltas: window}},
			false,
			2,
		},
		"timeline, masked": {
			options.Config{
				Align: &align.Config{
					HZ:     *hz,
					Extent: "union",
					Edge:   align.PerKey[align.Edge]{All: align.EdgeMask},
					Offset: map[string]align.Nanos{"cam": 350e6, "action": -420e6},
				},
				Windows:    options.Windows{Hz: hz, Deltas: window},
				Images:     options.Images{ImageDType: "float32"},
				Statistics: options.Statistics{Normalize: Normalize{Keys: stats}},
			},
			false,
			4,
		},
		"modes": {
			options.Config{
				Align: &align.Config{
					HZ: *hz,
					Modes: map[string]align.Mode{
						"observation.state": align.Angle,
						"action":            align.Mean,
					},
				},
				Windows: options.Windows{Hz: hz},
			},
			false,
			1,
		},
		"mixture": {
			options.Config{
				Images:     options.Images{ImageDType: "float32"},
				Statistics: options.Statistics{Normalize: Normalize{Keys: stats}},
			},
			true,
			4,
		},
		"augmented": {
			options.Config{
				Augment: augmentOf(t, fullAugment),
				Windows: options.Windows{Deltas: window},
			},
			false,
			2,
		},
		"augmented floats": {
			options.Config{
				Augment:    augmentOf(t, fullAugment),
				Images:     options.Images{ImageDType: "float32"},
				Windows:    options.Windows{Deltas: window},
				Statistics: options.Statistics{Normalize: Normalize{Keys: stats}},
			},
			false,
			2,
		},
		"augmented, masked": {
			options.Config{
				Augment: augmentOf(t, fullAugment),
				Align: &align.Config{
					HZ:     *hz,
					Extent: "union",
					Edge:   align.PerKey[align.Edge]{All: align.EdgeMask},
					Offset: map[string]align.Nanos{"cam": 350e6, "action": -420e6},
				},
				Images:     options.Images{ImageDType: "float32"},
				Windows:    options.Windows{Hz: hz, Deltas: window},
				Statistics: options.Statistics{Normalize: Normalize{Keys: stats}},
			},
			false,
			2,
		},
		"augmented mixture": {
			options.Config{
				Augment: augmentOf(t, fullAugment),
				Images:  options.Images{ImageDType: "float32"},
			},
			true,
			2,
		},
		"steps, channels last": {
			options.Config{
				Images: options.Images{
					ImageDType:  "float32",
					ImageLayout: options.ChannelsLast,
					Transform: []options.ImageStep{
						{Letterbox: true},
						{SmallestSide: 9},
						{RandomCrop: options.Extent{0.8}},
						{SmallestSide: 5},
						{Rotation: options.Spread{40}},
						{Jitter: &options.ColorJitter{Hue: options.Spread{0.1}}},
					},
				},
				Windows:    options.Windows{Deltas: window},
				Statistics: options.Statistics{Normalize: Normalize{Keys: stats}},
			},
			false,
			4,
		},
		"mixture, own ways": {
			options.Config{
				Images:  options.Images{ImageDType: "float32"},
				Windows: options.Windows{Missing: "pad"},
			},
			true,
			1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := c.cfg
			cfg.BatchSize, cfg.Shuffle, cfg.Threads = 7, Global, 2
			var mix []options.Mix
			for i := range 1 + b2i(c.mix) {
				f := newFake(11, 5, 9).withStills()
				f.late = func(key string, e int) int64 { return int64(len(key)) * 3_000_000 }
				m := options.Mix{Dataset: f}
				if i == 1 && cfg.Missing == "pad" {
					m.Keys = []string{
						"cam",
						"action",
					} // img and state are padded: zeros, which no normalisation may touch
					m.Normalize = &Normalize{Keys: map[string]Norm{"action": stats["action"]}}
				}
				mix = append(mix, m)
			}
			want, err := NewMix(bg, mix, cfg)
			if err != nil {
				t.Fatal(err)
			}
			defer want.Close()
			if _, err := want.Finish(7); !errors.Is(err, robocache.ErrMisuse) {
				t.Errorf("Finish of finished batches: %v", err)
			}
			cfg.Raw = true
			raw, err := NewMix(bg, mix, cfg)
			if err != nil {
				t.Fatal(err)
			}
			defer raw.Close()
			for _, n := range []int{-1, raw.config.BatchSize + 1, 1 << 62} {
				if _, err := raw.Finish(n); !errors.Is(err, robocache.ErrMisuse) {
					t.Errorf("a batch of %d samples is finished: %v", n, err)
				}
			}
			if f, _ := raw.Finish(7); len(f.Outputs) != c.raw {
				t.Errorf("%d tensors are left to do, want %d", len(f.Outputs), c.raw)
			}
			if x, y := raw.Fields(), want.Fields(); len(x) != len(y) {
				t.Fatalf("fields %v, want %v", x, y)
			}
			for n := 0; ; n++ {
				w, err := want.Next(bg)
				r, rerr := raw.Next(bg)
				if errors.Is(err, io.EOF) && errors.Is(rerr, io.EOF) {
					if n < 2 {
						t.Fatalf("%d batches", n)
					}
					break
				}
				if err != nil || rerr != nil {
					t.Fatal(err, rerr)
				}
				got := finished(t, raw, r)
				k := 0
				for i := range w.Fields {
					x, _ := w.Entry(i)
					if x == nil {
						continue
					}
					if !bytes.Equal(got[k][:len(x.Data)], x.Data) {
						t.Fatalf("batch %d: %s differs", n, x.Key)
					}
					k++
				}
				w.Release()
				r.Release()
			}
		})
	}
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}
