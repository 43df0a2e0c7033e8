package order

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
)

// rankOf is a rank without an engine. Its samples and states equal those of a real one.
type rankOf struct {
	p    *Progress
	c    *Sampler
	s    Step
	idle bool // it had nothing in a short last step, and waits for the others to end the epoch
}

func newRank(o *Ordering, ranks Ranks) *rankOf {
	return &rankOf{p: &Progress{Order: o, Ranks: ranks}}
}

// next gives the samples of the next batch; nil at the end of the epoch, where the call after that
// begins the next one.
func (r *rankOf) next() []int64 {
	if r.idle {
		r.idle = false
		return nil
	}
	if r.c == nil {
		r.c, _ = r.p.Sampler()
	}
	if !r.c.Next(r.p.cursor, &r.s) {
		r.idle = r.p.cursor.step < r.c.steps() && r.c.world > 1
		r.p.GoTo(r.p.Epoch + 1)
		r.c = nil
		return nil
	}
	r.p.Given(r.s.After)
	return r.s.Samples
}

func (r *rankOf) restore(t testing.TB, s State) {
	p, err := r.p.Restored(&s, false, func(BadEpisode) bool { return true })
	if err != nil {
		t.Fatal(err)
	}
	r.p, r.c = p, nil
}

// simulated are orders over some ten thousand samples, in all modes and mixtures.
func simulated(t testing.TB) map[string]*Ordering {
	lengths := [][]int{
		lengthsFor(1, 300, 20, 180),
		lengthsFor(2, 37, 1, 900),
		lengthsFor(3, 5, 200, 400),
		slices.Repeat([]int{1}, 700),
	}
	var tables []*Table
	for _, l := range lengths {
		tables = append(tables, tableOf(t, l))
	}
	out := map[string]*Ordering{}
	add := func(name string, p Params, mix *MixParams, n int) {
		if mix != nil {
			for i := range n {
				mix.Names = append(mix.Names, fmt.Sprint("source", i))
			}
		}
		o, err := New(p, NewCatalog(tables[:n]...), mix, 12345)
		if err != nil {
			t.Fatal(err)
		}
		out[name] = o
	}
	add("file", Params{}, nil, 1)
	add("global", Params{Mode: Global}, nil, 1)
	add("pool", Params{Mode: Pool, PoolSamples: 4000}, nil, 1)
	add("pool of episodes", Params{Mode: Pool, PoolEpisodes: 24, Shards: 3}, nil, 1)
	add("pool in one shard", Params{Mode: Pool, PoolSamples: 700, Shards: 1}, nil, 1)
	add("mixture of files", Params{}, &MixParams{Weights: []float64{2, 1}}, 2)
	add("mixture by size", Params{Mode: Global}, &MixParams{}, 4)
	add(
		"mixture by weight",
		Params{Mode: Global},
		&MixParams{Weights: []float64{0.2, 0.5, 0, 0.3}, EpochSize: 33_333},
		4,
	)
	add(
		"mixture of pools",
		Params{Mode: Pool, PoolSamples: 800},
		&MixParams{Weights: []float64{0.2, 0.5, 0.1, 0.2}},
		4,
	)
	add(
		"mixture of pools by size",
		Params{Mode: Pool, PoolSamples: 800, Shards: 4},
		&MixParams{},
		4,
	)
	add(
		"stratified",
		Params{Mode: Global},
		&MixParams{Temperature: 2, Stratified: true, GlobalBatch: 96},
		3,
	)
	add(
		"until all have given all",
		Params{Mode: Pool, PoolSamples: 2000},
		&MixParams{Weights: []float64{1, 1, 1}, Stop: "all"},
		3,
	)
	return out
}

// TestSimulatedRuns runs ranks at any pace with deaths and restarts at other world sizes and
// batches. It covers 100,000 samples per mode, or 1,000,000 with ROBOCACHE_EXHAUSTIVE=1. The
// samples delivered up to the checkpoints must be the order, epoch after epoch, without loss or
// repetition.
func TestSimulatedRuns(t *testing.T) {
	total := int64(100_000)
	if os.Getenv("ROBOCACHE_EXHAUSTIVE") == "1" {
		total = 1_000_000
	}
	for name, o := range simulated(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rng := rand.New(rand.NewPCG(77, uint64(len(name))))
			sim := &simulation{t: t, o: o, rng: rng}
			for sim.given < total {
				sim.life()
			}
			t.Logf(
				"%d samples in %d epochs, %d lives, %d deaths, worlds up to %d",
				sim.given,
				sim.epoch+1,
				sim.lives,
				sim.deaths,
				sim.most,
			)
		})
	}
}

