package order

import (
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"syscall"
	"testing"
)

// TestPoolQuality checks the quality of pools of P residents: 512 episodes of 50–399 frames, B =
// 64, an episode without samples left is replaced.
func TestPoolQuality(t *testing.T) {
	tab := tableOf(t, lengthsFor(3, 512, 50, 399))
	want := []struct {
		p                   int64
		distinct, neighbour float64
	}{
		{8, 0.10, 0.35},
		{32, 0.26, 0.10},
		{64, 0.41, 0.050},
		{128, 0.60, 0.023},
		{256, 0.79, 0.009},
		{512, 0.93, 0.0024},
	}
	for _, w := range want {
		mean := func(p PoolParams) (r Randomness) {
			const seeds = 4
			for seed := range int64(seeds) {
				one := poolQuality(p, tab, seed, 0, 64, 0)
				r.Distinct += one.Distinct / seeds
				r.Neighbour += one.Neighbour / seeds
				r.DistinctIdeal, r.NeighbourIdeal = one.DistinctIdeal, one.NeighbourIdeal
			}
			return r
		}
		one := mean(PoolParams{PoolEpisodes: w.p, PoolShards: 1})
		eight := mean(PoolParams{PoolEpisodes: w.p, PoolShards: defaultShards(512)})
		// The maximum of remaining samples of P residents is the memory that a limit of P episodes
		// needs.
		peak, middle := peakOf(tab, PoolParams{PoolEpisodes: w.p, PoolShards: 1})
		bytes := mean(PoolParams{PoolSamples: peak, PoolShards: defaultShards(512)})
		half := mean(PoolParams{PoolSamples: middle, PoolShards: defaultShards(512)})
		t.Logf(
			"P=%3d: C=1 distinct %.3f neighbour %.4f | C=8 %.3f %.4f | %6d samples (its peak) "+
				"%.3f %.4f | %6d samples (its mean) %.3f %.4f | ideal %.3f %.4f",
			w.p,
			one.Distinct,
			one.Neighbour,
			eight.Distinct,
			eight.Neighbour,
			peak,
			bytes.Distinct,
			bytes.Neighbour,
			middle,
			half.Distinct,
			half.Neighbour,
			one.DistinctIdeal,
			one.NeighbourIdeal,
		)
		near := func(name string, got, want, rounding float64) {
			if d := math.Abs(got - want); d > 0.05*want+rounding {
				t.Errorf("P=%d: %s is %.4f, the table says %.4f", w.p, name, got, want)
			}
		}
		near("distinct share", one.Distinct, w.distinct, 0.005)
		near("neighbour share", one.Neighbour, w.neighbour, w.neighbour*0.05)
		if eight.Distinct < one.Distinct*0.97 {
			t.Errorf(
				"P=%d: in shards the distinct share is %.3f, without %.3f",
				w.p,
				eight.Distinct,
				one.Distinct,
			)
		}
	}
}

// A pool over 10⁸ samples holds its residents and two numbers an episode, not the samples.
func TestPoolMemory(t *testing.T) {
	tab := tableOf(t, slices.Repeat([]int{250}, 400_000))
	measure := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := measure()
	o := newPool(PoolParams{PoolSamples: 100_000, PoolShards: 8}, tab, 1, 0)
	for p := range int64(2_000_000) {
		o.At(p)
	}
	used := int64(measure()) - int64(before)
	if limit := int64(400_000*8 + 100_000*8*2 + 1<<20); used > limit {
		t.Errorf("%d bytes for %d samples, expected at most %d", used, o.Len(), limit)
	}
	runtime.KeepAlive(o)
	runtime.KeepAlive(tab)
}

// poolQuality measures the order "pool" over an epoch, or its first positions; see quality.
func poolQuality(p PoolParams, t *Table, seed, epoch, batch, limit int64) Randomness {
	return measureQuality(newPool(p, t, seed, epoch), NewCatalog(t), batch, limit)
}

// peakOf is the most samples that residents have left, and the mean over the first half of the
// epoch.
func peakOf(tab *Table, p PoolParams) (peak, mean int64) {
	o := newPool(p, tab, 0, 0)
	sum, count := int64(0), int64(0)
	for at := range o.length {
		o.At(at)
		left := int64(1) // the drawn one
		for i := range o.shards {
			left += int64(len(o.shards[i].tickets))
		}
		peak = max(peak, left)
		if at < o.length/2 {
			sum += left
			count++
		}
	}
	return peak, sum / count
}

