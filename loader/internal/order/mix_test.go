package order

import (
	"errors"
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/goatnote-inc/robocache"
)

func mustPlan(t testing.TB, m MixParams, sizes []int64, seed int64) *mixPlan {
	t.Helper()
	for len(m.Names) < len(sizes) {
		m.Names = append(m.Names, fmt.Sprint("source", len(m.Names)))
	}
	p, err := newMixPlan(m, sizes, seed)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// at every prefix each source is within the stated bound of its share, whatever the weights.
func TestMixtureKeepsItsShares(t *testing.T) {
	rng := rand.New(rand.NewPCG(4, 4))
	worst := map[int]float64{}
	for turn := range 150 {
		k := 1 + rng.IntN(12)
		if turn < 30 {
			k = 2
		}
		m := MixParams{Weights: make([]float64, k), EpochSize: 20_000}
		sizes := make([]int64, k)
		sum := 0.0
		for i := range k {
			sizes[i] = 1 + rng.Int64N(5000)
			switch rng.IntN(6) {
			case 0:
				m.Weights[i] = 0
			case 1:
				m.Weights[i] = math.Exp(-12 * rng.Float64())
			case 2:
				m.Weights[i] = 1
			default:
				m.Weights[i] = rng.Float64()
			}
			if i == k-1 && sum == 0 {
				m.Weights[i] = 1
			}
			sum += m.Weights[i]
		}
		p := mustPlan(t, m, sizes, rng.Int64())
		d := p.newDealer()
		count := make([]int64, k)
		for at := int64(1); at <= p.epochSamples; at++ {
			i, j := d.nextSource()
			if j != count[i] {
				t.Fatalf(
					"weights %v: draw %d of source %d is numbered %d",
					m.Weights,
					count[i],
					i,
					j,
				)
			}
			count[i]++
			for i := range count {
				w := m.Weights[i] / sum
				off := math.Abs(float64(count[i]) - w*float64(at))
				// Shares are rounded to 1/S, per sample and source.
				if off > p.shareBound(i)+float64(at)*float64(k)/mixTotal ||
					off > float64(max(p.activeSources()-1, 0))+1e-6 {
					t.Fatalf(
						"weights %v: at prefix %d source %d has %d draws, its share is %.4f, the "+
							"bound %.4f",
						m.Weights,
						at,
						i,
						count[i],
						w*float64(at),
						p.shareBound(i),
					)
				}
				worst[p.activeSources()] = max(worst[p.activeSources()], off)
			}
		}
	}
	t.Logf("most samples off, by number of sources: %v", worst)
}

// The merge is exact: against rational numbers, ties among them.
func TestMixtureIsTheMergeOfTimes(t *testing.T) {
	rng := rand.New(rand.NewPCG(4, 5))
	for turn := range 60 {
		k := 1 + rng.IntN(5)
		m := MixParams{
			EpochSize:   300,
			Stratified:  turn%3 == 0,
			GlobalBatch: int64(8 + rng.IntN(56)),
		}
		sizes := make([]int64, k)
		for i := range sizes {
			sizes[i] = 1 + rng.Int64N(50)
			m.Weights = append(m.Weights, float64(1+rng.IntN(3)))
		}
		p := mustPlan(t, m, sizes, rng.Int64())
		if turn%2 == 0 {
			for i := range p.starts { // equal times
				p.starts[i] = 0
			}
		}
		next := make([]int64, k)
		d := p.newDealer()
		for at := range p.epochSamples {
			best, bestTime := -1, new(big.Rat)
			for i := range k {
				if p.shares[i] == 0 {
					continue
				}
				num := new(big.Int).Mul(big.NewInt(next[i]), new(big.Int).SetUint64(p.totalShares))
				num.Add(num, new(big.Int).SetUint64(p.starts[i]))
				time := new(big.Rat).SetFrac(num, new(big.Int).SetUint64(p.shares[i]))
				if best < 0 || time.Cmp(bestTime) < 0 {
					best, bestTime = i, time
				}
			}
			if i, j := d.nextSource(); i != best || j != next[best] {
				t.Fatalf(
					"position %d: source %d draw %d, expected %d draw %d",
					at,
					i,
					j,
					best,
					next[best],
				)
			}
			if where, ok := p.drawPosition(best, next[best]); !ok || where != at {
				t.Fatalf(
					"draw %d of source %d stands at %d, it says %d",
					next[best],
					best,
					at,
					where,
				)
			}
			next[best]++
		}
	}
}

// TestMixtureSeeks checks that any position is found from any other, including distances that
// cannot be walked.
func TestMixtureSeeks(t *testing.T) {
	rng := rand.New(rand.NewPCG(4, 6))
	for range 60 {
		k := 1 + rng.IntN(9)
		m := MixParams{EpochSize: 4000}
		sizes := make([]int64, k)
		for i := range sizes {
			sizes[i] = 1 + rng.Int64N(50)
			m.Weights = append(m.Weights, math.Exp(-14*rng.Float64()))
		}
		p := mustPlan(t, m, sizes, rng.Int64())
		type dealt struct {
			source int
			draw   int64
		}
		whole := make([]dealt, p.epochSamples)
		d := p.newDealer()
		for at := range whole {
			whole[at].source, whole[at].draw = d.nextSource()
		}
		for range 300 {
			at := rng.Int64N(p.epochSamples)
			d.seekTo(at)
			if i, j := d.nextSource(); (dealt{i, j}) != whole[at] {
				t.Fatalf("after a seek position %d is %d, %d, expected %v", at, i, j, whole[at])
			}
		}
		far := int64(1)<<52 + rng.Int64N(1<<51)
		a, b := p.newDealer(), p.newDealer()
		a.seekTo(far)
		b.seekTo(far - 1)
		sum := int64(0)
		for i, n := range a.drawn {
			sum += n
			// float64 has 53 bits
			if off := math.Abs(float64(n) - p.shareOf(i)*float64(far)); off > p.shareBound(i)+4 {
				t.Fatalf("at %d source %d has %d draws", far, i, n)
			}
		}
		b.nextSource()
		if sum != far || !slices.Equal(a.drawn, b.drawn) {
			t.Fatalf("position %d: %v, one draw after the one before %v", far, a.drawn, b.drawn)
		}
	}
}

// By size every sample of every source comes exactly once an epoch.
func TestMixtureBySize(t *testing.T) {
	rng := rand.New(rand.NewPCG(4, 7))
	for range 300 {
		sizes := make([]int64, 1+rng.IntN(9))
		sum := int64(0)
		for i := range sizes {
			sizes[i] = rng.Int64N(int64(1) << rng.IntN(34))
			if i == 0 {
				sizes[i]++
			}
			sum += sizes[i]
		}
		if p := mustPlan(t, MixParams{}, sizes, rng.Int64()); p.epochSamples != sum ||
			!slices.Equal(p.counts, sizes) {
			t.Fatalf("sizes %v: an epoch of %d has %v", sizes, p.epochSamples, p.counts)
		} else if least, most := slices.Min(p.starts), slices.Max(p.starts); least <
			p.totalShares/16 || most >= p.totalShares-p.totalShares/16 {
			t.Fatalf("starts from %d to %d", least, most) // nearer to the ends rounding would count
		}
	}
}

// stop="first" is where one source has given all, "all" where every one has; epoch_size is itself;
// weight 0 is not there.
func TestMixtureEpochs(t *testing.T) {
	rng := rand.New(rand.NewPCG(4, 8))
	for range 100 {
		k := 1 + rng.IntN(6)
		m := MixParams{}
		sizes := make([]int64, k)
		for i := range sizes {
			sizes[i] = 1 + rng.Int64N(60)
			m.Weights = append(m.Weights, 0.05+rng.Float64())
			if i > 0 && rng.IntN(4) == 0 {
				m.Weights[i] = 0
			}
		}
		seed := rng.Int64()
		m.Stop = "first"
		first := mustPlan(t, m, sizes, seed)
		m.Stop = "all"
		all := mustPlan(t, m, sizes, seed)
		given := make([]int64, k)
		d := all.newDealer()
		var firstAt, allAt int64
		for at := int64(1); allAt == 0; at++ {
			i, _ := d.nextSource()
			given[i]++
			whole := true
			for i := range given {
				if m.Weights[i] == 0 {
					continue
				}
				if given[i] >= sizes[i] && firstAt == 0 {
					firstAt = at
				}
				whole = whole && given[i] >= sizes[i]
			}
			if whole {
				allAt = at
			}
		}
		if first.epochSamples != firstAt || all.epochSamples != allAt {
			t.Fatalf(
				"epochs of %d and %d, expected %d and %d",
				first.epochSamples,
				all.epochSamples,
				firstAt,
				allAt,
			)
		}
		for i, n := range all.counts {
			if m.Weights[i] == 0 && n != 0 || m.Weights[i] > 0 && n < sizes[i] {
				t.Fatalf("counts %v of sizes %v", all.counts, sizes)
			}
		}
		m.Stop, m.EpochSize = "", 77
		if p := mustPlan(t, m, sizes, seed); p.epochSamples != 77 {
			t.Fatalf("epoch_size 77 gives %d", p.epochSamples)
		}
	}
	one := mustPlan(t, MixParams{Weights: []float64{0, 1, 0}}, []int64{5, 7, 9}, 1)
	if one.epochSamples != 7 || !slices.Equal(one.counts, []int64{0, 7, 0}) {
		t.Errorf("weights 0, 1, 0: an epoch of %d has %v", one.epochSamples, one.counts)
	}
}

// Stratified: each global batch has the same number of samples of each source, by largest
// remainder.
func TestMixtureStratified(t *testing.T) {
	p := mustPlan(
		t,
		MixParams{
			Weights:     []float64{0.5, 0.3, 0.2},
			Stratified:  true,
			GlobalBatch: 64,
			EpochSize:   6400,
		},
		[]int64{10, 20, 30},
		5,
	)
	if want := []uint64{32, 19, 13}; !slices.Equal(p.shares, want) {
		t.Fatalf("shares %v of 64, expected %v", p.shares, want)
	}
	d := p.newDealer()
	for range 100 {
		var count [3]uint64
		for range 64 {
			i, _ := d.nextSource()
			count[i]++
		}
		if !slices.Equal(count[:], p.shares) {
			t.Fatalf("a global batch of %v", count)
		}
	}
	_, err := newMixPlan(
		MixParams{
			Names:       []string{"big", "small"},
			Weights:     []float64{1000, 1},
			Stratified:  true,
			GlobalBatch: 8,
		},
		[]int64{10, 10},
		1,
	)
	if !errors.Is(err, robocache.ErrMisuse) || !strings.Contains(err.Error(), "small") {
		t.Errorf("a source without a sample in a batch: %v", err)
	}
}

// Temperature: shares ∝ (weight, or size)^(1/T).
func TestMixtureTemperature(t *testing.T) {
	sizes := []int64{1000, 10, 100}
	for _, c := range []struct {
		m    MixParams
		want []float64
	}{
		{MixParams{}, []float64{1000. / 1110, 10. / 1110, 100. / 1110}},
		{MixParams{Temperature: 2}, []float64{math.Sqrt(1000), math.Sqrt(10), 10}},
		{MixParams{Temperature: 1e9}, []float64{1, 1, 1}},
		{MixParams{Weights: []float64{1, 4, 0}, Temperature: 0.5}, []float64{1, 16, 0}},
		{MixParams{Weights: []float64{1, 4, 0}}, []float64{0.2, 0.8, 0}},
	} {
		p := mustPlan(t, c.m, sizes, 1)
		sum := 0.0
		for _, w := range c.want {
			sum += w
		}
		total := uint64(0)
		for i, w := range c.want {
			if math.Abs(p.shareOf(i)-w/sum) > 1e-8 {
				t.Errorf("%+v: share %d is %v, expected %v", c.m, i, p.shareOf(i), w/sum)
			}
			total += p.shares[i]
		}
		if total != p.totalShares {
			t.Errorf("%+v: shares sum up to %d of %d", c.m, total, p.totalShares)
		}
	}
}

func TestMixtureErrors(t *testing.T) {
	for want, m := range map[string]MixParams{
		"Stop":               {Stop: "last"},
		"EpochSize":          {EpochSize: -1},
		"EpochSize and Stop": {EpochSize: 5, Stop: "all"},
		"Temperature":        {Temperature: -1},
		"weight of b":        {Weights: []float64{1, math.NaN()}},
		"weights":            {Weights: []float64{0, 0}},
		"primary source b": {
			Weights: []float64{1, 0}, Primary: []bool{false, true},
		},
		"Primary: true and": {Primary: []bool{true, false}, EpochSize: 5},
		"the epoch":         {Weights: []float64{1, 1e-12}, Stop: "all"},
	} {
		m.Names = []string{"a", "b"}
		_, err := newMixPlan(m, []int64{10, 1 << 40}, 0)
		if !errors.Is(err, robocache.ErrMisuse) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}

// TestMixtureRunsItsSourcesOrders checks that each source runs its own order and continues in its
// own next epoch, also across epochs of the mixture. The pattern of sources is equal in each epoch.
func TestMixtureRunsItsSourcesOrders(t *testing.T) {
	rng := rand.New(rand.NewPCG(4, 9))
	for turn := range 60 {
		k := 1 + rng.IntN(4)
		tables := make([]*Table, k)
		for i := range tables {
			tables[i] = tableOf(t, lengthsFor(rng.Uint64(), 1+rng.IntN(6), 1, 12))
		}
		m := randomMix(rng, k)
		m.Stratified = false
		if m.EpochSize == 0 && m.Stop == "" {
			m.EpochSize = 1 + rng.Int64N(300)
		}
		o, err := New(
			Params{Mode: []Shuffle{Global, Pool, FileOrder}[turn%3], PoolSamples: 20},
			NewCatalog(tables...),
			m,
			rng.Int64(),
		)
		if err != nil {
			t.Fatal(err)
		}
		drawn := make([]int64, k)
		inner := make([]sequence, k)
		var pattern []int
		for epoch := range int64(4) {
			s := o.sequence(epoch)
			for p := range s.Len() {
				source, _, own := o.data.locateSample(s.At(p))
				n := tables[source].Samples()
				if drawn[source]%n == 0 {
					inner[source] = o.sourceSequence(source, drawn[source]/n)
				}
				want := inner[source].At(drawn[source] % n)
				if o.Mode == Pool {
					want -= o.data.offsets[source]
				}
				if own != want {
					t.Fatalf(
						"%+v: epoch %d position %d: sample %d of source %d, its own order says %d",
						*m,
						epoch,
						p,
						own,
						source,
						want,
					)
				}
				drawn[source]++
				if epoch == 0 {
					pattern = append(pattern, source)
				} else if pattern[p] != source {
					t.Fatalf(
						"epoch %d: position %d is of source %d, in epoch 0 of %d",
						epoch,
						p,
						source,
						pattern[p],
					)
				}
			}
		}
	}
}

// One source of a mixture has the order that it has alone.
func TestMixtureOfOne(t *testing.T) {
	tab := tableOf(t, lengthsFor(2, 9, 3, 20))
	alone, _ := New(Params{Mode: Global}, NewCatalog(tab), nil, 5)
	mixed, err := New(
		Params{Mode: Global},
		NewCatalog(tab),
		&MixParams{Names: []string{"a"}, EpochSize: 2 * tab.Samples()},
		5,
	)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := wholeOrder(mixed, 0),
		append(wholeOrder(alone, 0), wholeOrder(alone, 1)...); !slices.Equal(got, want) {
		t.Errorf("%v, alone %v", got, want)
	}
}

// Sources have nothing in common, though they are equally long.
func TestMixtureSourcesDiffer(t *testing.T) {
	tab := tableOf(t, slices.Repeat([]int{50}, 20))
	for _, mode := range []Shuffle{Global, Pool} {
		o, err := New(
			Params{Mode: mode, PoolSamples: 400},
			NewCatalog(tab, tab),
			&MixParams{Names: []string{"a", "b"}},
			1,
		)
		if err != nil {
			t.Fatal(err)
		}
		a, b, same := o.sourceSequence(0, 0), o.sourceSequence(1, 0), 0
		for p := range tab.Samples() {
			if a.At(p)%1000 == b.At(p)%1000 {
				same++
			}
		}
		if same > 20 {
			t.Errorf("%s: %d of 1000 places are the same in both sources", mode, same)
		}
	}
}

// TestPoolIsSplit checks that the pool's bytes are divided by shares, and that bytes that a small
// source does not need are divided among the others.
func TestPoolIsSplit(t *testing.T) {
	tables := []*Table{
		tableOf(t, []int{10, 20}),
		tableOf(t, slices.Repeat([]int{100}, 1000)),
		tableOf(t, slices.Repeat([]int{100}, 1000)),
	}
	o, err := New(
		Params{Mode: Pool, PoolBytes: 100_000, SampleBytes: []int64{10, 30, 10}, PoolEpisodes: 10},
		NewCatalog(tables...),
		&MixParams{Names: []string{"a", "b", "c"}, Weights: []float64{0.5, 0.25, 0.25}},
		1,
	)
	if err != nil {
		t.Fatal(err)
	}
	// a: all its 30 samples, 300 bytes; the rest by equal numbers of samples: 99 700 / 40.
	if got, want := []int64{
		o.Pools[0].PoolSamples,
		o.Pools[1].PoolSamples,
		o.Pools[2].PoolSamples,
	}, []int64{
		30,
		2492,
		2492,
	}; !slices.Equal(
		got,
		want,
	) {
		t.Errorf("pools of %v samples, expected %v", got, want)
	}
	if got, want := []int64{
		o.Pools[0].PoolEpisodes,
		o.Pools[1].PoolEpisodes,
	}, []int64{
		5,
		2,
	}; !slices.Equal(
		got,
		want,
	) {
		t.Errorf("pools of %v episodes, expected %v", got, want)
	}
}

func BenchmarkMixture(b *testing.B) {
	for _, k := range []int{2, 8, 50} {
		m := MixParams{EpochSize: 1 << 50}
		sizes := make([]int64, k)
		for i := range sizes {
			sizes[i] = int64(1000 * (i + 1))
		}
		p := mustPlan(b, m, sizes, 1)
		b.Run(fmt.Sprintf("deal/%d", k), func(b *testing.B) {
			d := p.newDealer()
			cpu := cpuTime()
			for range b.N {
				d.nextSource()
			}
			b.ReportMetric(float64(cpuTime()-cpu)/float64(b.N), "cpu-ns/op")
		})
		b.Run(fmt.Sprintf("seek/%d", k), func(b *testing.B) {
			d := p.newDealer()
			cpu := cpuTime()
			for i := range b.N {
				d.seekTo(int64(i%2*1000000 + i*7919))
			}
			b.ReportMetric(float64(cpuTime()-cpu)/float64(b.N), "cpu-ns/op")
		})
	}
}

// TestMixtureBalanceAndPrimary checks shares of weight × size, and an epoch of one pass over the
// primary sources: size / share samples, as dlimp's users compute it.
func TestMixtureBalanceAndPrimary(t *testing.T) {
	for _, x := range []struct {
		primary []bool
		stop    Stop
		want    float64
	}{ // weight × size is 200, 100, 1800 of 2100
		{nil, StopSum, 800},
		{[]bool{true, false, false}, StopSum, 100 * 2100 / 200},
		{[]bool{true, true, false}, StopSum, 100 * 2100 / 100},
		{[]bool{true, true, false}, StopFirst, 100 * 2100 / 200},
	} {
		m := MixParams{Weights: []float64{2, 1, 3}, Balance: true, Primary: x.primary, Stop: x.stop}
		p := mustPlan(t, m, []int64{100, 100, 600}, 3)
		// A source has its last sample less than one interval of its draws before that.
		if got := float64(p.epochSamples); math.Abs(got-x.want) > 21+2 {
			t.Errorf("primary %v, stop %q: %v samples, want %v", x.primary, x.stop, got, x.want)
		}
		for i, share := range []float64{200. / 2100, 100. / 2100, 1800. / 2100} {
			if math.Abs(p.shareOf(i)-share) > 1e-9 {
				t.Errorf("share %d is %v, want %v", i, p.shareOf(i), share)
			}
		}
		for i, isPrimary := range x.primary {
			if isPrimary && x.stop == StopSum && p.counts[i] < p.sourceSizes[i] {
				t.Errorf("primary %v: %d samples of source %d", x.primary, p.counts[i], i)
			}
		}
	}
}