type simulation struct {
	t   *testing.T
	o   *Ordering
	rng *rand.Rand

	state    *State
	epoch    int64
	position int64
	whole    []int64
	given    int64
	lives    int
	deaths   int
	most     int
}

// life is one start of the job: a number of ranks, checkpoints now and then, and an end; at a death
// what came after the last checkpoint is lost to all.
func (m *simulation) life() {
	rng := m.rng
	world := 1 + rng.IntN(8)
	if rng.IntN(4) == 0 {
		world = 1 + rng.IntN(64)
	}
	batch := 1 + rng.IntN(64)
	if m.state != nil && (m.state.Epoch != m.epoch || m.state.Position != m.position) {
		// After the last batch a state is the next epoch's.
		if m.state.Epoch != m.epoch+1 || m.state.Position != 0 ||
			m.position != int64(len(m.whole)) {
			m.t.Fatalf(
				"a state of epoch %d, position %d at epoch %d, position %d",
				m.state.Epoch,
				m.state.Position,
				m.epoch,
				m.position,
			)
		}
		m.epoch, m.position, m.whole = m.epoch+1, 0, nil
	}
	ranks := Ranks{Batch: batch, World: world, Short: rng.IntN(2) == 1}
	m.lives++
	m.most = max(m.most, world)
	team := make([]*rankOf, world)
	for i := range team {
		ranks.Rank = i
		// Every rank has another seed and pool, which the state overrides.
		own := *m.o
		if m.state != nil {
			own.Seed = rng.Int64()
			own.Pools = slices.Clone(own.Pools)
			for k := range own.Pools {
				own.Pools[k].PoolShards = 1 + rng.IntN(5)
			}
		}
		if m.o.mixParams != nil && m.o.mixParams.Stratified && m.state != nil {
			asked := *m.o.mixParams
			asked.GlobalBatch = int64(batch * world)
			own.mixParams = &asked
		}
		team[i] = newRank(&own, ranks)
		if m.state != nil {
			team[i].restore(m.t, *m.state)
		}
	}
	for range 1 + rng.IntN(6) { // checkpoints
		steps := 1 + rng.IntN(60)
		taken := make([][][]int64, world)
		left := make([]int, 0, world*steps)
		for i := range team {
			for range steps {
				left = append(left, i)
			}
		}
		rng.Shuffle(len(left), func(i, j int) { left[i], left[j] = left[j], left[i] })
		dies := rng.IntN(5) == 0
		if dies {
			left = left[:rng.IntN(len(left))]
		}
		for _, i := range left { // each rank at its own pace
			taken[i] = append(taken[i], slices.Clone(team[i].next()))
		}
		if dies {
			m.deaths++
			return
		}
		for k := range steps {
			var all []int64
			ended := 0
			for i := range team {
				if taken[i][k] == nil {
					ended++
				}
				all = append(all, taken[i][k]...)
			}
			m.commit(all, ended, world, batch)
		}
		// Any rank's state will do.
		raw, err := json.Marshal(team[rng.IntN(world)].p.State())
		if err != nil {
			m.t.Fatal(err)
		}
		var s State
		if err := json.Unmarshal(raw, &s); err != nil {
			m.t.Fatal(err)
		}
		m.state = &s
	}
}

// commit compares the samples that all ranks delivered in one life with the order.
func (m *simulation) commit(all []int64, ended, world, batch int) {
	if m.whole == nil {
		m.whole = wholeOrder(m.o, m.epoch)
	}
	n := int64(len(m.whole))
	if ended == world {
		if m.position != n {
			m.t.Fatalf("epoch %d ends at %d of %d", m.epoch, m.position, n)
		}
		m.epoch, m.position, m.whole = m.epoch+1, 0, nil
		return
	}
	left := n - m.position
	if ended > 0 && left >= int64(world) {
		m.t.Fatalf("%d of %d ranks have nothing, %d samples are left", ended, world, left)
	}
	want := slices.Clone(m.whole[m.position:min(m.position+int64(batch*world), n)])
	m.given += int64(len(want))
	if wrapped := len(all) - len(want); wrapped > 0 {
		for p := range wrapped {
			want = append(want, m.whole[int64(p)%n])
		}
	}
	slices.Sort(all)
	slices.Sort(want)
	if !slices.Equal(all, want) {
		m.t.Fatalf(
			"epoch %d, position %d, %d × %d: not the samples of the order",
			m.epoch,
			m.position,
			world,
			batch,
		)
	}
	m.position = min(m.position+int64(batch*world), n)
}