// The order is the rule, draw by draw; a shard never has more than its room and its residents, but
// for one episode that is larger than all of it.
func TestPoolKeepsItsBounds(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	for range 200 {
		tab := tableOf(t, lengthsFor(rng.Uint64(), 1+rng.IntN(60), 0, 40))
		if tab.Samples() == 0 {
			continue
		}
		p := PoolParams{
			PoolSamples:  rng.Int64N(300),
			PoolEpisodes: rng.Int64N(12),
			PoolShards:   1 + rng.IntN(6),
		}
		o := newPool(p, tab, rng.Int64(), 0)
		sum := [2]int64{}
		for i := range o.shards {
			sum[0] += o.shards[i].maxSamples
			sum[1] += o.shards[i].maxEpisodes
		}
		if p.PoolSamples >= int64(p.PoolShards) && sum[0] != p.PoolSamples ||
			p.PoolEpisodes >= int64(p.PoolShards) && sum[1] != p.PoolEpisodes {
			t.Fatalf("%+v: shards have room for %v", p, sum)
		}
		naive := make([]naiveShard, len(o.shards))
		for i := range naive {
			naive[i] = naiveShard{
				sh:      &o.shards[i],
				episode: func(s int64) int { _, place := tab.Row(s); return place },
			}
		}
		for at := range o.length {
			l, _ := o.shardDraw(at)
			sh := &o.shards[l]
			if want := naive[l].draw(); o.At(at) != want {
				t.Fatalf("%+v: position %d is not what the rule says", p, at)
			}
			if p.PoolSamples > 0 && naive[l].most > sh.maxSamples && naive[l].crowd > 1 {
				t.Fatalf(
					"%+v: %d samples of %d residents in a shard for %d",
					p,
					naive[l].most,
					naive[l].crowd,
					sh.maxSamples,
				)
			}
			if p.PoolEpisodes > 0 && int64(naive[l].crowd) > sh.maxEpisodes {
				t.Fatalf("%+v: %d residents in a shard for %d", p, naive[l].crowd, sh.maxEpisodes)
			}
			if sh.residents() != naive[l].residents() {
				t.Fatalf("%+v: %d residents, expected %d", p, sh.residents(), naive[l].residents())
			}
		}
	}
}

// naiveShard is the rule of admission without optimizations. Before each draw, episodes enter while
// the remaining samples and the next episode's fit and the number of residents is below the limit.
// One always enters if no sample remains.
type naiveShard struct {
	sh      *shard
	next    int
	drawn   int64
	left    []int64
	most    int64 // samples left before this draw
	crowd   int   // residents before this draw
	episode func(sample int64) int
}

func (v *naiveShard) residents() int {
	in := map[int]bool{}
	for _, s := range v.left {
		in[v.episode(s)] = true
	}
	return len(in)
}

func (v *naiveShard) draw() int64 {
	for v.next < len(v.sh.places) {
		from, to := v.sh.table.Span(int(v.sh.places[v.next]))
		fits := v.sh.maxSamples == 0 || int64(len(v.left))+to-from <= v.sh.maxSamples
		if len(v.left) > 0 &&
			(!fits || v.sh.maxEpisodes > 0 && int64(v.residents()) >= v.sh.maxEpisodes) {
			break
		}
		for s := from; s < to; s++ {
			v.left = append(v.left, s)
		}
		v.next++
	}
	v.most, v.crowd = int64(len(v.left)), v.residents()
	i := scaleTo(Mix(v.sh.key+uint64(v.drawn)*goldenGamma), uint64(len(v.left)))
	v.drawn++
	s := v.left[i]
	v.left[i] = v.left[len(v.left)-1]
	v.left = v.left[:len(v.left)-1]
	return s
}

// Shards have as equal shares as LPT gives, and a place's shard is known without a simulation.
func TestPoolLanes(t *testing.T) {
	for episodes, want := range map[int]int{
		0:       1,
		1:       1,
		15:      1,
		16:      2,
		31:      2,
		32:      4,
		63:      4,
		64:      8,
		100_000: 8,
	} {
		if got := defaultShards(episodes); got != want {
			t.Errorf("%d episodes: %d shards, expected %d", episodes, got, want)
		}
	}
	tab := tableOf(t, lengthsFor(8, 300, 10, 200))
	o := newPool(PoolParams{PoolSamples: 2000, PoolShards: 8}, tab, 1, 0)
	least, most := o.shards[0].samples, o.shards[0].samples
	sum := int64(0)
	for i := range o.shards {
		least, most, sum = min(least, o.shards[i].samples), max(most, o.shards[i].samples), sum+
			o.shards[i].samples
	}
	if sum != tab.Samples() || most-least > 20 {
		t.Errorf("shards of %d to %d samples, %d in all", least, most, sum)
	}
	shards := make([]int32, o.length)
	for p := range shards {
		shards[p], _ = o.shardDraw(int64(p))
		if p < 1000 && shards[p] != int32(p%8) {
			t.Fatalf("position %d is dealt to shard %d", p, shards[p])
		}
	}
	if o.shards[0].drawn != 0 {
		t.Error("Shard simulates")
	}
	in := map[int]int32{} // episode → shard
	for p := range o.length {
		_, place := tab.Row(o.At(p))
		if l, ok := in[place]; ok && l != shards[p] {
			t.Fatalf("episode %d is in shards %d and %d", place, l, shards[p])
		}
		in[place] = shards[p]
	}
}

