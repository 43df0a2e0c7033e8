package loader

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/loader/internal/column"
	"github.com/goatnote-inc/robocache/loader/internal/layout"
	"github.com/goatnote-inc/robocache/loader/internal/order"
	"github.com/goatnote-inc/robocache/loader/internal/plan"
	"github.com/goatnote-inc/robocache/loader/options"
)

var bg = context.Background()

func mustLoader(t testing.TB, ds robocache.Dataset, cfg options.Config) *Loader {
	t.Helper()
	l, err := New(bg, ds, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// epochOf takes the rest of an epoch: the samples in order, after checking every batch.
func epochOf(t testing.TB, f *fake, l *Loader) (samples []int64, batches int) {
	t.Helper()
	for {
		b, err := l.Next(bg)
		if err == io.EOF {
			return samples, batches
		}
		if err != nil {
			t.Fatal(err)
		}
		if f != nil {
			checkBatch(t, f, l.config, b)
		}
		samples = append(samples, b.Indices...)
		batches++
		b.Release()
	}
}

// checkBatch proves every value of a batch of the fake.
func checkBatch(t testing.TB, f *fake, cfg options.Config, b *layout.Batch) {
	t.Helper()
	rows, err := (&plan.Plan{
		Sources: []*plan.Source{{DataSource: column.DataSource{Table: fakeTable(t, f, cfg)}}},
	}).RowsOf(
		b.Indices,
	)
	if err != nil {
		t.Fatal(err)
	}
	window := func(key string) []int {
		out := []int{}
		for _, s := range cfg.Deltas.Of(key) {
			out = append(out, int(s*10+1000.5)-1000)
		}
		if len(out) == 0 {
			return []int{0}
		}
		return out
	}
	if s := b.Tensor("observation.state"); s != nil {
		v := column.Floats32(s.Data)
		k := 0
		for _, r := range rows {
			for _, o := range window("observation.state") {
				i := min(max(r.Index+o, 0), f.lengths[r.Episode]-1)
				for c := range 3 {
					if v[k] != stateValue(robocache.Row{Episode: r.Episode, Index: i}, c) {
						t.Fatalf("state of %v offset %d is %v", r, o, v[k])
					}
					k++
				}
			}
		}
	}
	for _, camera := range []string{"cam", "wide"} {
		c := b.Tensor(camera)
		if c == nil {
			continue
		}
		want := make(
			[]byte,
			c.Shape[len(c.Shape)-3]*c.Shape[len(c.Shape)-2]*c.Shape[len(c.Shape)-1],
		)
		k := 0
		for _, r := range rows {
			for _, o := range window(camera) {
				i := min(max(r.Index+o, 0), f.lengths[r.Episode]-1)
				ref := make([]robocache.FrameRef, 1)
				f.Frames(bg, camera, []robocache.Row{{Episode: r.Episode, Index: i}}, ref)
				fillFrame(want, ref[0].Path, ref[0].Ordinal)
				if !bytes.Equal(want, c.Data[k*len(want):(k+1)*len(want)]) {
					t.Fatalf("frame of %v offset %d is another one", r, o)
				}
				k++
			}
		}
	}
	for _, d := range cfg.Deltas {
		m := b.Tensor(d.Key + "_is_pad")
		if m == nil {
			t.Fatalf("no mask of %s", d.Key)
		}
		k := 0
		for _, r := range rows {
			for _, o := range window(d.Key) {
				want := byte(0)
				if i := r.Index + o; i < 0 || i >= f.lengths[r.Episode] {
					want = 1
				}
				if m.Data[k] != want {
					t.Fatalf("mask of %s, %v offset %d is %d", d.Key, r, o, m.Data[k])
				}
				k++
			}
		}
	}
	if s := b.Text("label"); s != nil {
		for i, r := range rows {
			if s[i] != fmt.Sprintf(`"label %d %d"`, r.Episode, r.Index) {
				t.Fatalf("label of %v is %s", r, s[i])
			}
		}
	}
}

func fakeTable(t testing.TB, f *fake, cfg options.Config) *order.Table {
	tab, err := order.NewTable(
		len(f.lengths),
		order.Selection{Positions: cfg.Episodes, First: cfg.DropFirst, Last: cfg.DropTail},
		nil,
		func(e int) (int, int64, error) { return f.lengths[e], 0, nil },
		false,
	)
	if err != nil {
		t.Fatal(err)
	}
	return tab
}

func deltas(kv ...any) (d Deltas) {
	for i := 0; i < len(kv); i += 2 {
		d = append(d, Delta{Key: kv[i].(string), Offsets: kv[i+1].([]float64)})
	}
	return d
}

// loader.L1, loader.L2, loader.L4, loader.L6: random configurations give exactly the order, right
// values, right windows, at any threads and prefetch.
func TestEpochs(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	for round := range 40 {
		f := newFake(lengthsFor(uint64(round), 1+rng.IntN(9), 1, 30)...)
		f.gop = 1 + rng.IntN(12)
		cfg := options.Config{
			Order: options.Order{
				BatchSize: 1 + rng.IntN(20),
				Shuffle:   Global,
				Seed:      int64(round),
			},
			Runtime: options.Runtime{Threads: 1 + rng.IntN(6), Prefetch: 1 + rng.IntN(5)},
		}
		if rng.IntN(3) == 0 {
			cfg.Shuffle = FileOrder
		}
		if rng.IntN(2) == 0 {
			cfg.Deltas = deltas(
				"cam",
				[]float64{-0.3, 0, 0.1},
				"observation.state",
				[]float64{-0.1, 0, 0.1, 0.5},
				"action",
				[]float64{0},
			)
		}
		l := mustLoader(t, f, cfg)
		for epoch := range int64(2) {
			if l.Epoch() != epoch {
				t.Fatalf("epoch %d, expected %d", l.Epoch(), epoch)
			}
			o := l.Order(epoch)
			want := make([]int64, o.Len())
			o.Fill(want, 0)
			length := l.Len()
			got, batches := epochOf(t, f, l)
			if !slices.Equal(got, want) {
				t.Fatalf("round %d: the samples are not in the order that Order says", round)
			}
			if int64(batches) != length {
				t.Fatalf("%d batches, Len says %d", batches, length)
			}
		}
		l.Close()
		if n := f.opened.Load(); n != 0 {
			t.Fatalf("%d files were not given back", n)
		}
	}
}

// loader.L7: overlapping windows decode each frame once a horizon.
func TestEachFrameOnce(t *testing.T) {
	f := newFake(200)
	f.gop = 1
	l := mustLoader(
		t,
		f,
		options.Config{
			Order:   options.Order{BatchSize: 20},
			Runtime: options.Runtime{Prefetch: 2, Threads: 3},
			Windows: options.Windows{
				Keys:   []string{"cam"},
				Deltas: deltas("cam", []float64{-0.7, -0.6, -0.5, -0.4, -0.3, -0.2, -0.1, 0}),
			},
		},
	)
	epochOf(t, f, l)
	s := l.Stats()
	if s.Frames != 1600 {
		t.Errorf("%d frames in batches", s.Frames)
	}
	// Horizons of 20, then 40 anchors: each but the first needs 7 frames of the one before.
	if s.FramesUnique > 200+7*6 || f.decoded.Load() != s.FramesUnique {
		t.Errorf("%d frames converted, %d decoded for 200", s.FramesUnique, f.decoded.Load())
	}
}

// loader.L12: nothing is read for keys that were not asked for.
func TestKeysPrune(t *testing.T) {
	f := newFake(10, 12)
	l := mustLoader(
		t,
		f,
		options.Config{
			Order:   options.Order{BatchSize: 4},
			Windows: options.Windows{Keys: []string{"action", "task"}},
		},
	)
	epochOf(t, f, l)
	for _, k := range []string{"cam", "observation.state", "label", "index"} {
		if f.touched[k] != 0 {
			t.Errorf("%s was read", k)
		}
	}
	var keys []string
	for _, x := range l.Fields() {
		keys = append(keys, x.Key)
	}
	if !slices.Equal(keys, []string{"action", "task"}) {
		t.Errorf("keys %v", keys)
	}
}

// TestMapConcurrent checks that concurrent callers get what one caller gets.
func TestMapConcurrent(t *testing.T) {
	f := newFake(lengthsFor(1, 6, 10, 30)...)
	m, err := NewMap(
		bg,
		f,
		options.Config{
			Runtime: options.Runtime{Threads: 3},
			Windows: options.Windows{Deltas: deltas("cam", []float64{-0.2, 0})},
		},
	)
	if err != nil {
		t.Fatal(err)
	}
	errs := make(chan error, 8)
	for g := range 8 {
		go func() {
			rng := rand.New(rand.NewPCG(uint64(g), 0))
			for range 30 {
				idx := make([]int64, 1+rng.IntN(12))
				for i := range idx {
					idx[i] = rng.Int64N(m.Len())
				}
				b, err := m.Items(bg, idx)
				if err != nil {
					errs <- err
					return
				}
				checkBatch(t, f, m.assembler.Config, b)
				b.Release()
			}
			errs <- nil
		}()
	}
	for range 8 {
		if err := <-errs; err != nil {
			t.Fatal(err)
		}
	}
	m.Close()
	if _, err := m.Items(bg, []int64{0}); !errors.Is(err, robocache.ErrMisuse) {
		t.Errorf("after Close: %v", err)
	}
	if m.assembler.Buffers.InUse.Load() != 0 || f.opened.Load() != 0 {
		t.Error("something was not given back")
	}
}

// TestEarliestBatchFirst checks that the frames of the earliest batch are decoded first, and that
// the first horizon is one batch.
func TestEarliestBatchFirst(t *testing.T) {
	f := newFake(lengthsFor(1, 12, 10, 20)...)
	f.gop = 1
	var order []string
	// one thread
	f.seen = func(path string, ordinal int) { order = append(order, fmt.Sprint(path, ordinal)) }
	const batch = 8
	l := mustLoader(
		t,
		f,
		options.Config{
			Order:   options.Order{BatchSize: batch, Shuffle: Global},
			Runtime: options.Runtime{Threads: 1, Prefetch: 4},
			Windows: options.Windows{Keys: []string{"cam"}},
		},
	)
	epochOf(t, f, l)
	l.Close()
	batchOf := map[string]int{}
	for p := range l.Samples() {
		rows, err := l.Rows([]int64{l.Order(0).At(p)})
		if err != nil {
			t.Fatal(err)
		}
		ref := make([]robocache.FrameRef, 1)
		if err := f.Frames(bg, "cam", rows, ref); err != nil {
			t.Fatal(err)
		}
		batchOf[fmt.Sprint(ref[0].Path, ref[0].Ordinal)] = int(p) / batch
	}
	at := 0
	for i, name := range order[:l.Samples()] {
		if b := batchOf[name]; b < at {
			t.Fatalf("frame %d is of batch %d, after one of batch %d", i, b, at)
		} else {
			at = b
		}
	}
}

// The first batch does not wait for a horizon.
func TestFirstBatchIsPlannedAlone(t *testing.T) {
	f := newFake(100)
	f.gop = 1
	f.slow = time.Millisecond
	l := mustLoader(
		t,
		f,
		options.Config{
			Order:   options.Order{BatchSize: 10},
			Runtime: options.Runtime{Threads: 1, Prefetch: 4},
			Windows: options.Windows{
				Keys:   []string{"cam"},
				Deltas: deltas("cam", []float64{0, 0.1, 0.2}),
			},
		},
	)
	b, err := l.Next(bg)
	if err != nil {
		t.Fatal(err)
	}
	b.Release()
	if s := l.Stats(); s.FramesUnique > 20 {
		t.Errorf("%d frames were decoded for the first 10 samples", s.FramesUnique)
	}
}
