package order

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// an orderCase is everything that decides what ranks take.
type orderCase struct {
	o            *Ordering
	epoch        int64
	start        int64
	batch, world int64
	drop, short  bool
	bad          []BadEpisode
	bySize       bool // an epoch holds each sample once
}

func (k *orderCase) Sampler(rank int64) *Sampler {
	return &Sampler{
		rankSlice: rankSlice{
			start:        k.start,
			epochSamples: k.o.Samples(),
			batch:        k.batch,
			world:        k.world,
			rank:         rank,
			dropLast:     k.drop,
			short:        k.short,
		},
		epoch:     k.epoch,
		makeOrder: func() sequence { return k.o.sequence(k.epoch) },
		data:      k.o.data,
		bad:       k.bad,
	}
}

// randomOrdering makes data and an order over it. bySize: an epoch holds each sample once.
func randomOrdering(t testing.TB, rng *rand.Rand) (o *Ordering, bySize bool) {
	modes := []Shuffle{FileOrder, Global, Pool, Pool}
	p := Params{Mode: modes[rng.IntN(len(modes))]}
	tables := make([]*Table, 1)
	var mix *MixParams
	if rng.IntN(2) == 0 {
		tables = make([]*Table, 1+rng.IntN(5))
		mix = randomMix(rng, len(tables))
	}
	for i := range tables {
		lengths := make([]int, 1+rng.IntN(40/len(tables)))
		for i := range lengths {
			if rng.IntN(8) > 0 || i == 0 {
				lengths[i] = 1 + rng.IntN(30)
			}
		}
		tables[i] = tableOf(t, lengths)
	}
	switch rng.IntN(3) {
	case 0:
		p.PoolSamples = 1 + rng.Int64N(200)
	case 1:
		p.PoolBytes = 1 + rng.Int64N(2000)
		for range tables {
			p.SampleBytes = append(p.SampleBytes, 1+rng.Int64N(20))
		}
	}
	if rng.IntN(3) == 0 {
		p.PoolEpisodes = 1 + rng.Int64N(12)
	}
	if rng.IntN(2) == 0 {
		p.Shards = 1 + rng.IntN(9)
	}
	o, err := New(p, NewCatalog(tables...), mix, int64(rng.Uint64()))
	if err != nil && mix.Stratified { // a source that a batch has no sample for
		mix.Stratified = false
		o, err = New(p, NewCatalog(tables...), mix, int64(rng.Uint64()))
	}
	if err != nil {
		t.Fatal(err)
	}
	return o, mix == nil || mix.Weights == nil && mix.Temperature == 0
}

func randomMix(rng *rand.Rand, k int) *MixParams {
	m := &MixParams{Names: make([]string, k)}
	for i := range m.Names {
		m.Names[i] = fmt.Sprint("source", i)
	}
	if rng.IntN(3) > 0 {
		sum := 0.0
		for range k {
			w := rng.Float64()
			if rng.IntN(8) == 0 {
				w = 0
			}
			m.Weights = append(m.Weights, w)
			sum += w
		}
		if sum == 0 {
			m.Weights[rng.IntN(k)] = 1
		}
	}
	if rng.IntN(4) == 0 {
		m.Temperature = 0.5 + 3*rng.Float64()
	}
	if m.Weights == nil && m.Temperature == 0 {
		return m
	}
	switch rng.IntN(4) {
	case 0:
		m.Stop = "first"
	case 1:
		m.EpochSize = 1 + rng.Int64N(800)
	case 2:
		m.Stratified, m.GlobalBatch = true, 200
		if m.Weights != nil { // a share of a batch for each
			for i := range m.Weights {
				m.Weights[i] = 1 + rng.Float64()
			}
		}
	}
	return m
}

func (k *orderCase) describe() string {
	return fmt.Sprintf(
		"mode=%q pools=%v mix=%+v n=%d seed=%d epoch=%d start=%d batch=%d world=%d drop=%v "+
			"short=%v",
		k.o.Mode,
		k.o.Pools,
		k.o.mixPlan,
		k.o.Samples(),
		k.o.Seed,
		k.epoch,
		k.start,
		k.batch,
		k.world,
		k.drop,
		k.short,
	)
}

func wholeOrder(o *Ordering, epoch int64) []int64 {
	out := make([]int64, o.Samples())
	(&Order{o.sequence(epoch)}).Fill(out, 0)
	return out
}

