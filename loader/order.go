package loader

import (
	"math/big"
	"slices"
	"sort"
)

// sequence is what comes at each position of one epoch. Not safe for concurrent use; a run makes its own.
type sequence interface {
	Len() int64
	// At gives the sample at position p, 0 ≤ p < Len. O(1) for file and global; for pool O(1) a position going forward, and a simulation from the start going back.
	At(p int64) int64
	// Lane is the canonical shard of a position; (0, 1) where the order has none. It simulates nothing.
	Lane(p int64) (lane, lanes int32)
}

// pooled is a sequence whose samples come of resident episodes. place gives the lane of a position, and which of the lane's
// draws it is; it simulates nothing. A lane that place gave stays good when the sequence has gone on.
type pooled interface {
	sequence
	place(p int64) (l *lane, draw int64)
}

// orderParams is what decides an order beside the data, the seed and the epoch.
type orderParams struct {
	mode         Shuffle
	poolSamples  int64   // capacity over all lanes; 0 = no bound
	poolBytes    int64   // in place of poolSamples: in bytes of resident samples, over all sources
	sampleBytes  []int64 // of each source
	poolEpisodes int64   // resident episodes over all lanes; 0 = no bound
	shards       int     // lanes a source; 0 = by its episodes
}

// Order is the order of one epoch over all ranks. It is a pure function of the order's parameters, seed, epoch and lengths (L2).
// Not safe for concurrent use.
type Order struct{ seq sequence }

// Len is the number of samples of the epoch.
func (o *Order) Len() int64 { return o.seq.Len() }

// At gives the sample at position p, 0 ≤ p < Len. With shuffle="pool" it costs O(1) going forward, and O(p) going back.
func (o *Order) At(p int64) int64 { return o.seq.At(p) }

// Fill writes the samples at positions from, from+1, … into dst and says how many there were.
func (o *Order) Fill(dst []int64, from int64) int {
	n := 0
	for ; n < len(dst) && from+int64(n) < o.seq.Len(); n++ {
		dst[n] = o.seq.At(from + int64(n))
	}
	return n
}

// fileOrder gives the samples as they are numbered.
type fileOrder int64

func (n fileOrder) Len() int64              { return int64(n) }
func (fileOrder) At(p int64) int64          { return p }
func (fileOrder) Lane(int64) (int32, int32) { return 0, 1 }

// keyOf mixes numbers into a key, one after the other, so that (a, b+1) and (a+1, b) have nothing in common.
func keyOf(seed int64, more ...int64) uint64 {
	k := mix(uint64(seed) ^ golden)
	for _, v := range more {
		k = mix(k + uint64(v))
	}
	return k
}

const golden = 0x9e3779b97f4a7c15

// catalog is the tables of the sources. In a mixture the sources' sample numbers follow each other.
type catalog struct {
	tables  []*table
	offsets []int64 // of each source's first sample
}

func newCatalog(tables ...*table) catalog {
	c := catalog{tables: tables, offsets: make([]int64, len(tables))}
	sum := int64(0)
	for i, t := range tables {
		c.offsets[i] = sum
		sum += t.samples()
	}
	return c
}

// find gives a sample's source, its place in the source's table, and the number that it has in the source.
func (c *catalog) find(sample int64) (source, place int, own int64) {
	if len(c.tables) > 1 {
		source = sort.Search(len(c.offsets), func(i int) bool { return c.offsets[i] > sample }) - 1
		for c.tables[source].samples() == 0 {
			source-- // an empty source has the offset of the next one
		}
	}
	own = sample - c.offsets[source]
	_, place = c.tables[source].row(own)
	return source, place, own
}

// without is the number of samples that are not of some bad episodes.
func (c *catalog) without(bad []BadEpisode) (left int64) {
	for i, t := range c.tables {
		left += t.without(slices.DeleteFunc(slices.Clone(bad), func(b BadEpisode) bool { return b.Source != i }))
	}
	return left
}

// catalog is the tables of the sources.
func (a *assembler) catalog() catalog {
	tables := make([]*table, len(a.sources))
	for i, src := range a.sources {
		tables[i] = src.table
	}
	return newCatalog(tables...)
}

// orderParams is what the configuration says of the order. The pool's capacity in samples comes of declared sizes.
func (a *assembler) orderParams() orderParams {
	// An eighth is left for the frames of batches that are under construction.
	p := orderParams{mode: a.cfg.Shuffle, poolBytes: int64(a.cfg.PoolSize) / 8 * 7, poolEpisodes: a.cfg.PoolEpisodes, shards: a.cfg.PoolShards}
	for _, src := range a.sources {
		p.sampleBytes = append(p.sampleBytes, src.residentBytes())
	}
	return p
}