// Shards have nothing in common, though their episodes are equally long.
func TestPoolLanesDiffer(t *testing.T) {
	tab := tableOf(t, slices.Repeat([]int{100}, 64))
	o := newPool(PoolParams{PoolSamples: 1600, PoolShards: 2}, tab, 1, 0)
	same := 0
	for range 3000 {
		if o.shards[0].nextDraw()%100 == o.shards[1].nextDraw()%100 {
			same++
		}
	}
	if same > 70 { // expected 30
		t.Errorf("%d of 3000 draws are of the same row in both shards", same)
	}
}

// loader.L2: seeds and epochs have nothing in common, and any place may be asked at any time.
func TestPoolDependsOnSeedAndEpoch(t *testing.T) {
	tab := tableOf(t, lengthsFor(8, 64, 10, 90))
	p := PoolParams{PoolSamples: 800, PoolShards: 4}
	all := func(seed, epoch int64) []int64 {
		out := make([]int64, tab.Samples())
		(&Order{newPool(p, tab, seed, epoch)}).Fill(out, 0)
		return out
	}
	base := all(1, 0)
	if !slices.Equal(base, all(1, 0)) {
		t.Fatal("the same seed and epoch gave another order")
	}
	for _, other := range [][]int64{all(2, 0), all(1, 1), all(0, 1)} {
		same := 0
		for i := range base {
			if base[i] == other[i] {
				same++
			}
		}
		if same > 12 {
			t.Errorf("%d of %d places equal in another seed or epoch", same, len(base))
		}
	}
	o := newPool(p, tab, 1, 0)
	rng := rand.New(rand.NewPCG(1, 1))
	for range 300 {
		if at := rng.Int64N(o.length); o.At(at) != base[at] {
			t.Fatalf("position %d, asked out of order, is another sample", at)
		}
	}
}

// TestPoolDrawsUniformly checks that each draw is uniform over the remaining samples of the
// residents. A pool of all episodes is a perfect shuffle.
func TestPoolDrawsUniformly(t *testing.T) {
	const n, cells = 40_000, 40
	tab := tableOf(t, slices.Repeat([]int{200}, n/200))
	for seed := range int64(3) {
		o := newPool(PoolParams{PoolShards: 1}, tab, seed, 0)
		var count [cells][cells]float64
		for p := range int64(n) {
			count[p*cells/n][o.At(p)*cells/n]++
		}
		chi := 0.0
		want := float64(n) / cells / cells
		for i := range cells {
			for j := range cells {
				chi += (count[i][j] - want) * (count[i][j] - want) / want
			}
		}
		df := float64((cells - 1) * (cells - 1))
		if z := (chi - df) / math.Sqrt(2*df); z > 5 || z < -5 {
			t.Errorf("seed %d: chi-square %.0f for %.0f degrees of freedom", seed, chi, df)
		}
	}
}

// cpuTime returns the CPU time of the process in nanoseconds. Wall time is meaningless on a shared
// machine.
func cpuTime() int64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return u.Utime.Nano() + u.Stime.Nano()
}

func BenchmarkPool(b *testing.B) {
	for _, episodes := range []int{1000, 400_000} {
		tab := tableOf(b, lengthsFor(1, episodes, 50, 450))
		for _, room := range []int64{20_000, 1_000_000} {
			for _, shards := range []int{1, 8} {
				b.Run(
					fmt.Sprintf("samples=%d/room=%d/shards=%d", tab.Samples(), room, shards),
					func(b *testing.B) {
						b.ReportAllocs()
						o := newPool(PoolParams{PoolSamples: room, PoolShards: shards}, tab, 1, 0)
						for p := range min(4*room, o.length/2) { // past the first filling
							o.At(p)
						}
						p := o.shards[0].drawn * int64(shards)
						b.ResetTimer()
						cpu := cpuTime()
						for range b.N {
							if p == o.length {
								p = 0
							}
							o.At(p)
							p++
						}
						b.ReportMetric(float64(cpuTime()-cpu)/float64(b.N), "cpu-ns/op")
					},
				)
			}
		}
	}
}