// TestRanksTakeTheOrder checks loader.L2 and loader.L3 with random data, modes, pools, worlds,
// batches and cuts. Over all ranks each step is its positions. Each rank delivers its part in the
// order of positions. Ranks have equally many batches; with short, parts differ by at most one
// sample. Wrapped samples are counted. Admissions and passed samples are exact.
func TestRanksTakeTheOrder(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 1500 {
		o, bySize := randomOrdering(t, rng)
		k := orderCase{
			o:      o,
			bySize: bySize,
			epoch:  rng.Int64N(5),
			batch:  1 + rng.Int64N(20),
			world:  1 + rng.Int64N(8),
			drop:   rng.IntN(3) == 0,
			short:  rng.IntN(3) == 0,
		}
		if rng.IntN(5) == 0 {
			k.world = 1 + rng.Int64N(64)
		}
		n := k.o.Samples()
		if rng.IntN(2) == 0 {
			k.start = rng.Int64N(n)
		}
		k.check(t)
	}
}

func (k *orderCase) check(t *testing.T) {
	t.Helper()
	whole := wholeOrder(k.o, k.epoch)
	n := int64(len(whole))
	// An epoch of a mixture may hold a sample more than once, or not at all.
	once := k.bySize
	at := make([]int64, n) // sample → position
	if once {
		sorted := slices.Clone(whole)
		slices.Sort(sorted)
		for i, s := range sorted {
			if s != int64(i) {
				t.Fatalf("%s: the order is not each sample once", k.describe())
			}
		}
		for p, s := range whole {
			at[s] = int64(p)
		}
	}
	g := k.batch * k.world
	left := n - k.start
	steps := (left + g - 1) / g
	if k.drop {
		steps = left / g
	}
	taken := make([][]int64, steps)
	fewest, most := n, int64(0)
	for rank := range k.world {
		c := k.Sampler(rank)
		if c.steps() != steps {
			t.Fatalf("%s: %d steps, expected %d", k.describe(), c.steps(), steps)
		}
		told := newTold(t, k, rank)
		var s Step
		cur, batches := Cursor{}, int64(0)
		for c.Next(cur, &s) {
			told.take(&s)
			pos := int64(-1)
			var wrapped int64
			begin := k.start + batches*g
			for i, id := range s.Samples {
				if !once {
					wrapped = s.Wrapped
					break
				}
				p := at[id]
				if p < begin || p >= begin+g {
					wrapped++
					p += n
				}
				if i == 0 && s.First != at[id] {
					t.Fatalf("%s: first position %d, expected %d", k.describe(), s.First, at[id])
				}
				if p <= pos && g <= n {
					t.Fatalf(
						"%s: rank %d gives positions %d, %d in this order",
						k.describe(),
						rank,
						pos,
						p,
					)
				}
				pos = p
			}
			if g <= n && wrapped != s.Wrapped {
				t.Fatalf("%s: %d wrapped, %d counted", k.describe(), wrapped, s.Wrapped)
			}
			taken[batches] = append(taken[batches], s.Samples...)
			if full := int64(len(s.Samples)) == k.batch; !full &&
				!(batches == steps-1 && (k.world == 1 || k.short)) {
				t.Fatalf("%s: a batch of %d in step %d", k.describe(), len(s.Samples), batches)
			}
			if batches == steps-1 {
				fewest, most = min(fewest, int64(len(s.Samples))), max(most, int64(len(s.Samples)))
			}
			cur = s.After
			batches++
		}
		told.end(&s)
		if batches != c.batches() || batches != steps && !(k.short && left%g < k.world) {
			t.Fatalf(
				"%s: rank %d gives %d batches, says %d, expected %d",
				k.describe(),
				rank,
				batches,
				c.batches(),
				steps,
			)
		}
		if batches < steps {
			fewest = 0
		}
	}
	if k.short && steps > 0 && most > fewest+1 {
		t.Fatalf("%s: parts of %d and %d samples in the short step", k.describe(), fewest, most)
	}
	for i, got := range taken {
		var want []int64
		for p := k.start + int64(i)*g; p < k.start+int64(i+1)*g; p++ {
			if p < n {
				want = append(want, whole[p])
			} else if k.world > 1 && !k.short {
				want = append(want, whole[p%n])
			}
		}
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Fatalf("%s: step %d is not its positions", k.describe(), i)
		}
	}
}