// mixParamsOf is what the sources and the configuration ask of a mixture.
func mixParamsOf(mix []Mix, cfg *Config) *mixParams {
	m := &mixParams{temperature: cfg.Temperature, stop: cfg.Stop, epochSize: cfg.EpochSize, stratified: cfg.Stratified, globalBatch: int64(cfg.BatchSize) * int64(cfg.WorldSize)}
	for i := range mix {
		m.names = append(m.names, mix[i].Name)
		if mix[i].Weight != nil {
			m.weights = append(m.weights, *mix[i].Weight)
		}
	}
	return m
}

// PoolParams is what the order "pool" of one source is made for.
type PoolParams struct {
	PoolSamples  int64 `json:"pool_samples,omitempty"`  // capacity over all lanes; 0 = no bound
	PoolEpisodes int64 `json:"pool_episodes,omitempty"` // resident episodes over all lanes; 0 = no bound
	PoolShards   int   `json:"pool_shards,omitempty"`   // lanes
}

// ordering is all that decides the order of a loader's epochs. It is not changed after it is made.
type ordering struct {
	mode  Shuffle
	seed  int64
	data  catalog
	pools []PoolParams // of each source; nil but for pool
	plan  *mixPlan     // nil: one source, an epoch is its samples
	asked *mixParams   // what the plan was made of
}

// newOrdering settles the parameters of an order. mix may be nil where there is one source.
func newOrdering(p orderParams, data catalog, mix *mixParams, seed int64) (*ordering, error) {
	o := &ordering{mode: p.mode, seed: seed, data: data}
	if mix != nil && (len(data.tables) > 1 || mix.epochSize > 0) {
		sizes := make([]int64, len(data.tables))
		for i, t := range data.tables {
			sizes[i] = t.samples()
		}
		var err error
		if o.plan, err = newMixPlan(*mix, sizes, seed); err != nil {
			return nil, err
		}
		o.asked = mix
	}
	if p.mode != Pool {
		return o, nil
	}
	samples := o.split(p)
	for i, t := range data.tables {
		c := p.shards
		if c == 0 {
			c = defaultShards(t.filled())
		}
		episodes := p.poolEpisodes
		if o.plan != nil && episodes > 0 {
			episodes = max(int64(float64(episodes)*o.plan.share(i)), 1)
		}
		o.pools = append(o.pools, PoolParams{samples[i], episodes, c})
	}
	return o, nil
}

// split gives each source its part of the pool: samples by its share, but no more than it has, in bytes as large as the whole pool.
func (o *ordering) split(p orderParams) []int64 {
	out := make([]int64, len(o.data.tables))
	if p.poolBytes == 0 {
		for i := range out {
			out[i] = p.poolSamples
		}
	}
	left, open := p.poolBytes, make([]int, 0, len(out))
	for i := range out {
		if o.plan == nil || o.plan.shares[i] > 0 {
			open = append(open, i)
		}
	}
	share := func(i int) *big.Int {
		if o.plan == nil {
			return big.NewInt(1)
		}
		return new(big.Int).SetUint64(o.plan.shares[i])
	}
	for left > 0 && len(open) > 0 {
		// samples_i = left · share_i / Σ share · bytes
		sum := new(big.Int)
		for _, i := range open {
			sum.Add(sum, new(big.Int).Mul(share(i), big.NewInt(max(p.sampleBytes[i], 1))))
		}
		full := -1
		for k, i := range open {
			n := new(big.Int).Mul(share(i), big.NewInt(left))
			n.Div(n, sum)
			size := o.data.tables[i].samples()
			if out[i] = max(size, 1); n.IsInt64() && n.Int64() < size {
				out[i] = max(n.Int64(), 1)
			} else if full < 0 {
				full = k
			}
		}
		if full < 0 {
			break
		}
		// What a small source does not need is the others'.
		left -= out[open[full]] * max(p.sampleBytes[open[full]], 1)
		open = slices.Delete(open, full, full+1)
	}
	for i := range out {
		out[i] = max(out[i], 1)
	}
	return out
}

// samples is the number of samples of an epoch.
func (o *ordering) samples() int64 {
	if o.plan != nil {
		return o.plan.n
	}
	return o.data.tables[0].samples()
}

// sequence makes the order of an epoch.
func (o *ordering) sequence(epoch int64) sequence {
	switch {
	case o.plan == nil:
		return o.of(0, epoch)
	case o.mode == Pool:
		return mixedPools{newMixture(o, epoch)}
	}
	return newMixture(o, epoch)
}

// of is the order of one source in one of its own epochs. The first source has the seed itself, so that it alone has the same order
// as in a mixture.
func (o *ordering) of(i int, epoch int64) sequence {
	t := o.data.tables[i]
	seed := o.seed
	if i > 0 {
		seed = int64(keyOf(o.seed, int64(i), 4))
	}
	switch o.mode {
	case FileOrder:
		return fileOrder(t.samples())
	case Pool:
		s := newPool(o.pools[i], t, seed, epoch)
		for k := range s.lanes {
			s.lanes[k].source, s.lanes[k].offset = i, o.data.offsets[i]
		}
		return s
	}
	return newPermutation(seed, epoch, t.samples())
}
