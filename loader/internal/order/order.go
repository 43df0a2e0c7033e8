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

// Known reports whether s is an order.
func (s Shuffle) Known() bool { return s == FileOrder || s == Global || s == Pool }

// UnmarshalJSON reads a name, false for file order, or true for global.
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

// sequence is the order of one epoch. A sequence is not safe for concurrent use; each run makes
// one.
type sequence interface {
	// Len returns the number of samples of the epoch.
	Len() int64
	// At returns the sample at position p, 0 ≤ p < Len. It is O(1) for file and global. For pool it
	// is O(1) per position forward, and a simulation from the start backward.
	At(p int64) int64
}

// pooled is a sequence whose samples are drawn from resident episodes.
type pooled interface {
	sequence
	// shardAt returns the shard of a position and the number of the shard's draw. It simulates
	// nothing. The shard remains valid when the sequence advances.
	shardAt(p int64) (s *shard, draw int64)
}

// Params holds the options of an order.
type Params struct {
	Mode        Shuffle
	PoolSamples int64 // capacity over all shards; 0: no limit
	// capacity in bytes of resident samples over all sources; overrides PoolSamples
	PoolBytes    int64
	SampleBytes  []int64 // bytes of a resident sample of each source
	PoolEpisodes int64   // resident episodes over all shards; 0: no limit
	Shards       int     // shards per source; 0: by the number of episodes
}

// Order is the order of one epoch over all ranks. It is a pure function of the order's parameters,
// seed, epoch and lengths (loader.L2). An Order is not safe for concurrent use.
type Order struct{ seq sequence }

// Len returns the number of samples of the epoch.
func (o *Order) Len() int64 { return o.seq.Len() }

// At returns the sample at position p, 0 ≤ p < Len. With shuffle="pool" it is O(1) forward and O(p)
// backward.
func (o *Order) At(p int64) int64 { return o.seq.At(p) }

// epochOf returns the epoch of the source at position p, which the sequence found last. Each source
// of a mixture has its own.
func epochOf(seq sequence, epoch, p int64) int64 {
	if m, ok := seq.(interface{ epochAt(p int64) int64 }); ok {
		return m.epochAt(p)
	}
	return epoch
}

// Fill writes the samples at positions from, from+1, … to dst and returns their number.
func (o *Order) Fill(dst []int64, from int64) int {
	n := 0
	for ; n < len(dst) && from+int64(n) < o.seq.Len(); n++ {
		dst[n] = o.seq.At(from + int64(n))
	}
	return n
}

// fileOrder is the order of samples by number.
type fileOrder int64

func (n fileOrder) Len() int64     { return int64(n) }
func (fileOrder) At(p int64) int64 { return p }

// Purposes of keys. The last argument of deriveKey is one of them, so that draws for different
// purposes are unrelated. The numbers determine the order of samples and must not change.
const (
	poolKey        = 1 // the shards of a pool in an epoch
	mixStartKey    = 3 // the first draw of a source of a mixture
	sourceSeedKey  = 4 // the seed of a source of a mixture
	episodeDrawKey = 5 // the order of an episode's draws in a weighted table
)

// deriveKey mixes numbers into a key one after the other, so that the keys of (a, b+1) and (a+1, b)
// are unrelated.
func deriveKey(seed int64, more ...int64) uint64 {
	k := Mix(uint64(seed) ^ goldenGamma)
	for _, v := range more {
		k = Mix(k + uint64(v))
	}
	return k
}

// goldenGamma is the increment of SplitMix64: 2^64 divided by the golden ratio.
const goldenGamma = 0x9e3779b97f4a7c15

// Catalog holds the tables of the sources. In a mixture, sample numbers of the sources are
// consecutive.
type Catalog struct {
	tables  []*Table
	offsets []int64 // number of each source's first sample
	// samples before each source, if the numbers of a table are draws; else nil
	samplesBefore []int64
	seed          int64 // of the draws
}

// NewCatalog numbers the samples of the sources.
func NewCatalog(tables ...*Table) Catalog {
	c := Catalog{tables: tables, offsets: make([]int64, len(tables))}
	sum := int64(0)
	for i, t := range tables {
		c.offsets[i] = sum
		sum += t.Samples()
	}
	if !slices.ContainsFunc(tables, func(t *Table) bool { return t.weights != nil }) {
		return c
	}
	sum = 0
	for _, t := range tables {
		c.samplesBefore = append(c.samplesBefore, sum)
		if t.weights != nil {
			t = t.weights.samples
		}
		sum += t.Samples()
	}
	return c
}

// locateSample returns a sample's source, the position of its episode in the source's table, and
// its number in the source.
func (c *Catalog) locateSample(sample int64) (source, place int, number int64) {
	if len(c.tables) > 1 {
		source = sort.Search(len(c.offsets), func(i int) bool { return c.offsets[i] > sample }) - 1
		for c.tables[source].Samples() == 0 {
			source-- // an empty source has the offset of the next one
		}
	}
	number = sample - c.offsets[source]
	_, place = c.tables[source].Row(number)
	return source, place, number
}

