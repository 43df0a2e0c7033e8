package loader

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/align"
)

var bg = context.Background()

func mustLoader(t testing.TB, ds robocache.Dataset, cfg Config) *Loader {
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
			checkBatch(t, f, l.cfg, b)
		}
		samples = append(samples, b.Indices...)
		batches++
		b.Release()
	}
}

// checkBatch proves every value of a batch of the fake.
func checkBatch(t testing.TB, f *fake, cfg Config, b *Batch) {
	t.Helper()
	rows, err := (&assembler{table: fakeTable(t, f, cfg)}).rowsOf(b.Indices)
	if err != nil {
		t.Fatal(err)
	}
	window := func(key string) []int {
		out := []int{}
		for _, s := range cfg.Deltas.of(key) {
			out = append(out, int(s*10+1000.5)-1000)
		}
		if len(out) == 0 {
			return []int{0}
		}
		return out
	}
	if s := b.Tensor("observation.state"); s != nil {
		v := floats32(s.Data)
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
	if c := b.Tensor("cam"); c != nil {
		want := make([]byte, 3*fakeW*fakeH)
		k := 0
		for _, r := range rows {
			for _, o := range window("cam") {
				i := min(max(r.Index+o, 0), f.lengths[r.Episode]-1)
				ref := make([]robocache.FrameRef, 1)
				f.Frames(bg, "cam", []robocache.Row{{Episode: r.Episode, Index: i}}, ref)
				fillPicture(want, ref[0].Path, ref[0].Ordinal)
				if !bytes.Equal(want, c.Data[k*len(want):(k+1)*len(want)]) {
					t.Fatalf("picture of %v offset %d is another one", r, o)
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

func fakeTable(t testing.TB, f *fake, cfg Config) *table {
	tab, err := newTable(len(f.lengths), &cfg, nil, func(e int) (int, int64, error) { return f.lengths[e], 0, nil }, false)
	if err != nil {
		t.Fatal(err)
	}
	return tab
}

func deltas(kv ...any) (d Deltas) {
	for i := 0; i < len(kv); i += 2 {
		d = append(d, Delta{kv[i].(string), kv[i+1].([]float64)})
	}
	return d
}

// L1, L2, L4, L6: random configurations give exactly the order, right values, right windows, at any threads and prefetch.
func TestEpochs(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	for round := range 40 {
		f := newFake(lengthsFor(uint64(round), 1+rng.IntN(9), 1, 30)...)
		f.gop = 1 + rng.IntN(12)
		cfg := Config{BatchSize: 1 + rng.IntN(20), Shuffle: Global, Seed: int64(round), Threads: 1 + rng.IntN(6), Prefetch: 1 + rng.IntN(5)}
		if rng.IntN(3) == 0 {
			cfg.Shuffle = FileOrder
		}
		if rng.IntN(2) == 0 {
			cfg.Deltas = deltas("cam", []float64{-0.3, 0, 0.1}, "observation.state", []float64{-0.1, 0, 0.1, 0.5}, "action", []float64{0})
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

// L7: overlapping windows decode each picture once a horizon.
func TestEachPictureOnce(t *testing.T) {
	f := newFake(200)
	f.gop = 1
	l := mustLoader(t, f, Config{BatchSize: 20, Prefetch: 2, Threads: 3, Keys: []string{"cam"}, Deltas: deltas("cam", []float64{-0.7, -0.6, -0.5, -0.4, -0.3, -0.2, -0.1, 0})})
	epochOf(t, f, l)
	s := l.Stats()
	if s.Frames != 1600 {
		t.Errorf("%d pictures in batches", s.Frames)
	}
	// Horizons of 20, then 40 anchors: each but the first needs 7 pictures of the one before.
	if s.FramesUnique > 200+7*6 || f.decoded.Load() != s.FramesUnique {
		t.Errorf("%d pictures converted, %d decoded for 200", s.FramesUnique, f.decoded.Load())
	}
}

// L12: nothing is read for keys that were not asked for.
func TestKeysPrune(t *testing.T) {
	f := newFake(10, 12)
	l := mustLoader(t, f, Config{BatchSize: 4, Keys: []string{"action", "task"}})
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

func TestKeyOrderAndDTypes(t *testing.T) {
	f := newFake(10)
	d := deltas("action", []float64{0, 0.1}, "cam", []float64{0}, "count", []float64{0})
	for compat, want := range map[string]string{
		"":        "cam uint8 [1 3 4 6]; observation.state float32 [3]; action float64 [2 2]; count int16 [1]; done bool []; label string []; language_events json []; index int64 []; action_is_pad bool [2]; cam_is_pad bool [1]; count_is_pad bool [1]; task string []",
		"lerobot": "cam float32 [3 4 6]; observation.state float32 [3]; action float32 [2 2]; count int64 [1]; done bool []; label string []; language_events json []; index int64 []; action_is_pad bool [2]; cam_is_pad bool [1]; count_is_pad bool [1]; task string []",
	} {
		m, err := NewMap(bg, f, Config{Compat: compat, Deltas: d})
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
	m, err := NewMap(bg, f, Config{Compat: "lerobot", Keys: []string{"action", "count"}})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	b, err := m.Items(bg, []int64{3, 19, 3})
	if err != nil {
		t.Fatal(err)
	}
	a, c := floats32(b.Tensor("action").Data), view[int64](b.Tensor("count").Data)
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

// L5: cut anywhere, go on at another batch size, world and thread count: the concatenation is the order.
func TestResume(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 9))
	f := newFake(lengthsFor(4, 7, 3, 40)...)
	whole := newOrder(Global, 11, 0, fakeTable(t, f, Config{}).samples())
	n := whole.Len()
	for range 30 {
		var state *State
		position := int64(0)
		var got []int64
		for position < n {
			world := 1 + rng.IntN(4)
			batch := 1 + rng.IntN(16)
			steps := 1 + rng.IntN(4)
			parts := make([][]int64, 0, world*steps)
			var next State
			var wrapped int64
			for rank := range world {
				l := mustLoader(t, f, Config{BatchSize: batch, WorldSize: world, Rank: rank, Shuffle: Global, Seed: 11, Threads: 1 + rng.IntN(3), Keys: []string{"index"}})
				if state != nil {
					raw, _ := json.Marshal(state)
					var s State
					if err := json.Unmarshal(raw, &s); err != nil {
						t.Fatal(err)
					}
					if err := l.Restore(s, false); err != nil {
						t.Fatal(err)
					}
				}
				for k := range steps {
					b, err := l.Next(bg)
					if err == io.EOF {
						break
					}
					if err != nil {
						t.Fatal(err)
					}
					for len(parts) <= k*world+rank {
						parts = append(parts, nil)
					}
					parts[k*world+rank] = slices.Clone(b.Indices)
					b.Release()
				}
				next = l.State()
				wrapped += l.Stats().Wrapped
				l.Close()
			}
			for _, p := range parts {
				got = append(got, p...)
			}
			got = got[:int64(len(got))-wrapped]
			if next.Epoch == 1 {
				position = n
			} else {
				position = next.Position
			}
			if position != int64(len(got)) {
				t.Fatalf("position %d after %d samples", position, len(got))
			}
			state = &next
		}
		want := make([]int64, n)
		whole.Fill(want, 0)
		if !slices.Equal(got, want) {
			t.Fatal("the resumed parts are not the unbroken order")
		}
		if state.Epoch != 1 || state.Position != 0 {
			t.Fatalf("at the end: %+v", *state)
		}
	}
}

func TestResumeAtTheEdges(t *testing.T) {
	f := newFake(10, 9)
	cfg := Config{BatchSize: 4, Shuffle: Global, Seed: 3, Keys: []string{"index"}}
	epochs := make([][]int64, 3)
	l := mustLoader(t, f, cfg)
	fresh := l.State()
	var afterLast State
	for e := range epochs {
		for {
			b, err := l.Next(bg)
			if err == io.EOF {
				break
			}
			epochs[e] = append(epochs[e], b.Indices...)
			b.Release()
			if e == 0 && len(epochs[0]) == 19 {
				afterLast = l.State()
			}
		}
	}
	if slices.Equal(epochs[0], epochs[1]) {
		t.Error("two epochs in one order")
	}
	try := func(name string, s State, want []int64, then ...func(*Loader)) {
		l := mustLoader(t, f, cfg)
		for range 2 { // twice in a row
			if err := l.Restore(s, false); err != nil {
				t.Fatal(name, err)
			}
		}
		for _, fn := range then {
			fn(l)
		}
		if got, _ := epochOf(t, nil, l); !slices.Equal(got, want) {
			t.Errorf("%s: another order", name)
		}
	}
	try("before the first batch", fresh, epochs[0])
	try("after the last batch", afterLast, epochs[1])
	try("after the last batch, then set_epoch of it", afterLast, epochs[1], func(l *Loader) { l.SetEpoch(1) })
	try("then another epoch", afterLast, epochs[2], func(l *Loader) { l.SetEpoch(2) })
	l = mustLoader(t, f, cfg)
	b, _ := l.Next(bg)
	b.Release()
	mid := l.State()
	try("in the middle, set_epoch keeps the place", mid, epochs[0][4:], func(l *Loader) { l.SetEpoch(0) })
	if err := l.SetEpoch(0); err != nil {
		t.Fatal(err)
	}
	if got, _ := epochOf(t, nil, l); !slices.Equal(got, epochs[0]) {
		t.Error("set_epoch in the middle of it does not begin it again")
	}
	other := mustLoader(t, newFake(10, 8), cfg)
	err := other.Restore(mid, false)
	if !errors.Is(err, robocache.ErrMisuse) || !strings.Contains(err.Error(), "samples") {
		t.Errorf("another dataset: %v", err)
	}
	if err := other.Restore(mid, true); err != nil {
		t.Errorf("forced: %v", err)
	}
	file := mustLoader(t, f, Config{BatchSize: 4, Keys: []string{"index"}})
	if err := file.Restore(mid, false); !errors.Is(err, robocache.ErrMisuse) {
		t.Errorf("another order mode: %v", err)
	}
	dropping := mustLoader(t, f, Config{BatchSize: 4, Shuffle: Global, Seed: 3, DropLast: true, Keys: []string{"index"}})
	if got, n := epochOf(t, nil, dropping); len(got) != 16 || n != 4 {
		t.Errorf("drop_last gives %d samples", len(got))
	}
}

// Memory: a batch that is held is never overwritten; released ones are used again.
func TestHeldBatchesStay(t *testing.T) {
	f := newFake(lengthsFor(2, 6, 20, 40)...)
	l := mustLoader(t, f, Config{BatchSize: 8, Shuffle: Global, Threads: 4, Keys: []string{"cam", "observation.state"}})
	var held []*Batch
	for {
		b, err := l.Next(bg)
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if len(held)%2 == 0 {
			held = append(held, b)
		} else {
			held = append(held, nil)
			b.Release()
			b.Release() // a second one does nothing
		}
	}
	for _, b := range held {
		if b != nil {
			checkBatch(t, f, l.cfg, b)
		}
	}
	l.Close()
	for _, b := range held {
		if b != nil {
			checkBatch(t, f, l.cfg, b)
			b.Release()
		}
	}
	if n := l.a.buffers.inUse.Load(); n != 0 {
		t.Errorf("%d bytes in use after all were released", n)
	}
}

// L10: the horizon shrinks to the budget; what cannot fit is refused by name.
func TestBudget(t *testing.T) {
	f := newFake(lengthsFor(2, 6, 20, 40)...)
	cfg := Config{BatchSize: 8, Shuffle: Global, Threads: 4, Prefetch: 8, Keys: []string{"cam"}}
	one := mustLoader(t, f, cfg).Stats().BatchBytes
	for _, batches := range []int64{1, 2, 3, 5} {
		cfg.MemoryBudget = Bytes((one*batches + 100) * 4 / 3)
		l := mustLoader(t, f, cfg)
		var peak int64
		for {
			b, err := l.Next(bg)
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			peak = max(peak, l.Stats().BufferPeak)
			b.Release()
		}
		if peak > one*(batches+1) { // one more is in the user's hands
			t.Errorf("budget of %d batches: peak %d bytes, a batch has %d", batches, peak, one)
		}
	}
	cfg.MemoryBudget = Bytes(one)
	if _, err := New(bg, f, cfg); !errors.Is(err, robocache.ErrResourceLimit) || !strings.Contains(err.Error(), "memory_budget") {
		t.Errorf("a batch above the budget: %v", err)
	}
}

// L11: cancel and close at any moment; nothing is left running.
func TestCancelAndClose(t *testing.T) {
	before := runtime.NumGoroutine()
	rng := rand.New(rand.NewPCG(3, 3))
	for range 25 {
		f := newFake(lengthsFor(7, 6, 20, 40)...)
		f.slow = time.Duration(rng.IntN(300)) * time.Microsecond
		l, err := New(bg, f, Config{BatchSize: 8, Shuffle: Global, Threads: 3, Keys: []string{"cam"}})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(bg, time.Duration(rng.IntN(5000))*time.Microsecond)
		done := make(chan error)
		go func() {
			for {
				b, err := l.Next(ctx)
				if err != nil {
					done <- err
					return
				}
				b.Release()
			}
		}()
		if rng.IntN(2) == 0 {
			time.Sleep(time.Duration(rng.IntN(3000)) * time.Microsecond)
			l.Close()
		}
		select {
		case err := <-done:
			if !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, robocache.ErrMisuse) && err != io.EOF {
				t.Errorf("Next ended with %v", err)
			}
		case <-time.After(5 * time.Second):
			t.Fatal("Next hangs")
		}
		cancel()
		l.Close()
		if n := l.a.buffers.inUse.Load(); n != 0 {
			t.Fatalf("%d bytes not given back", n)
		}
		if f.opened.Load() != 0 {
			t.Fatal("a file was not given back")
		}
	}
	for range 50 {
		if runtime.NumGoroutine() <= before {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Errorf("%d goroutines, %d before", runtime.NumGoroutine(), before)
}

// A cancelled Next loses nothing: the next one gives the batch.
func TestCancelledNextKeepsItsBatch(t *testing.T) {
	f := newFake(40)
	f.slow = 2 * time.Millisecond
	l := mustLoader(t, f, Config{BatchSize: 8, Shuffle: Global, Threads: 2, Keys: []string{"cam", "index"}})
	var got []int64
	for len(got) < 40 {
		ctx, cancel := context.WithTimeout(bg, time.Millisecond)
		b, err := l.Next(ctx)
		cancel()
		if err == nil {
			got = append(got, b.Indices...)
			b.Release()
		} else if !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
	}
	want := make([]int64, 40)
	l.Order(0).Fill(want, 0)
	if !slices.Equal(got, want) {
		t.Error("samples were lost or repeated")
	}
}

// L8: a missing picture is an error with its place; the loader stands where it stood.
func TestMissingPictureIsAnError(t *testing.T) {
	f := newFake(10, 10, 10)
	f.frames.missing = map[robocache.Row]bool{{Episode: 1, Index: 4}: true}
	l := mustLoader(t, f, Config{BatchSize: 5})
	for k := 0; ; k++ {
		b, err := l.Next(bg)
		if err != nil {
			if k != 2 || !errors.Is(err, robocache.ErrMalformed) {
				t.Fatalf("batch %d: %v", k, err)
			}
			for _, s := range []string{"episode 1", "row 4", "cam"} {
				if !strings.Contains(err.Error(), s) {
					t.Errorf("%v does not name %s", err, s)
				}
			}
			break
		}
		b.Release()
	}
	if s := l.State(); s.Position != 10 {
		t.Errorf("position %d after the error", s.Position)
	}
	f.frames.missing = nil // mended: the same batch comes
	b, err := l.Next(bg)
	if err != nil || b.Position != 10 {
		t.Fatalf("after the mend: %v", err)
	}
	b.Release()
}

// loader.md section 12: bad episodes are left out from the batch on where they were found; deterministic in threads and prefetch; in the state.
func TestSkip(t *testing.T) {
	faults := map[string]func(f *fake){
		"missing picture": func(f *fake) { f.frames.missing = map[robocache.Row]bool{{Episode: 2, Index: 3}: true} },
		"broken packet":   func(f *fake) { f.frames.broken = map[string]map[int]bool{"v0.mp4": {25: true}} },
		"lost file":       func(f *fake) { f.frames.lost = map[string]bool{"v1.mp4": true} },
		"bad row group": func(f *fake) {
			f.badRows = map[int]error{1: &robocache.Error{Class: robocache.ErrMalformed, Msg: "bad page"}, 4: &robocache.Error{Class: robocache.ErrMalformed, Msg: "bad page"}}
		},
	}
	for name, fault := range faults {
		var first []int64
		var bad []BadEpisode
		for _, how := range []Config{{Threads: 1, Prefetch: 1}, {Threads: 4, Prefetch: 6}, {Threads: 2, Prefetch: 3}} {
			f := newFake(12, 12, 12, 12, 12, 12)
			fault(f)
			cfg := Config{BatchSize: 7, Shuffle: Global, Seed: 8, OnBadEpisode: "skip", Threads: how.Threads, Prefetch: how.Prefetch}
			l := mustLoader(t, f, cfg)
			got, _ := epochOf(t, f, l)
			s := l.State()
			if first == nil {
				first, bad = got, s.BadEpisodes
				if len(bad) == 0 {
					t.Fatalf("%s: no episode was found bad", name)
				}
				if st := l.Stats(); st.Skipped+int64(len(got)) != 72 {
					t.Errorf("%s: %d skipped, %d given", name, st.Skipped, len(got))
				}
				isBad := map[int]bool{}
				for _, b := range bad {
					isBad[b.Episode] = true
				}
				second, _ := epochOf(t, f, l)
				if len(second) != 72-12*len(isBad) {
					t.Errorf("%s: the second epoch has %d samples with %d bad episodes", name, len(second), len(isBad))
				}
				// Resume in the second epoch.
				if err := l.Restore(s, false); err != nil {
					t.Fatal(err)
				}
				if again, _ := epochOf(t, f, l); !slices.Equal(again, second) {
					t.Errorf("%s: resumed with the list, the epoch is another", name)
				}
				continue
			}
			if !slices.Equal(got, first) {
				t.Errorf("%s: the order depends on threads or prefetch", name)
			}
			for i := range bad {
				if bad[i].Episode != s.BadEpisodes[i].Episode || bad[i].Position != s.BadEpisodes[i].Position {
					t.Errorf("%s: %+v, %+v", name, bad[i], s.BadEpisodes[i])
				}
			}
		}
	}
}

func TestSkipKeepsRanksEqual(t *testing.T) {
	counts := map[int]bool{}
	for rank := range 3 {
		f := newFake(12, 12, 12, 12)
		f.frames.missing = map[robocache.Row]bool{{Episode: 2, Index: 3}: true}
		l := mustLoader(t, f, Config{BatchSize: 4, WorldSize: 3, Rank: rank, Shuffle: Global, OnBadEpisode: "skip"})
		_, n := epochOf(t, f, l)
		counts[n] = true
	}
	if len(counts) != 1 {
		t.Errorf("ranks gave different numbers of batches: %v", counts)
	}
}

// All of one rank's samples are bad: an error, not a shorter epoch that leaves the other ranks waiting.
func TestSkipOfAWholeRank(t *testing.T) {
	f := newFake(4, 4)
	f.perFile = 1
	f.frames.lost = map[string]bool{"v1.mp4": true}
	l := mustLoader(t, f, Config{BatchSize: 4, WorldSize: 2, Rank: 1, OnBadEpisode: "skip"})
	if _, err := l.Next(bg); !errors.Is(err, robocache.ErrMalformed) {
		t.Errorf("%v", err)
	}
}

// No allocation per sample in the steady state: a batch of 512 costs as many as one of 16.
func TestAllocations(t *testing.T) {
	perBatch := func(size int) float64 {
		f := newFake(lengthsFor(1, 40, 200, 300)...)
		l := mustLoader(t, f, Config{BatchSize: size, Shuffle: Global, Threads: 2, Keys: []string{"observation.state", "action", "count"}, Compat: "lerobot", Deltas: deltas("action", []float64{0, 0.1, 0.2})})
		take := func(n int) {
			for range n {
				b, err := l.Next(bg)
				if err == io.EOF {
					b, err = l.Next(bg)
				}
				if err != nil {
					t.Fatal(err)
				}
				b.Release()
			}
		}
		take(4)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		take(12)
		runtime.ReadMemStats(&after)
		return float64(after.Mallocs-before.Mallocs) / 12
	}
	small, large := perBatch(16), perBatch(512)
	t.Logf("allocations a batch: %.0f of 16 samples, %.0f of 512", small, large)
	if large > small+24 {
		t.Errorf("%.0f allocations more for 496 samples more", large-small)
	}
}

// A stage without progress is an error, and the batch comes once the stage moves again.
func TestDeadline(t *testing.T) {
	f := newFake(10)
	f.gate = make(chan struct{})
	l := mustLoader(t, f, Config{BatchSize: 4, Deadline: 0.05, Keys: []string{"cam"}})
	_, err := l.Next(bg)
	if !errors.Is(err, robocache.ErrTemporary) || !strings.Contains(err.Error(), "4 more") {
		t.Fatalf("nothing moves, and Next gives %v", err)
	}
	close(f.gate)
	b, err := l.Next(bg)
	if err != nil || b.Position != 0 {
		t.Fatal(err)
	}
	b.Release()
}

func TestAllBadIsAnError(t *testing.T) {
	f := newFake(5, 5)
	f.frames.lost = map[string]bool{"v0.mp4": true}
	l := mustLoader(t, f, Config{BatchSize: 4, OnBadEpisode: "skip"})
	for range 3 {
		if _, err := l.Next(bg); err == nil || err == io.EOF {
			t.Fatalf("every episode is bad, and Next gives %v", err)
		}
	}
}

func TestConfigErrors(t *testing.T) {
	f := newFake(10)
	for text, want := range map[string]string{
		`{"batchsize": 3}`:                                 "nearest: batch_size",
		`{"keys": ["cams"]}`:                               "nearest: cam",
		`{"delta_timestamps": {"actin": [0]}}`:             "nearest: action",
		`{"delta_timestamps": {"action": [0.05]}}`:         "0.05",
		`{"delta_timestamps": {"label": [0]}}`:             "text",
		`{"episodes": [1]}`:                                "episodes",
		`{"rank": 2, "world_size": 2}`:                     "rank",
		`{"shuffle": "pool"}`:                              "next release",
		`{"normalize": "mean_sd"}`:                         "mean_std",
		`{"normalize": {"actoin": "mean_std"}}`:            "action",
		`{"image_size": [1]}`:                              "image_size",
		`{"hz": 0}`:                                        "rate",
		`{"align": {"hz": 5, "modes": {"cam": "linear"}}}`: "not computed with",
		`{"episodes": []}`:                                 "",
	} {
		cfg, err := ParseConfig([]byte(text))
		if err == nil {
			_, err = New(bg, f, cfg)
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, expected %q in it", text, err, want)
		}
		if !errors.Is(err, robocache.ErrMisuse) && !errors.Is(err, robocache.ErrUnsupported) && !errors.Is(err, robocache.ErrMalformed) {
			t.Errorf("%s: %v has no class", text, err)
		}
	}
	cfg, err := ParseConfig([]byte(`{"shuffle": true, "memory_budget": "1.5GiB", "delta_timestamps": {"b": [0, -1], "a": [1]}, "align": {"hz": "30000/1001", "edge": "mask", "max_gap": {"x": 0.05, "y": 7}}, "normalize": {"q": {"mode": "min_max", "low": [1], "high": [2]}}}`))
	if err != nil || cfg.Shuffle != Global || cfg.MemoryBudget != 3<<29 || cfg.Deltas[0].Key != "b" || cfg.Align.MaxGap.For("x") != 50_000_000 || cfg.Align.MaxGap.For("y") != 7 || cfg.Align.Edge.For("z") != align.EdgeMask {
		t.Errorf("%+v %v", cfg, err)
	}
	raw, err := json.Marshal(cfg)
	if err != nil {
		t.Fatal(err)
	}
	back, err := ParseConfig(raw)
	if err != nil || back.Deltas[1].Key != "a" || back.Normalize.Keys["q"].Low[0] != 1 {
		t.Errorf("round trip: %s %v", raw, err)
	}
}

func TestNormalize(t *testing.T) {
	f := newFake(10)
	for mode, want := range map[string][]float32{"mean_std": {(1003 - 1) / (2 + 1e-8), 0, (1003.25 - 3) / (4 + 1e-8)}, "min_max": {2*1003/float32(10) - 1, 0, 2*(1003.25-1)/float32(2) - 1}} {
		m, err := NewMap(bg, newFake(4, 10), Config{Normalize: Normalize{Mode: mode}, Keys: []string{"observation.state", "action", "count"}})
		if err != nil {
			t.Fatal(err)
		}
		b, err := m.Items(bg, []int64{7})
		if err != nil {
			t.Fatal(err)
		}
		got := floats32(b.Tensor("observation.state").Data)
		for i := range want {
			if d := got[i] - want[i]; d > 1e-4 || d < -1e-4 {
				t.Errorf("%s: %v, expected %v", mode, got, want)
				break
			}
		}
		inv := m.Inverses()["observation.state"]
		for i, x := range []float64{1003, 0, 1003.25} {
			if back := float64(got[i])*inv.Scale[i] + inv.Shift[i]; i != 1 && (back-x > 1e-2 || x-back > 1e-2) {
				t.Errorf("%s: the inverse of column %d is %v", mode, i, back)
			}
		}
		if w := m.Stats().Warnings; len(w) != 1 || !strings.Contains(w[0], "observation.state[1]") {
			t.Errorf("warnings %v", w)
		}
		b.Release()
		m.Close()
	}
	_, err := NewMap(bg, f, Config{Normalize: Normalize{Keys: map[string]Norm{"action": {Mode: "mean_std"}}}})
	if !errors.Is(err, robocache.ErrMisuse) {
		t.Errorf("named, without statistics: %v", err)
	}
}

// Windows and anchors on a timeline of another rate, streams with an offset, pictures by nearest.
func TestTimeline(t *testing.T) {
	f := newFake(11, 5) // 10 Hz: 1.0 s and 0.4 s
	hz := robocache.Rate{Num: 20, Den: 1}
	m, err := NewMap(bg, f, Config{Hz: &hz, Keys: []string{"observation.state", "cam", "count", "label"}, Deltas: deltas("observation.state", []float64{-0.075, 0, 0.05})})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if m.Len() != 21+9 {
		t.Fatalf("%d samples", m.Len())
	}
	b, err := m.Items(bg, []int64{0, 5, 20, 21, 5})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Release()
	v := floats32(b.Tensor("observation.state").Data)
	mask := b.Tensor("observation.state_is_pad").Data
	// Sample 5 is t = 0.25 s: rows 1.75, 2.5, 3.0.
	for s, want := range map[int][]float32{0: {0, 0, 0.5}, 1: {1.75, 2.5, 3}, 2: {9.25, 10, 10}, 3: {1000, 1000, 1000.5}, 4: {1.75, 2.5, 3}} {
		for k, x := range want {
			if v[(s*3+k)*3] != x {
				t.Errorf("sample %d step %d is %v, expected %v", s, k, v[(s*3+k)*3], x)
			}
		}
	}
	if want := []byte{1, 0, 0, 0, 0, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0}; !bytes.Equal(mask, want) {
		t.Errorf("mask %v, expected %v", mask, want)
	}
	if c := view[int16](b.Tensor("count").Data); c[1] != 2 || c[2] != 10 {
		t.Errorf("count %v", c)
	}
	if l := b.Text("label"); l[1] != `"label 0 2"` {
		t.Errorf("label %v", l)
	}
	want := make([]byte, 3*fakeW*fakeH)
	fillPicture(want, "v0.mp4", 2) // t = 0.25 s lies between rows 2 and 3: a tie takes the earlier
	if got := b.Tensor("cam").Data[len(want) : 2*len(want)]; !bytes.Equal(got, want) {
		t.Error("the picture of sample 5 is not that of row 2")
	}
	if p := b.Tensor("cam_is_pad"); len(p.Shape) != 1 || p.Data[1] != 0 {
		t.Errorf("cam_is_pad %v", p)
	}
	// The same through a Loader.
	l := mustLoader(t, f, Config{Hz: &hz, BatchSize: 7, Shuffle: Global, Threads: 3, Keys: []string{"observation.state", "cam"}})
	if got, _ := epochOf(t, nil, l); len(got) != 30 {
		t.Errorf("%d samples", len(got))
	}
}

// Tolerance: opt-in, by recorded stamps.
func TestTolerance(t *testing.T) {
	f := newFake(10)
	f.late = func(key string, _ int) int64 {
		if key == "cam" {
			return 3_000_000
		}
		return 0
	}
	for tol, ok := range map[float64]bool{0.002: false, 0.004: true} {
		m, err := NewMap(bg, f, Config{Tolerance: &tol, Keys: []string{"cam"}})
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

// Map: many callers at once get what one gets alone.
func TestMapConcurrent(t *testing.T) {
	f := newFake(lengthsFor(1, 6, 10, 30)...)
	m, err := NewMap(bg, f, Config{Threads: 3, Deltas: deltas("cam", []float64{-0.2, 0})})
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
				checkBatch(t, f, m.a.cfg, b)
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
	if m.a.buffers.inUse.Load() != 0 || f.opened.Load() != 0 {
		t.Error("something was not given back")
	}
}
