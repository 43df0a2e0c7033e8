package order

import (
	"cmp"
	"math/bits"
	"slices"
	"sort"
)

// pool is the order "pool": samples are drawn from resident episodes. The episodes of an epoch are
// divided into shards. Positions are dealt round-robin over the shards that still have samples, and
// each shard draws uniformly from the remaining samples of its residents. The order depends only on
// lengths and parameters, never on the memory or speed of a run.
type pool struct {
	length       int64
	shards       []shard
	phases       []phase
	currentPhase int // phase of the last position; the next one is probably in it, too
}

// phase is a range of positions that are dealt over the same shards.
type phase struct {
	start  int64   // first position
	round  int64   // draws of each of its shards before it
	shards []int32 // shards with samples, ascending
}

// MaxShards bounds pool_shards: the phases of a pool hold up to shards²/2 numbers.
const MaxShards = 1024

// defaultShards returns the number of shards for a number of episodes: the largest power of two
// that is at most 8 and at most an eighth of the episodes, but at least 1. It must not depend on
// the number of ranks, since the order depends on it.
func defaultShards(episodes int) int {
	return 1 << max(bits.Len(uint(min(8, episodes/8)))-1, 0)
}

// Filled returns the number of episodes that have samples.
func (t *Table) Filled() int {
	n, before := 0, int64(0)
	for _, end := range t.ends {
		if end > before {
			n++
		}
		before = end
	}
	return n
}

// Span returns the range [from, to) of sample numbers of the episode at position place of the
// table.
func (t *Table) Span(place int) (from, to int64) {
	if place > 0 {
		from = t.ends[place-1]
	}
	return from, t.ends[place]
}

// newPool returns the order of an epoch.
func newPool(p PoolParams, t *Table, seed, epoch int64) *pool {
	c := p.PoolShards
	o := &pool{length: t.Samples(), shards: make([]shard, c)}
	key := deriveKey(seed, epoch, poolKey)
	for l, places := range assignShards(t, c, key) {
		part := func(total int64) int64 { // parts of all shards sum up to total
			if total == 0 {
				return 0
			}
			return max(floorShare(total, l+1, c)-floorShare(total, l, c), 1)
		}
		sh := &o.shards[l]
		*sh = shard{
			table:       t,
			number:      int32(l),
			shards:      int32(c),
			places:      places,
			maxSamples:  part(p.PoolSamples),
			maxEpisodes: part(p.PoolEpisodes),
			key:         Mix(key + uint64(l) + 1),
		}
		for _, at := range places {
			from, to := t.Span(int(at))
			sh.samples += to - from
		}
		shuffleSeeded(places, Mix(sh.key^goldenGamma))
		sh.resetDraws()
	}
	o.makePhases()
	return o
}

// floorShare returns ⌊total·i/n⌋ for i ≤ n.
func floorShare(total int64, i, n int) int64 {
	hi, lo := bits.Mul64(uint64(total), uint64(i))
	q, _ := bits.Div64(hi, lo, uint64(n))
	return int64(q)
}

// assignShards divides the episodes into c shards by samples: the longest episode first, each to
// the shard with the fewest samples. Ties are broken by the seed.
func assignShards(t *Table, c int, key uint64) [][]int32 {
	type item struct {
		size  int64
		tie   uint64
		place int32
	}
	items := make([]item, 0, len(t.ends))
	before := int64(0)
	for i, end := range t.ends {
		if end > before {
			items = append(
				items,
				item{end - before, Mix(key ^ Mix(uint64(i)+goldenGamma)), int32(i)},
			)
		}
		before = end
	}
	out := make([][]int32, c)
	if c == 1 {
		for _, it := range items {
			out[0] = append(out[0], it.place)
		}
		return out
	}
	slices.SortFunc(items, func(a, b item) int {
		return cmp.Or(
			cmp.Compare(b.size, a.size),
			cmp.Compare(a.tie, b.tie),
			cmp.Compare(a.place, b.place),
		)
	})
	loads := make([]int64, c)
	for _, it := range items {
		least := slices.Index(loads, slices.Min(loads))
		out[least] = append(out[least], it.place)
		loads[least] += it.size
	}
	return out
}