// countGoodSamples returns the number of samples whose episodes are not in bad.
func (c *Catalog) countGoodSamples(bad []BadEpisode) (left int64) {
	for i, t := range c.tables {
		ofSource := slices.DeleteFunc(
			slices.Clone(bad),
			func(b BadEpisode) bool { return b.Source != i },
		)
		left += t.countGoodSamples(ofSource)
	}
	return left
}

// PoolParams holds the parameters of the order "pool" of one source.
type PoolParams struct {
	PoolSamples int64 `json:"pool_samples,omitempty"` // capacity over all shards; 0: no limit
	// resident episodes over all shards; 0: no limit
	PoolEpisodes int64 `json:"pool_episodes,omitempty"`
	PoolShards   int   `json:"pool_shards,omitempty"` // number of shards
}

// Ordering holds everything that determines the order of a loader's epochs. It is immutable. Safe
// for concurrent use.
type Ordering struct {
	Mode      Shuffle
	Seed      int64
	data      Catalog
	Pools     []PoolParams // of each source; nil unless the mode is Pool
	mixPlan   *mixPlan     // nil: one source, whose samples are an epoch
	mixParams *MixParams   // options of mixPlan
}

// New returns the Ordering of the given options. mix may be nil if there is one source.
func New(p Params, data Catalog, mix *MixParams, seed int64) (*Ordering, error) {
	data.seed = seed
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

// splitPool returns the capacity of each source's pool in samples. Sources get bytes in proportion
// to their shares, but no more than they need; the rest is divided among the others.
func (o *Ordering) splitPool(p Params) []int64 {
	out := make([]int64, len(o.data.tables))
	if p.PoolBytes == 0 {
		for i := range out {
			out[i] = p.PoolSamples
		}
	}
	freeBytes, undecided := p.PoolBytes, make([]int, 0, len(out))
	for i := range out {
		if o.mixPlan == nil || o.mixPlan.shares[i] > 0 {
			undecided = append(undecided, i)
		}
	}
	share := func(i int) *big.Int {
		if o.mixPlan == nil {
			return big.NewInt(1)
		}
		return new(big.Int).SetUint64(o.mixPlan.shares[i])
	}
	for freeBytes > 0 && len(undecided) > 0 {
		// Source i gets freeBytes · share_i / sum samples, where sum is Σ share_k · bytes_k over the
		// undecided sources k, and bytes_k is the size of a sample.
		sum := new(big.Int)
		for _, i := range undecided {
			sum.Add(sum, new(big.Int).Mul(share(i), big.NewInt(max(p.SampleBytes[i], 1))))
		}
		fits := -1 // index in undecided of a source whose samples all fit
		for k, i := range undecided {
			n := new(big.Int).Mul(share(i), big.NewInt(freeBytes))
			n.Div(n, sum)
			size := o.data.tables[i].Samples()
			out[i] = max(size, 1)
			if n.IsInt64() && n.Int64() < size {
				out[i] = max(n.Int64(), 1)
			} else if fits < 0 {
				fits = k
			}
		}
		if fits < 0 {
			break
		}
		// The bytes that a small source does not need are divided among the others.
		decided := undecided[fits]
		freeBytes -= out[decided] * max(p.SampleBytes[decided], 1)
		undecided = slices.Delete(undecided, fits, fits+1)
	}
	for i := range out {
		out[i] = max(out[i], 1)
	}
	return out
}

// Samples returns the number of samples of an epoch.
func (o *Ordering) Samples() int64 {
	if o.mixPlan != nil {
		return o.mixPlan.epochSamples
	}
	return o.data.tables[0].Samples()
}

// Capacity returns the maximum number of samples in pools, over all ranks. It is 0 if there is no
// limit.
func (o *Ordering) Capacity() (n int64) {
	for i := range o.Pools {
		if o.Pools[i].PoolSamples == 0 {
			return 0
		}
		n += o.Pools[i].PoolSamples
	}
	return n
}

// sequence returns the order of an epoch.
func (o *Ordering) sequence(epoch int64) sequence {
	switch {
	case o.mixPlan == nil:
		return o.sourceSequence(0, epoch)
	case o.Mode == Pool:
		return mixedPools{newMixture(o, epoch)}
	}
	return newMixture(o, epoch)
}

// Epoch returns the order of an epoch.
func (o *Ordering) Epoch(epoch int64) *Order {
	if o.data.samplesBefore == nil {
		return &Order{o.sequence(epoch)}
	}
	return &Order{weightedSequence{o.sequence(epoch), &o.data, epoch}}
}

// sourceSequence returns the order of source i in one of its own epochs. The first source uses the
// seed itself, so that it has the same order alone and in a mixture.
func (o *Ordering) sourceSequence(i int, epoch int64) sequence {
	t := o.data.tables[i]
	seed := o.Seed
	if i > 0 {
		seed = int64(deriveKey(o.Seed, int64(i), sourceSeedKey))
	}
	switch o.Mode {
	case FileOrder:
		return fileOrder(t.Samples())
	case Pool:
		s := newPool(o.Pools[i], t, seed, epoch)
		for k := range s.shards {
			s.shards[k].source, s.shards[k].offset = i, o.data.offsets[i]
			s.shards[k].epoch = epoch
		}
		return s
	}
	return newPermutation(seed, epoch, t.Samples())
}
