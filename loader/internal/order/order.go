package order

import (
	"encoding/json"
	"math/big"
	"slices"
	"sort"
)

// Shuffle names the order of an epoch.
type Shuffle string

const (
	FileOrder Shuffle = ""       // Python: False
	Global    Shuffle = "global" // a keyed permutation of all samples
	Pool      Shuffle = "pool"   // samples of resident episodes
)

// Known says whether there is such an order.
func (s Shuffle) Known() bool { return s == FileOrder || s == Global || s == Pool }

// UnmarshalJSON reads a name, or false for file order and true for global.
func (s *Shuffle) UnmarshalJSON(b []byte) error {
	switch string(b) {
	case "false", "null":
		*s = FileOrder
	case "true":
		*s = Global
	default:
		var v string
		if err := json.Unmarshal(b, &v); err != nil {
			return misuseOf("shuffle", `"global", "pool" or false`, string(b))
		}
		*s = Shuffle(v)
	}
	return nil
}

// sequence is what comes at each position of one epoch. Not safe for concurrent use; a run makes its own.
type sequence interface {
	Len() int64
	// At gives the sample at position p, 0 ≤ p < Len. O(1) for file and global; for pool O(1) a position going forward, and a simulation from the start going back.
	At(p int64) int64
}

// pooled is a sequence whose samples come of resident episodes. place gives the shard of a position, and which of the shard's
// draws it is; it simulates nothing. A shard that place gave stays good when the sequence has gone on.
type pooled interface {
	sequence
	shardAt(p int64) (s *shard, draw int64)
}

// Params is what decides an order beside the data, the seed and the epoch.
type Params struct {
	Mode         Shuffle
	PoolSamples  int64   // capacity over all shards; 0 = no bound
	PoolBytes    int64   // in place of PoolSamples: in bytes of resident samples, over all sources
	SampleBytes  []int64 // of each source
	PoolEpisodes int64   // resident episodes over all shards; 0 = no bound
	Shards       int     // of a source; 0 = by its episodes
}

// Order is the order of one epoch over all ranks. It is a pure function of the order's parameters, seed, epoch and lengths (loader.L2).
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

func (n fileOrder) Len() int64     { return int64(n) }
func (fileOrder) At(p int64) int64 { return p }

// deriveKey mixes numbers into a key, one after the other, so that (a, b+1) and (a+1, b) have nothing in common.
func deriveKey(seed int64, more ...int64) uint64 {
	k := Mix(uint64(seed) ^ goldenGamma)
	for _, v := range more {
		k = Mix(k + uint64(v))
	}
	return k
}

const goldenGamma = 0x9e3779b97f4a7c15

// Catalog is the tables of the sources. In a mixture the sources' sample numbers follow each other.
type Catalog struct {
	tables  []*Table
	offsets []int64 // of each source's first sample
}

// NewCatalog numbers the samples of the sources.
func NewCatalog(tables ...*Table) Catalog {
	c := Catalog{tables: tables, offsets: make([]int64, len(tables))}
	sum := int64(0)
	for i, t := range tables {
		c.offsets[i] = sum
		sum += t.Samples()
	}
	return c
}

// locateSample gives a sample's source, its place in the source's table, and the number that it has in the source.
func (c *Catalog) locateSample(sample int64) (source, place int, own int64) {
	if len(c.tables) > 1 {
		source = sort.Search(len(c.offsets), func(i int) bool { return c.offsets[i] > sample }) - 1
		for c.tables[source].Samples() == 0 {
			source-- // an empty source has the offset of the next one
		}
	}
	own = sample - c.offsets[source]
	_, place = c.tables[source].Row(own)
	return source, place, own
}

// samplesWithout is the number of samples that are not of some bad episodes.
func (c *Catalog) samplesWithout(bad []BadEpisode) (left int64) {
	for i, t := range c.tables {
		left += t.samplesWithout(slices.DeleteFunc(slices.Clone(bad), func(b BadEpisode) bool { return b.Source != i }))
	}
	return left
}

// PoolParams is what the order "pool" of one source is made for.
type PoolParams struct {
	PoolSamples  int64 `json:"pool_samples,omitempty"`  // capacity over all shards; 0 = no bound
	PoolEpisodes int64 `json:"pool_episodes,omitempty"` // resident episodes over all shards; 0 = no bound
	PoolShards   int   `json:"pool_shards,omitempty"`   // shards
}