// TestCourseLeavesBadEpisodesOut checks loader.L13: bad episodes are left out from their position
// on. With one rank the next samples move up. With several, each rank wraps around its own
// positions, so that all deliver equally many batches.
func TestCourseLeavesBadEpisodesOut(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 3))
	for range 1000 {
		o, bySize := randomOrdering(t, rng)
		k := orderCase{
			o:      o,
			bySize: bySize,
			epoch:  rng.Int64N(3),
			batch:  1 + rng.Int64N(12),
			world:  1 + rng.Int64N(5),
			drop:   rng.IntN(3) == 0,
			short:  rng.IntN(4) == 0,
		}
		n := o.Samples()
		for source, tab := range o.data.tables {
			for place := range tab.ends {
				if rng.IntN(6) == 0 {
					k.bad = append(
						k.bad,
						BadEpisode{
							Source:   source,
							Episode:  tab.Episode(place),
							Epoch:    k.epoch - rng.Int64N(2),
							Position: rng.Int64N(n),
						},
					)
				}
			}
		}
		gone := func(id, p int64) bool {
			source, place, _ := o.data.locateSample(id)
			for _, b := range k.bad {
				if b.Source == source && b.Episode == place &&
					(b.Epoch < k.epoch || p >= b.Position) {
					return true
				}
			}
			return false
		}
		whole := wholeOrder(o, k.epoch)
		for rank := range k.world {
			// The rank's own positions, as a Sampler without bad ones gives them.
			good := k
			good.bad = nil
			c := good.Sampler(rank)
			var own, expect []int64
			for i := int64(0); ; i++ {
				p, ok := c.samplePosition(i)
				if !ok {
					break
				}
				own = append(own, p)
			}
			for _, p := range own {
				if !gone(whole[p], p) {
					expect = append(expect, whole[p])
				}
			}
			c = k.Sampler(rank)
			told := newTold(t, &k, rank)
			var s Step
			var got []int64
			var skipped, batches int64
			cur := Cursor{}
			for c.Next(cur, &s) {
				told.take(&s)
				got = append(got, s.Samples...)
				skipped += s.Skipped
				cur = s.After
				batches++
				if full := int64(len(s.Samples)) == k.batch; !full && k.world > 1 && !k.short {
					// Only where the rank has none left at all, which the call after it says.
					skipped += s.Skipped
					if s = (Step{}); c.Next(cur, &s) || !c.Starved(cur) && cur.step < c.steps() {
						t.Fatalf("%s: rank %d gives a batch of %d", k.describe(), rank, len(got))
					}
					break
				}
			}
			skipped += s.Skipped
			told.end(&s)
			firstLap := got[:min(len(got), len(expect))]
			if k.world > 1 && !k.short && !k.drop {
				// Places behind the epoch's end are wrapped ones, for which every bad episode is
				// bad.
				for i := range own {
					if g := k.batch * k.world; g > n || i > 0 && own[i] < own[i-1] {
						firstLap = firstLap[:0]
					}
				}
			}
			if !slices.Equal(firstLap, expect[:len(firstLap)]) {
				t.Fatalf("%s: rank %d gives %v, expected %v", k.describe(), rank, firstLap, expect)
			}
			switch {
			case k.world == 1:
				want := len(expect)
				if k.drop {
					want -= want % int(k.batch)
				}
				if len(got) != want || !k.drop && skipped != n-int64(want) {
					t.Fatalf(
						"%s: %d given and %d skipped of %d",
						k.describe(),
						len(got),
						skipped,
						n,
					)
				}
			case !k.short && batches != c.steps() && !c.Starved(cur):
				t.Fatalf(
					"%s: rank %d gives %d batches of %d",
					k.describe(),
					rank,
					batches,
					c.steps(),
				)
			}
		}
	}
}

// TestCourseGoesOnFromTheMiddle checks loader.L5: a Sampler that begins in the middle continues
// like a whole one, and admits residents with the samples that are still to be drawn.
func TestCourseGoesOnFromTheMiddle(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 4))
	for range 1000 {
		o, bySize := randomOrdering(t, rng)
		k := orderCase{
			o:      o,
			bySize: bySize,
			epoch:  rng.Int64N(3),
			batch:  1 + rng.Int64N(12),
			world:  1 + rng.Int64N(5),
			short:  rng.IntN(4) == 0,
		}
		if rng.IntN(2) == 0 { // so that ranks stand beyond their step
			for place := range o.data.tables[0].ends {
				if rng.IntN(4) == 0 {
					k.bad = append(
						k.bad,
						BadEpisode{
							Episode:  place,
							Epoch:    k.epoch,
							Position: rng.Int64N(o.Samples()),
						},
					)
				}
			}
		}
		rank := rng.Int64N(k.world)
		whole := k.Sampler(rank)
		var s Step
		cur := Cursor{}
		var cursors []Cursor
		var batches [][]int64
		for whole.Next(cur, &s) {
			cursors = append(cursors, cur)
			batches = append(batches, slices.Clone(s.Samples))
			cur = s.After
		}
		if len(batches) == 0 {
			continue
		}
		from := rng.IntN(len(batches))
		c := k.Sampler(rank)
		told := newTold(t, &k, rank)
		cur = cursors[from]
		i := from
		for ; c.Next(cur, &s); i++ {
			told.take(&s)
			if i >= len(batches) || !slices.Equal(s.Samples, batches[i]) {
				t.Fatalf(
					"%s: begun at %v, batch %d is %v",
					k.describe(),
					cursors[from],
					i,
					s.Samples,
				)
			}
			cur = s.After
		}
		if i != len(batches) {
			t.Fatalf(
				"%s: begun at %v it gives %d batches, expected %d",
				k.describe(),
				cursors[from],
				i-from,
				len(batches)-from,
			)
		}
		told.end(&s)
	}
}

