package loader

import (
	"encoding/json"
	"errors"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/loader/options"
)

// loader.L5: cut anywhere, go on at another batch size, world and thread count: the concatenation
// is the order.
func TestResume(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 9))
	f := newFake(lengthsFor(4, 7, 3, 40)...)
	n := fakeTable(t, f, options.Config{}).Samples()
	for turn := range 60 {
		mode := []Shuffle{Global, Pool, Pool, FileOrder}[turn%4]
		size, shards := Bytes(40*14), turn%4
		var want []int64
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
				l := mustLoader(
					t,
					f,
					options.Config{
						Order: options.Order{
							BatchSize: batch,
							WorldSize: world,
							Rank:      rank,
							Shuffle:   mode,
							PoolOrder: options.PoolOrder{PoolSize: size, PoolShards: shards},
							Seed:      11,
						},
						Runtime: options.Runtime{Threads: 1 + rng.IntN(3)},
						Windows: options.Windows{Keys: []string{"index"}},
					},
				)
				if state == nil {
					want = make([]int64, n)
					l.Order(0).Fill(want, 0)
				} else {
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
			size, shards = size+1000, 1 // the state's are kept
			before := len(got)
			for k := 0; k < len(parts); k += world {
				s := slices.Concat(parts[k:min(k+world, len(parts))]...)
				if mode == Pool {
					// Ranks keep to lanes: a step is its positions, dealt out otherwise.
					slices.SortFunc(
						s,
						func(a, b int64) int {
							return after(want, before, a) - after(want, before, b)
						},
					)
				}
				got = append(got, s...)
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
		if !slices.Equal(got, want) {
			t.Fatal("the resumed parts are not the unbroken order")
		}
		if state.Epoch != 1 || state.Position != 0 {
			t.Fatalf("at the end: %+v", *state)
		}
	}
}

// after is the position of a sample, those before some position behind all others.
func after(order []int64, from int, sample int64) int {
	p := slices.Index(order, sample)
	if p < from {
		p += len(order)
	}
	return p
}

// loader.L5: states of the epoch's ends, set_epoch after a restore, and states of other data.
func TestResumeAtTheEdges(t *testing.T) {
	f := newFake(10, 9)
	cfg := options.Config{
		Order:   options.Order{BatchSize: 4, Shuffle: Global, Seed: 3},
		Windows: options.Windows{Keys: []string{"index"}},
	}
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
	try(
		"after the last batch, then set_epoch of it",
		afterLast,
		epochs[1],
		func(l *Loader) { l.SetEpoch(1) },
	)
	try("then another epoch", afterLast, epochs[2], func(l *Loader) { l.SetEpoch(2) })
	l = mustLoader(t, f, cfg)
	b, _ := l.Next(bg)
	b.Release()
	mid := l.State()
	try(
		"in the middle, set_epoch keeps the place",
		mid,
		epochs[0][4:],
		func(l *Loader) { l.SetEpoch(0) },
	)
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
	file := mustLoader(
		t,
		f,
		options.Config{
			Order:   options.Order{BatchSize: 4},
			Windows: options.Windows{Keys: []string{"index"}},
		},
	)
	if err := file.Restore(mid, false); !errors.Is(err, robocache.ErrMisuse) {
		t.Errorf("another order mode: %v", err)
	}
	dropping := mustLoader(
		t,
		f,
		options.Config{
			Order:   options.Order{BatchSize: 4, Shuffle: Global, Seed: 3, DropLast: true},
			Windows: options.Windows{Keys: []string{"index"}},
		},
	)
	if got, n := epochOf(t, nil, dropping); len(got) != 16 || n != 4 {
		t.Errorf("drop_last gives %d samples", len(got))
	}
}

// TestResumeAhead checks loader.L5 and loader.L13: after a restore, a rank that delivered samples
// beyond its position, in place of bad ones, continues after them.
func TestResumeAhead(t *testing.T) {
	cfg := options.Config{
		Order: options.Order{
			BatchSize:    3,
			WorldSize:    2,
			Rank:         1,
			Shuffle:      Global,
			Seed:         4,
			OnBadEpisode: "skip",
		},
	}
	f := newFake(6, 6, 6, 6, 6)
	f.perFile = 1
	f.frames.lost = map[string]bool{"v2.mp4": true}
	l := mustLoader(t, f, cfg)
	for range 3 {
		b, err := l.Next(bg)
		if err != nil {
			t.Fatal(err)
		}
		b.Release()
	}
	s := l.State()
	if s.Ahead == 0 {
		t.Fatalf("no sample was taken ahead: %+v", s)
	}
	rest, _ := epochOf(t, f, l)
	again := mustLoader(t, f, cfg)
	if err := again.Restore(s, false); err != nil {
		t.Fatal(err)
	}
	if got, _ := epochOf(t, f, again); !slices.Equal(got, rest) {
		t.Errorf("after the restore %v, unbroken %v", got, rest)
	}
}