// Ordering is all that decides the order of a loader's epochs. It is not changed after it is made.
type Ordering struct {
	Mode      Shuffle
	Seed      int64
	data      Catalog
	Pools     []PoolParams // of each source; nil but for pool
	mixPlan   *mixPlan     // nil: one source, an epoch is its samples
	mixParams *MixParams   // what the plan was made of
}

// New settles the parameters of an order. mix may be nil where there is one source.
func New(p Params, data Catalog, mix *MixParams, seed int64) (*Ordering, error) {
	o := &Ordering{Mode: p.Mode, Seed: seed, data: data}
	if mix != nil && (len(data.tables) > 1 || mix.EpochSize > 0) {
		sizes := make([]int64, len(data.tables))
		for i, t := range data.tables {
			sizes[i] = t.Samples()
		}
		var err error
		if o.mixPlan, err = newMixPlan(*mix, sizes, seed); err != nil {
			return nil, err
		}
		o.mixParams = mix
	}
	if p.Mode != Pool {
		return o, nil
	}
	samples := o.splitPool(p)
	for i, t := range data.tables {
		c := p.Shards
		if c == 0 {
			c = defaultShards(t.Filled())
		}
		episodes := p.PoolEpisodes
		if o.mixPlan != nil && episodes > 0 {
			episodes = max(int64(float64(episodes)*o.mixPlan.shareOf(i)), 1)
		}
		o.Pools = append(o.Pools, PoolParams{samples[i], episodes, c})
	}
	return o, nil
}

// splitPool gives each source its part of the pool: samples by its share, but no more than it has, in bytes as large as the whole pool.
func (o *Ordering) splitPool(p Params) []int64 {
	out := make([]int64, len(o.data.tables))
	if p.PoolBytes == 0 {
		for i := range out {
			out[i] = p.PoolSamples
		}
	}
	left, open := p.PoolBytes, make([]int, 0, len(out))
	for i := range out {
		if o.mixPlan == nil || o.mixPlan.shares[i] > 0 {
			open = append(open, i)
		}
	}
	share := func(i int) *big.Int {
		if o.mixPlan == nil {
			return big.NewInt(1)
		}
		return new(big.Int).SetUint64(o.mixPlan.shares[i])
	}
	for left > 0 && len(open) > 0 {
		// samples_i = left · share_i / Σ share · bytes
		sum := new(big.Int)
		for _, i := range open {
			sum.Add(sum, new(big.Int).Mul(share(i), big.NewInt(max(p.SampleBytes[i], 1))))
		}
		full := -1
		for k, i := range open {
			n := new(big.Int).Mul(share(i), big.NewInt(left))
			n.Div(n, sum)
			size := o.data.tables[i].Samples()
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
		left -= out[open[full]] * max(p.SampleBytes[open[full]], 1)
		open = slices.Delete(open, full, full+1)
	}
	for i := range out {
		out[i] = max(out[i], 1)
	}
	return out
}

// Samples is the number of samples of an epoch.
func (o *Ordering) Samples() int64 {
	if o.mixPlan != nil {
		return o.mixPlan.epochSamples
	}
	return o.data.tables[0].Samples()
}

// Room is how many samples pools hold at most, over all ranks; 0: there is no bound.
func (o *Ordering) Capacity() (n int64) {
	for i := range o.Pools {
		if o.Pools[i].PoolSamples == 0 {
			return 0
		}
		n += o.Pools[i].PoolSamples
	}
	return n
}

// sequence makes the order of an epoch.
func (o *Ordering) sequence(epoch int64) sequence {
	switch {
	case o.mixPlan == nil:
		return o.sourceSequence(0, epoch)
	case o.Mode == Pool:
		return mixedPools{newMixture(o, epoch)}
	}
	return newMixture(o, epoch)
}

// Epoch is the order of one epoch.
func (o *Ordering) Epoch(epoch int64) *Order { return &Order{o.sequence(epoch)} }

// sourceSequence is the order of one source in one of its own epochs. The first source has the seed itself, so that it alone has the same order
// as in a mixture.
func (o *Ordering) sourceSequence(i int, epoch int64) sequence {
	t := o.data.tables[i]
	seed := o.Seed
	if i > 0 {
		seed = int64(deriveKey(o.Seed, int64(i), 4))
	}
	switch o.Mode {
	case FileOrder:
		return fileOrder(t.Samples())
	case Pool:
		s := newPool(o.Pools[i], t, seed, epoch)
		for k := range s.shards {
			s.shards[k].source, s.shards[k].offset = i, o.data.offsets[i]
		}
		return s
	}
	return newPermutation(seed, epoch, t.Samples())
}