// shuffleSeeded shuffles list in place by a seeded permutation.
func shuffleSeeded(list []int32, key uint64) {
	for i := len(list) - 1; i > 0; i-- {
		j := scaleTo(Mix(key+uint64(i)*goldenGamma), uint64(i+1))
		list[i], list[j] = list[j], list[i]
	}
}

// makePhases computes the phases. In each round, every shard with samples left is drawn once. A
// phase ends with the round in which a shard gives its last sample.
func (o *pool) makePhases() {
	sizes := make([]int64, 0, len(o.shards)) // a shard of n samples is empty after n rounds
	for i := range o.shards {
		sizes = append(sizes, o.shards[i].samples)
	}
	slices.Sort(sizes)
	var position, round int64
	for _, lastRound := range slices.Compact(sizes) {
		if lastRound == 0 {
			continue
		}
		ph := phase{start: position, round: round}
		for i := range o.shards {
			if o.shards[i].samples >= lastRound {
				ph.shards = append(ph.shards, int32(i))
			}
		}
		o.phases = append(o.phases, ph)
		position += (lastRound - round) * int64(len(ph.shards))
		round = lastRound
	}
}

// Len returns the number of samples of the epoch.
func (o *pool) Len() int64 { return o.length }

// shardDraw returns the shard of a position and the number of the shard's draw.
func (o *pool) shardDraw(p int64) (shard int32, draw int64) {
	ph := &o.phases[o.currentPhase]
	if p < ph.start || o.currentPhase+1 < len(o.phases) && p >= o.phases[o.currentPhase+1].start {
		o.currentPhase = sort.Search(
			len(o.phases),
			func(i int) bool { return o.phases[i].start > p },
		) - 1
		ph = &o.phases[o.currentPhase]
	}
	d, m := uint64(p-ph.start), uint64(len(ph.shards))
	if m == 1 {
		return ph.shards[0], ph.round + int64(d)
	}
	q := d / m
	return ph.shards[d-q*m], ph.round + int64(q)
}

// shardAt implements pooled.
func (o *pool) shardAt(p int64) (*shard, int64) {
	l, draw := o.shardDraw(p)
	return &o.shards[l], draw
}

// At returns the sample at a position.
func (o *pool) At(p int64) int64 {
	l, draw := o.shardDraw(p)
	return o.shards[l].drawAt(draw)
}

// shard is one shard of a pool: its episodes in order of admission, and the simulation of its
// draws.
type shard struct {
	table                   *Table
	source                  int   // position in the mixture
	epoch                   int64 // of the source
	offset                  int64 // number of the source's first sample
	number, shards          int32
	places                  []int32 // its episodes, as positions in the table
	samples                 int64   // samples of all its episodes
	maxSamples, maxEpisodes int64   // maximum of resident samples and episodes; 0: no limit
	key                     uint64
	residentState
	onAdmit func(sh *shard, place int32) // called for each admitted episode; may be nil
	drawCounts
}

// residentState is the state of a shard's simulation: the resident episodes and their remaining
// samples.
type residentState struct {
	drawn    int64
	admitted int // number of places that were admitted
	// the next episode is admitted when at most admitLimit samples remain; -1: no more episodes
	admitLimit int
	tickets    []ticket // remaining samples of the residents
	seats      []seat
	freeSeats  []int32
}

// drawCounts counts the draws of a shard for the Sampler that follows it.
type drawCounts struct {
	// draws of the rank and of all ranks since the Sampler follows the shard
	rankDraws, allDraws int64
	spotCount           int64 // positions of the current step, including wrapped ones
	dealGroup           int   // index of the group of shards that are dealt as one
}

// ticket is a remaining sample of a resident.
type ticket struct{ seat, row int32 }

// seat is a resident episode.
type seat struct {
	firstSample int64
	remaining   int32 // samples that are not drawn yet
	place       int32 // position of the episode in the table
}