// told checks the admissions and passed samples that a Sampler reports.
type told struct {
	t       *testing.T
	k       *orderCase
	rank    int64
	known   map[tableEntry]bool
	waiting map[int64]int // of admitted episodes, neither given nor passed
}

func newTold(t *testing.T, k *orderCase, rank int64) *told {
	return &told{t: t, k: k, rank: rank, known: map[tableEntry]bool{}, waiting: map[int64]int{}}
}

func (d *told) take(s *Step) {
	d.t.Helper()
	for _, a := range s.Admitted {
		e := tableEntry{a.Source, a.Place}
		if d.known[e] && d.k.bySize {
			d.t.Fatalf("%s: rank %d: episode %v enters a second time", d.k.describe(), d.rank, e)
		}
		d.known[e] = true
		if a.Share <= 0 || a.Share > 1 || d.k.world == 1 && a.Share != 1 {
			d.t.Fatalf("%s: share %v", d.k.describe(), a.Share)
		}
		if !slices.IsSorted(a.Samples) || len(a.Samples) == 0 {
			d.t.Fatalf("%s: samples of %v: %v", d.k.describe(), e, a.Samples)
		}
		for _, id := range a.Samples {
			if source, place, _ := d.k.o.data.locateSample(id); source != a.Source ||
				place != a.Place {
				d.t.Fatalf("%s: sample %d is not of %v", d.k.describe(), id, e)
			}
			d.waiting[id]++
		}
	}
	if d.k.o.Mode != Pool {
		if len(s.Admitted)+len(s.Passed) > 0 {
			d.t.Fatalf("%s: tells of residents", d.k.describe())
		}
		return
	}
	for _, id := range s.Passed {
		if d.waiting[id] == 0 {
			d.t.Fatalf(
				"%s: rank %d: sample %d passes, and is not waited for",
				d.k.describe(),
				d.rank,
				id,
			)
		}
		d.less(id)
	}
	fresh := 0
	for _, id := range s.Samples {
		if d.waiting[id] == 0 {
			fresh++
			continue
		}
		d.less(id)
	}
	if int64(fresh) > s.Wrapped {
		d.t.Fatalf(
			"%s: rank %d gives %d samples of episodes that were not told",
			d.k.describe(),
			d.rank,
			fresh,
		)
	}
}

func (d *told) less(id int64) {
	if d.waiting[id]--; d.waiting[id] == 0 {
		delete(d.waiting, id)
	}
}

func (d *told) end(s *Step) {
	d.t.Helper()
	// The call that ends the epoch may still have admitted bad episodes.
	for _, a := range s.Admitted {
		for _, id := range a.Samples {
			d.waiting[id]++
		}
	}
	for _, id := range s.Passed {
		d.less(id)
	}
	if !d.k.drop && d.k.bySize && len(d.waiting) > 0 {
		d.t.Fatalf(
			"%s: rank %d: %d samples of residents neither came nor passed",
			d.k.describe(),
			d.rank,
			len(d.waiting),
		)
	}
}

// BenchmarkCourse measures a step of one rank in a world.
func BenchmarkCourse(b *testing.B) {
	tables := []*Table{
		tableOf(b, lengthsFor(1, 20_000, 100, 500)),
		tableOf(b, lengthsFor(2, 20_000, 100, 500)),
	}
	for _, mode := range []Shuffle{Global, Pool} {
		for _, k := range []int{1, 2} {
			for _, world := range []int64{1, 8, 64} {
				var mix *MixParams
				if k > 1 {
					mix = &MixParams{Names: []string{"a", "b"}, Weights: []float64{1, 2}}
				}
				o, err := New(
					Params{Mode: mode, PoolSamples: 20_000},
					NewCatalog(tables[:k]...),
					mix,
					1,
				)
				if err != nil {
					b.Fatal(err)
				}
				b.Run(fmt.Sprintf("%s/sources=%d/world=%d", mode, k, world), func(b *testing.B) {
					one := orderCase{o: o, batch: 64, world: world}
					c := one.Sampler(world / 2)
					var s Step
					at := Cursor{}
					c.Next(at, &s)
					b.ReportAllocs()
					b.ResetTimer()
					cpu := cpuTime()
					for range b.N {
						if !c.Next(at, &s) {
							c, at = one.Sampler(world/2), Cursor{}
							continue
						}
						at = s.After
					}
					b.ReportMetric(float64(cpuTime()-cpu)/float64(b.N)/64, "cpu-ns/sample")
				})
			}
		}
	}
}
