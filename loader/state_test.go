package loader

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/loader/internal/column"
	"github.com/goatnote-inc/robocache/loader/internal/layout"
	"github.com/goatnote-inc/robocache/loader/options"
)

func weight(w float64) *float64 { return &w }

// mixOf makes sources of the fakes; weights nil: by size.
func mixOf(fakes []*fake, weights []float64) []options.Mix {
	var out []options.Mix
	for i, f := range fakes {
		m := options.Mix{Dataset: f, Name: string(rune('a' + i))}
		if weights != nil {
			m.Weight = weight(weights[i])
		}
		out = append(out, m)
	}
	return out
}

func mustMix(t testing.TB, mix []options.Mix, cfg options.Config) *Loader {
	t.Helper()
	l, err := NewMix(bg, mix, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

func throughJSON(t testing.TB, s State) (out State) {
	t.Helper()
	raw, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(raw, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// loader.L5: real loaders are killed at random steps and restored at other worlds, batches and
// threads, with pools and mixtures: step by step the samples are those of the order, and frames and
// values those of the samples.
func TestKillAndRestore(t *testing.T) {
	fakes := []*fake{
		newFake(lengthsFor(1, 9, 2, 30)...),
		newFake(lengthsFor(2, 20, 1, 9)...),
		newFake(40, 3),
	}
	type kind struct {
		name string
		mix  []options.Mix
		cfg  options.Config
	}
	kinds := []kind{
		{"global", mixOf(fakes[:1], nil), options.Config{Order: options.Order{Shuffle: Global}}},
		{
			"pool",
			mixOf(fakes[:1], nil),
			options.Config{
				Order: options.Order{
					Shuffle:   Pool,
					PoolOrder: options.PoolOrder{PoolSize: 60 * 36},
				},
			},
		},
		{
			"pool of episodes",
			mixOf(fakes[1:2], nil),
			options.Config{
				Order: options.Order{
					Shuffle:   Pool,
					PoolOrder: options.PoolOrder{PoolEpisodes: 5, PoolShards: 2},
				},
			},
		},
		{
			"mixture by size",
			mixOf(fakes, nil),
			options.Config{Order: options.Order{Shuffle: Global}},
		},
		{
			"mixture of pools",
			mixOf(fakes, []float64{0.5, 0.2, 0.3}),
			options.Config{
				Mixture: options.Mixture{EpochSize: 333},
				Order: options.Order{
					Shuffle:   Pool,
					PoolOrder: options.PoolOrder{PoolSize: 90 * 36},
				},
			},
		},
		{
			"stratified",
			mixOf(fakes, []float64{5, 2, 3}),
			options.Config{
				Mixture: options.Mixture{Stratified: true},
				Order:   options.Order{Shuffle: Global},
			},
		},
		{
			"until all have given all",
			mixOf(fakes[:2], []float64{1, 1}),
			options.Config{
				Mixture: options.Mixture{Stop: "all"},
				Order: options.Order{
					Shuffle:   Pool,
					PoolOrder: options.PoolOrder{PoolSize: 80 * 36},
				},
			},
		},
	}
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			rng := rand.New(rand.NewPCG(3, uint64(len(k.name))))
			var state *State
			var want []int64
			epoch, position := int64(0), int64(0)
			for epoch < 3 {
				world, batch := 1+rng.IntN(4), 8+rng.IntN(16)
				cfg := k.cfg
				cfg.Seed, cfg.BatchSize, cfg.WorldSize, cfg.Threads, cfg.Prefetch = 9, batch, world,
					1+rng.IntN(3), 1+rng.IntN(4)
				cfg.Keys = []string{"observation.state", "cam"}
				if state != nil {
					cfg.Seed = rng.Int64()
					cfg.PoolSize += Bytes(rng.IntN(10_000)) // the state's are kept
				}
				ranks := make([]*Loader, world)
				for i := range ranks {
					cfg.Rank = i
					ranks[i] = mustMix(t, k.mix, cfg)
					if state != nil {
						if err := ranks[i].Restore(*state, false); err != nil {
							t.Fatal(err)
						}
					}
				}
				for range 1 + rng.IntN(8) {
					if want == nil {
						want = make([]int64, ranks[0].Samples())
						ranks[0].Order(epoch).Fill(want, 0)
					}
					n := int64(len(want))
					var got []int64
					ended := 0
					for _, l := range ranks {
						b, err := l.Next(bg)
						if err == io.EOF {
							ended++
							continue
						}
						if err != nil {
							t.Fatal(err)
						}
						checkMixed(t, k.mix, l, b)
						got = append(got, b.Indices...)
						b.Release()
					}
					if ended > 0 {
						if ended != world || position != n {
							t.Fatalf("%d of %d ranks end at %d of %d", ended, world, position, n)
						}
						epoch, position, want = epoch+1, 0, nil
						continue
					}
					step := slices.Clone(want[position:min(position+int64(batch*world), n)])
					for p := int64(0); len(step) < len(got); p++ {
						step = append(step, want[p%n])
					}
					slices.Sort(step)
					slices.Sort(got)
					if !slices.Equal(got, step) {
						t.Fatalf(
							"epoch %d, position %d, %d × %d: other samples",
							epoch,
							position,
							world,
							batch,
						)
					}
					position = min(position+int64(batch*world), n)
				}
				s := throughJSON(t, ranks[rng.IntN(world)].State())
				state = &s
				if s.Epoch != epoch { // after the last batch the state is the next epoch's
					if s.Epoch != epoch+1 || s.Position != 0 || position != int64(len(want)) {
						t.Fatalf(
							"a state of epoch %d, position %d at epoch %d, position %d",
							s.Epoch,
							s.Position,
							epoch,
							position,
						)
					}
					epoch, position, want = epoch+1, 0, nil
				} else if s.Position != position {
					t.Fatalf("a state of position %d at %d", s.Position, position)
				}
				for _, l := range ranks {
					l.Close()
				}
			}
		})
	}
}

// checkMixed proves that a batch's values are those of its samples.
func checkMixed(t testing.TB, mix []options.Mix, l *Loader, b *layout.Batch) {
	t.Helper()
	values := column.Floats32(b.Tensor("observation.state").Data)
	imgs, want := b.Tensor("cam").Data, make([]byte, 3*fakeW*fakeH)
	ref := make([]robocache.FrameRef, 1)
	err := l.Locate(b.Indices, func(i, source int, row robocache.Row) {
		if want := stateValue(row, 0); values[3*i] != want {
			t.Fatalf(
				"sample %d, %v of source %d, has state %v, expected %v",
				b.Indices[i],
				row,
				source,
				values[3*i],
				want,
			)
		}
		if err := mix[source].Dataset.Frames(bg, "cam", []robocache.Row{row}, ref); err != nil {
			t.Fatal(err)
		}
		fillFrame(want, ref[0].Path, ref[0].Ordinal)
		if !bytes.Equal(want, imgs[i*len(want):(i+1)*len(want)]) {
			t.Fatalf("sample %d, %v of source %d, has another frame", b.Indices[i], row, source)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestStateOfAMixture checks loader.L5: the fields of a state hold the position of each source and
// the parameters of the order.
func TestStateOfAMixture(t *testing.T) {
	fakes := []*fake{newFake(10, 9), newFake(4, 4)}
	l := mustMix(
		t,
		mixOf(fakes, []float64{0.25, 0.75}),
		options.Config{
			Order: options.Order{
				BatchSize: 8,
				Shuffle:   Pool,
				PoolOrder: options.PoolOrder{PoolSize: 1 << 20},
				Seed:      5,
			},
			Windows: options.Windows{Keys: []string{"index"}},
		},
	)
	drawn := [2]int64{}
	epoch := int64(0)
	for range 17 {
		b, err := l.Next(bg)
		if err == io.EOF {
			epoch++
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Locate(
			b.Indices,
			func(_, source int, _ robocache.Row) { drawn[source]++ },
		); err != nil {
			t.Fatal(err)
		}
		b.Release()
		s := l.State()
		for i, src := range s.Sources {
			size := []int64{19, 8}[i]
			if src.Epoch*size+src.Position != drawn[i] || src.Fingerprint.Samples != size ||
				src.Name != []string{"a", "b"}[i] ||
				src.Weight != []float64{0.25, 0.75}[i] ||
				src.PoolSamples == 0 ||
				src.PoolShards != 1 {
				t.Fatalf("after %v: %+v", drawn, src)
			}
		}
		if st := l.Stats(); len(st.Sources) != 2 || int64(st.Sources[1].Passes*8+0.5) != drawn[1] ||
			st.Sources[0].Bound != 1 {
			t.Fatalf("stats %+v after %v", st.Sources, drawn)
		}
	}
	if raw, _ := json.Marshal(l.State()); len(raw) > 1500 {
		t.Errorf("a state of %d bytes: %s", len(raw), raw)
	}
}

// TestStateContradictions checks that a state that contradicts the loader is Misuse with the
// difference, and that force accepts it.
func TestStateContradictions(t *testing.T) {
	f, g := newFake(10, 9), newFake(4, 4)
	two := mixOf([]*fake{f, g}, []float64{1, 3})
	cfg := options.Config{
		Order:   options.Order{BatchSize: 4, Shuffle: Global},
		Windows: options.Windows{Keys: []string{"index"}},
	}
	with := func(change func(*options.Config)) options.Config {
		c := cfg
		change(&c)
		return c
	}
	state := func(l *Loader) State {
		for range 2 {
			b, err := l.Next(bg)
			if err != nil {
				t.Fatal(err)
			}
			b.Release()
		}
		return throughJSON(t, l.State())
	}
	mixed := state(mustMix(t, two, cfg))
	single := state(mustLoader(t, f, cfg))
	edit := func(s State, change func(*State)) State {
		s = throughJSON(t, s)
		change(&s)
		return s
	}
	for _, c := range []struct {
		name string
		l    *Loader
		s    State
		want []string
	}{
		{
			"a mixture's state in a loader",
			mustLoader(t, f, cfg),
			mixed,
			[]string{"mixture of 2", "one dataset"},
		},
		{
			"a loader's state in a mixture",
			mustMix(t, two, cfg),
			single,
			[]string{"mixture of 2", "one dataset"},
		},
		{
			"another number of sources",
			mustMix(t, mixOf([]*fake{f, g, f}, nil), cfg),
			mixed,
			[]string{"mixture of 3", "mixture of 2"},
		},
		{
			"other names",
			mustMix(t, []options.Mix{two[0], {Dataset: g, Name: "x", Weight: weight(3)}}, cfg),
			mixed,
			[]string{`b`, `x`},
		},
		{
			"other data",
			mustMix(t, mixOf([]*fake{f, newFake(4, 5)}, []float64{1, 3}), cfg),
			mixed,
			[]string{"source b", "samples"},
		},
		{
			"other weights",
			mustMix(t, mixOf([]*fake{f, g}, []float64{1, 1}), cfg),
			mixed,
			[]string{"weight of a", "0.25", "0.5"},
		},
		{"by size", mustMix(t, mixOf([]*fake{f, g}, nil), cfg), mixed, []string{"weight of a"}},
		{
			"another order",
			mustMix(t, two, with(func(c *options.Config) { c.Shuffle = Pool })),
			mixed,
			[]string{"global", "pool"},
		},
		{
			"another epoch",
			mustMix(t, two, with(func(c *options.Config) { c.EpochSize = 50 })),
			mixed,
			[]string{"27", "50"},
		},
		{
			"another end",
			mustMix(t, two, with(func(c *options.Config) { c.Stop = "all" })),
			mixed,
			[]string{"27"},
		},
		{
			"stratified",
			mustMix(t, two, with(func(c *options.Config) { c.Stratified = true })),
			mixed,
			[]string{"Stratified: false", "Stratified: true"},
		},
		{
			"shares that do not sum up",
			mustMix(t, two, cfg),
			edit(mixed, func(s *State) { s.Sources[0].Share++ }),
			[]string{"sum"},
		},
		{
			"pool in one loader",
			mustLoader(t, f, with(func(c *options.Config) { c.Shuffle = Pool })),
			single,
			[]string{"global", "pool"},
		},
	} {
		err := c.l.Restore(c.s, false)
		if !errors.Is(err, robocache.ErrMisuse) {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		for _, w := range c.want {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%s: %q is not in %v", c.name, w, err)
			}
		}
		if err := c.l.Restore(c.s, true); err != nil {
			t.Errorf("%s, forced: %v", c.name, err)
			continue
		}
		if b, err := c.l.Next(bg); err != nil && err != io.EOF {
			t.Errorf("%s, forced: %v", c.name, err)
		} else if err == nil {
			b.Release()
		}
	}
	for name, s := range map[string]State{
		"version":    edit(single, func(s *State) { s.Version = 4 }),
		"no version": edit(single, func(s *State) { s.Version = 0 }),
		"position":   edit(single, func(s *State) { s.Position = 20 }),
		"epoch":      edit(single, func(s *State) { s.Epoch = -1 }),
		"before":     edit(single, func(s *State) { s.Position = -1 }),
		"ahead":      edit(single, func(s *State) { s.Ahead = -1 }),
		"bad":        edit(single, func(s *State) { s.BadEpisodes = []BadEpisode{{Episode: 2}} }),
		"bad source": edit(single, func(s *State) { s.BadEpisodes = []BadEpisode{{Source: 1}} }),
	} {
		l := mustLoader(t, f, cfg)
		for _, force := range []bool{false, true} {
			if err := l.Restore(s, force); !errors.Is(err, robocache.ErrMisuse) {
				t.Errorf("%s, force=%v: %v", name, force, err)
			}
		}
		if got := l.State(); got.Position != 0 || got.Epoch != 0 {
			t.Errorf("%s: the loader moved to %+v", name, got)
		}
	}
}

// A state of version 1, as release 0.1 wrote it.
func TestStateVersion1(t *testing.T) {
	f := newFake(10, 9)
	l := mustLoader(
		t,
		f,
		options.Config{
			Order:   options.Order{BatchSize: 4, Shuffle: Global},
			Windows: options.Windows{Keys: []string{"index"}},
		},
	)
	want := make([]int64, 19)
	mustLoader(
		t,
		f,
		options.Config{
			Order:   options.Order{BatchSize: 4, Shuffle: Global, Seed: 3},
			Windows: options.Windows{Keys: []string{"index"}},
		},
	).Order(2).
		Fill(want, 0)
	print := l.State().Fingerprint
	raw := `{"version":1,"order":"global","seed":3,"epoch":2,"position":8,"samples":19,"batch_size":4,"world_size":1,"rank":0,
		"fingerprint":{"format":"fake","episodes":2,"samples":19,"lengths":"` + print.Lengths +
		`"}}`
	var s State
	if err := json.Unmarshal([]byte(raw), &s); err != nil {
		t.Fatal(err)
	}
	if err := l.Restore(s, false); err != nil {
		t.Fatal(err)
	}
	if got, _ := epochOf(t, nil, l); !slices.Equal(got, want[8:]) {
		t.Errorf("%v, expected %v", got, want[8:])
	}
	if s := l.State(); s.Version != 3 || s.Seed != 3 || s.Epoch != 3 {
		t.Errorf("%+v", s)
	}
}

// The edges, in all modes: before the first batch, after the last, twice in a row, after set_epoch,
// a hand-made skip.
func TestStateAtTheEdges(t *testing.T) {
	f, g := newFake(10, 9), newFake(4, 4, 6)
	for name, make := range map[string]func() *Loader{
		"pool": func() *Loader {
			return mustLoader(
				t,
				f,
				options.Config{
					Order: options.Order{
						BatchSize: 4,
						Shuffle:   Pool,
						PoolOrder: options.PoolOrder{PoolEpisodes: 1},
					},
					Windows: options.Windows{Keys: []string{"index"}},
				},
			)
		},
		"mixture": func() *Loader {
			return mustMix(
				t,
				mixOf([]*fake{f, g}, []float64{1, 2}),
				options.Config{
					Order:   options.Order{BatchSize: 4, Shuffle: Pool},
					Windows: options.Windows{Keys: []string{"index"}},
				},
			)
		},
		"mixture of two epochs": func() *Loader {
			return mustMix(
				t,
				mixOf([]*fake{f, g}, []float64{1, 2}),
				options.Config{
					Mixture: options.Mixture{EpochSize: 41},
					Order:   options.Order{BatchSize: 4, Shuffle: Global},
					Windows: options.Windows{Keys: []string{"index"}},
				},
			)
		},
	} {
		l := make()
		epochs := [3][]int64{}
		states := map[string]State{"fresh": l.State()}
		for e := range epochs {
			for {
				b, err := l.Next(bg)
				if err == io.EOF {
					break
				}
				epochs[e] = append(epochs[e], b.Indices...)
				b.Release()
				if e == 0 && len(epochs[e]) == 8 {
					states["middle"] = l.State()
				}
				if e == 1 && int64(len(epochs[e])) == l.Samples() {
					states["last"] = l.State()
				}
			}
			if e == 0 {
				states["after EOF"] = l.State()
			}
		}
		want := map[string][]int64{
			"fresh":     epochs[0],
			"middle":    epochs[0][8:],
			"last":      epochs[2],
			"after EOF": epochs[1],
		}
		for at, s := range states {
			l := make()
			for range 2 {
				if err := l.Restore(throughJSON(t, s), false); err != nil {
					t.Fatal(name, at, err)
				}
			}
			if again := l.State(); again.Epoch != s.Epoch || again.Position != s.Position {
				t.Errorf(
					"%s, %s: restored to epoch %d, position %d",
					name,
					at,
					again.Epoch,
					again.Position,
				)
			}
			if err := l.SetEpoch(s.Epoch); err != nil { // keeps the place
				t.Fatal(err)
			}
			if got, _ := epochOf(t, nil, l); !slices.Equal(got, want[at]) {
				t.Errorf("%s, %s: another order", name, at)
			}
			if err := l.Restore(s, false); err != nil {
				t.Fatal(err)
			}
			if err := l.SetEpoch(1 + 100*(s.Epoch%2)); err != nil { // goes elsewhere
				t.Fatal(err)
			}
			if got := l.State(); got.Position != 0 {
				t.Errorf("%s, %s: after set_epoch position %d", name, at, got.Position)
			}
			s.Position = min(s.Position+4, s.Samples-1) // the user skips a batch
			if err := l.Restore(s, false); err != nil {
				t.Fatal(name, at, err)
			}
			o := l.Order(s.Epoch)
			if got, _ := epochOf(t, nil, l); got[0] != o.At(s.Position) {
				t.Errorf("%s, %s: a skip goes elsewhere", name, at)
			}
		}
	}
}

// TestStateOfAnEpochsRest checks that the loader is at the next epoch if nothing is left of the
// state's epoch, or less than drop_last omits at this batch size.
func TestStateOfAnEpochsRest(t *testing.T) {
	f := newFake(10, 9)
	small := mustLoader(
		t,
		f,
		options.Config{
			Order:   options.Order{BatchSize: 4, Shuffle: Pool},
			Windows: options.Windows{Keys: []string{"index"}},
		},
	)
	for range 3 {
		b, err := small.Next(bg)
		if err != nil {
			t.Fatal(err)
		}
		b.Release()
	}
	s := small.State()
	for name, c := range map[string]struct {
		position int64
		batch    int
	}{"dropped": {12, 8}, "nothing left": {19, 4}} {
		s.Position = c.position
		l := mustLoader(
			t,
			f,
			options.Config{
				Order:   options.Order{BatchSize: c.batch, Shuffle: Pool, DropLast: true},
				Windows: options.Windows{Keys: []string{"index"}},
			},
		)
		if err := l.Restore(s, false); err != nil {
			t.Fatal(err)
		}
		if got := l.State(); got.Epoch != 1 || got.Position != 0 {
			t.Errorf("%s: epoch %d, position %d", name, got.Epoch, got.Position)
		}
	}
}

// FuzzState checks that Restore rejects any state or the loader continues, and that the loader's
// next state is then accepted.
func FuzzState(f *testing.F) {
	data, other := newFake(5, 4, 3), newFake(2, 2)
	make := func(kind uint8) (*Loader, error) {
		cfg := options.Config{
			Order: options.Order{
				BatchSize:    2,
				Shuffle:      []Shuffle{Global, Pool, FileOrder}[kind%3],
				WorldSize:    1 + int(kind/16)%3,
				OnBadEpisode: "skip",
			},
			Windows: options.Windows{Keys: []string{"index"}},
			Runtime: options.Runtime{Threads: 1},
		}
		if kind&8 == 0 {
			return New(bg, data, cfg)
		}
		cfg.Stratified = kind&4 != 0
		return NewMix(bg, mixOf([]*fake{data, other}, []float64{1, 1}), cfg)
	}
	for _, kind := range []uint8{0, 1, 2, 8, 9, 12, 16, 25, 40} {
		l, err := make(kind)
		if err != nil {
			f.Fatal(err)
		}
		if b, err := l.Next(bg); err == nil {
			b.Release()
		}
		raw, err := json.Marshal(l.State())
		if err != nil {
			f.Fatal(err)
		}
		f.Add(raw, kind, false)
		f.Add(raw, kind^1, true)
		f.Add(
			[]byte(strings.Replace(string(raw), `"epoch":0`, `"epoch":9223372036854775807`, 1)),
			kind,
			true,
		)
		f.Add(
			[]byte(strings.Replace(string(raw), `"position":`, `"ahead":44,"position":`, 1)),
			kind,
			true,
		)
		l.Close()
	}
	f.Fuzz(func(t *testing.T, raw []byte, kind uint8, force bool) {
		var s State
		if json.Unmarshal(raw, &s) != nil {
			return
		}
		l, err := make(kind)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		if err := l.Restore(s, force); err != nil {
			if !errors.Is(err, robocache.ErrMisuse) {
				t.Fatalf("%v is not Misuse", err)
			}
			return
		}
		here := l.State()
		if err := l.Restore(throughJSON(t, here), false); err != nil {
			t.Fatalf("its own state is refused: %v\n%s", err, raw)
		}
		if again := l.State(); again.Epoch != here.Epoch || again.Position != here.Position ||
			again.Seed != s.Seed {
			t.Fatalf("%+v, then %+v", here, again)
		}
		for range 3 {
			b, err := l.Next(bg)
			if err != nil && err != io.EOF && !errors.Is(err, robocache.ErrMalformed) {
				t.Fatal(err)
			}
			if err == nil {
				b.Release()
			}
		}
	})
}