// resetDraws returns the simulation to the start of the epoch.
func (sh *shard) resetDraws() {
	sh.drawn, sh.admitted = 0, 0
	sh.tickets, sh.seats, sh.freeSeats = sh.tickets[:0], sh.seats[:0], sh.freeSeats[:0]
	sh.updateAdmitLimit()
}

// residents returns the number of resident episodes with samples left.
func (sh *shard) residents() int { return len(sh.seats) - len(sh.freeSeats) }

// updateAdmitLimit computes when the next episode is admitted.
func (sh *shard) updateAdmitLimit() {
	switch {
	case sh.admitted == len(sh.places):
		sh.admitLimit = -1
	case sh.maxEpisodes > 0 && int64(sh.residents()) >= sh.maxEpisodes:
		sh.admitLimit = -1 // until a resident has no samples left
	case sh.maxSamples == 0:
		sh.admitLimit = int(^uint(0) >> 1)
	default:
		from, to := sh.table.Span(int(sh.places[sh.admitted]))
		// at least one episode is always resident
		sh.admitLimit = int(max(sh.maxSamples-(to-from), 0))
	}
}

// admitEpisodes admits episodes until the next one must wait.
func (sh *shard) admitEpisodes() {
	for len(sh.tickets) <= sh.admitLimit {
		place := sh.places[sh.admitted]
		from, to := sh.table.Span(int(place))
		sh.admitted++
		s := seat{firstSample: from, remaining: int32(to - from), place: place}
		var k int32
		if n := len(sh.freeSeats); n > 0 {
			k = sh.freeSeats[n-1]
			sh.freeSeats = sh.freeSeats[:n-1]
			sh.seats[k] = s
		} else {
			k = int32(len(sh.seats))
			sh.seats = append(sh.seats, s)
		}
		n := len(sh.tickets)
		sh.tickets = slices.Grow(sh.tickets, int(s.remaining))[:n+int(s.remaining)]
		for row := range s.remaining {
			sh.tickets[n+int(row)] = ticket{k, row}
		}
		sh.updateAdmitLimit()
		if sh.onAdmit != nil {
			sh.onAdmit(sh, place)
		}
	}
}

// nextDraw makes the next draw and returns its sample.
func (sh *shard) nextDraw() int64 {
	if len(sh.tickets) <= sh.admitLimit {
		sh.admitEpisodes()
	}
	last := len(sh.tickets) - 1
	i := scaleTo(Mix(sh.key+uint64(sh.drawn)*goldenGamma), uint64(last+1))
	t := sh.tickets[i]
	sh.tickets[i] = sh.tickets[last]
	sh.tickets = sh.tickets[:last]
	sh.drawn++
	s := &sh.seats[t.seat]
	if s.remaining--; s.remaining == 0 {
		sh.freeSeats = append(sh.freeSeats, t.seat)
		sh.updateAdmitLimit()
	}
	return sh.offset + s.firstSample + int64(t.row)
}

// seekTo simulates until drawn draws are made. It restarts the simulation to go backward.
func (sh *shard) seekTo(drawn int64) {
	if drawn < sh.drawn {
		sh.resetDraws()
	}
	for sh.drawn < drawn {
		sh.nextDraw()
	}
}

// drawAt returns the sample of a draw. The next draw is O(1); others are simulated.
func (sh *shard) drawAt(draw int64) int64 {
	sh.seekTo(draw)
	return sh.nextDraw()
}

// forEachResident calls each for every resident, in the order of the table, with its remaining
// samples, ascending.
func (sh *shard) forEachResident(each func(place int32, samples []int64)) {
	ids := make([]int64, 0, len(sh.tickets))
	for _, t := range sh.tickets {
		ids = append(ids, sh.seats[t.seat].firstSample+int64(t.row))
	}
	slices.Sort(ids)
	for from := 0; from < len(ids); {
		_, place := sh.table.Row(ids[from])
		_, end := sh.table.Span(place)
		to := from + sort.Search(len(ids)-from, func(i int) bool { return ids[from+i] >= end })
		for i := range ids[from:to] {
			ids[from+i] += sh.offset
		}
		each(int32(place), ids[from:to])
		from = to
	}
}
