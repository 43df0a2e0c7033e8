package loader

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/loader/internal/column"
	"github.com/goatnote-inc/robocache/loader/internal/layout"
	"github.com/goatnote-inc/robocache/loader/options"
)

func clocksConfig() options.Config {
	return options.Config{
		Order:   options.Order{BatchSize: 8, Shuffle: Global, Seed: 3},
		Runtime: options.Runtime{Threads: 3},
		Windows: options.Windows{Native: NativeWindows{
			{Key: "imu", Span: &[2]float64{-0.1, 0}},
			{Key: "joints", Span: &[2]float64{-0.2, 0}, Count: 4},
		}},
	}
}

// loader.L4, loader.L5: batches of several clocks are a function of their samples, and go on from a
// state.
func TestSeveralClocksResume(t *testing.T) {
	r := newRobot(1.5, 1.2, 2.8)
	type seen map[string]string
	read := func(l *Loader) []seen {
		var out []seen
		for {
			b, err := l.Next(bg)
			if err == io.EOF {
				return out
			}
			if err != nil {
				t.Fatal(err)
			}
			s := seen{}
			for i := range b.Tensors {
				s[b.Tensors[i].Key] = string(b.Tensors[i].Data)
			}
			out = append(out, s)
			b.Release()
		}
	}
	for _, shuffle := range []Shuffle{Global, Pool, FileOrder} {
		cfg := clocksConfig()
		cfg.Shuffle = shuffle
		whole := read(mustLoader(t, r, cfg))
		cfg.Threads, cfg.Prefetch = 1, 1
		l := mustLoader(t, r, cfg)
		for range 3 {
			b, err := l.Next(bg)
			if err != nil {
				t.Fatal(err)
			}
			b.Release()
		}
		state := l.State()
		cfg.Threads, cfg.Cache = 2, "ram"
		again := mustLoader(t, r, cfg)
		if err := again.Restore(state, false); err != nil {
			t.Fatal(err)
		}
		rest := read(again)
		if len(rest) != len(whole)-3 {
			t.Fatalf("%s: %d batches, expected %d", shuffle, len(rest), len(whole)-3)
		}
		for i := range rest {
			for k, v := range rest[i] {
				if v != whole[i+3][k] {
					t.Fatalf("%s: batch %d after the resume, %s differs", shuffle, i, k)
				}
			}
		}
	}
}

// TestRaggedBudget checks loader.L28: ragged tensors stay within the budget. A batch that does not
// fit is an error with key and bytes. Batches that do not fit together are built one by one.
func TestRaggedBudget(t *testing.T) {
	r := newRobot(6, 6)
	cfg := options.Config{
		Order: options.Order{BatchSize: 64},
		Windows: options.Windows{
			Keys:   []string{"imu"},
			Native: NativeWindows{{Key: "imu", Span: &[2]float64{-2, 0}}},
		},
		Runtime: options.Runtime{MemoryBudget: 1 << 20},
	} // 64 × 666 × 16 B = 680 KB, less at the start
	l := mustLoader(t, r, cfg)
	var err error
	for err == nil {
		var b *layout.Batch
		if b, err = l.Next(bg); err == nil {
			b.Release()
		}
	}
	var e *robocache.Error
	if !errors.As(err, &e) || !errors.Is(err, robocache.ErrResourceLimit) ||
		e.Where["stream"] != "imu" && e.Where["stream"] != "imu_times" ||
		e.Where["bytes"] == nil {
		t.Fatalf("%v", err)
	}
	cfg.MemoryBudget, cfg.Prefetch = 2<<20, 8
	l = mustLoader(t, r, cfg)
	samples := int64(0)
	for {
		b, err := l.Next(bg)
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		samples += int64(b.Rows)
		l.assembler.Ragged.Mu.Lock()
		now := l.assembler.Ragged.InFlight
		l.assembler.Ragged.Mu.Unlock()
		if now > l.assembler.Budget {
			t.Fatalf("%d bytes in flight, the budget is %d", now, l.assembler.Budget)
		}
		b.Release()
	}
	if samples != l.Samples() {
		t.Errorf("%d samples of %d", samples, l.Samples())
	}
	if _, err := New(bg, r, options.Config{
		Device:  options.Device{Raw: true},
		Windows: options.Windows{Keys: []string{"points"}},
	}); !errors.Is(err,
		robocache.ErrUnsupported) {
		t.Errorf("raw: %v", err)
	}
}

// TestMixtureOfClocks checks loader.L24 for a dataset of one clock and one of several, on common
// keys: each source delivers what it delivers alone.
func TestMixtureOfClocks(t *testing.T) {
	f := newFake(20, 9)
	r := newRobot(1.5, 1.2)
	r.info.Feature("joints").Key = "observation.state"
	keys := []string{"observation.state", "points"}
	cfg := options.Config{
		Order: options.Order{BatchSize: 16, Shuffle: Global},
		Windows: options.Windows{
			Missing: "pad",
			Keys:    keys,
			Deltas:  deltas("observation.state", []float64{-0.1, 0}),
		},
	}
	l, err := NewMix(
		bg,
		[]options.Mix{{Dataset: f, Name: "one"}, {Dataset: r, Name: "several"}},
		cfg,
	)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	alone := mustMap(t, r, options.Config{Windows: options.Windows{Keys: keys, Deltas: cfg.Deltas}})
	own := mustMap(
		t,
		f,
		options.Config{Windows: options.Windows{Keys: keys[:1], Deltas: cfg.Deltas}},
	)
	n := 0
	for {
		b, err := l.Next(bg)
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		at := 0
		for i, s := range b.Indices {
			lengths := column.AsSlice[int64](b.Tensor("points_lengths").Data)[i]
			m := own
			pad := b.Tensor("points_is_pad").Data[i]
			if s >= own.Len() {
				m, s = alone, s-own.Len()
			} else if lengths != 0 || pad != 1 {
				t.Fatalf("a source without clouds gives %d points, mask %d", lengths, pad)
			}
			want, err := m.Items(bg, []int64{s})
			if err != nil {
				t.Fatal(err)
			}
			for _, key := range []string{"observation.state", "observation.state_is_pad"} {
				x, y := b.Tensor(key), want.Tensor(key)
				if size := len(y.Data); !bytes.Equal(x.Data[i*size:(i+1)*size], y.Data) {
					t.Fatalf("%s of sample %d differs", key, s)
				}
			}
			if m == alone {
				p := want.Tensor("points")
				if int(lengths) != p.Shape[0] ||
					!bytes.Equal(b.Tensor("points").Data[at:at+len(p.Data)], p.Data) {
					t.Fatalf("the cloud of sample %d differs", s)
				}
				at += len(p.Data)
			}
			want.Release()
			n++
		}
		b.Release()
	}
	if int64(n) != l.Samples() {
		t.Errorf("%d samples", n)
	}
}
