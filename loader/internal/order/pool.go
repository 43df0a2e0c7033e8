package order

import (
	"cmp"
	"math/bits"
	"slices"
	"sort"
)

// pool is the order "pool": samples come of resident episodes. The epoch's episodes are cut into shards; positions are dealt
// round-robin over the shards that still have samples, and each shard draws uniformly from what its residents still have.
// Lengths and parameters decide it all: never the memory or the time that a run has.
type pool struct {
	length       int64
	shards       []shard
	phases       []phase
	currentPhase int // phase of the last position, where the next one most likely is
}

// phase is a range of positions that are dealt over the same shards.
type phase struct {
	start  int64   // its first position
	round  int64   // draws that each of its shards had before it
	shards []int32 // in order
}

// MaxShards bounds pool_shards: the phases of a pool take up to shards²/2 numbers.
const MaxShards = 1024

// defaultShards is a function of the dataset alone: the order must not change with the number of ranks.
func defaultShards(episodes int) int {
	return 1 << max(bits.Len(uint(min(8, episodes/8)))-1, 0)
}

// Filled is the number of episodes that have samples.
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

// Span is the samples of a place of the table: [from, to).
func (t *Table) Span(place int) (from, to int64) {
	if place > 0 {
		from = t.ends[place-1]
	}
	return from, t.ends[place]
}

func newPool(p PoolParams, t *Table, seed, epoch int64) *pool {
	c := p.PoolShards
	o := &pool{length: t.Samples(), shards: make([]shard, c)}
	key := deriveKey(seed, epoch, 1)
	for l, places := range assignShards(t, c, key) {
		part := func(total int64) int64 { // sums up to the total over the shards
			if total == 0 {
				return 0
			}
			return max(floorShare(total, l+1, c)-floorShare(total, l, c), 1)
		}
		ln := &o.shards[l]
		*ln = shard{table: t, number: int32(l), shards: int32(c), places: places, maxSamples: part(p.PoolSamples), maxEpisodes: part(p.PoolEpisodes), key: Mix(key + uint64(l) + 1)}
		for _, at := range places {
			from, to := t.Span(int(at))
			ln.samples += to - from
		}
		shuffleSeeded(places, Mix(ln.key^goldenGamma))
		ln.resetDraws()
	}
	o.makePhases()
	return o
}

// floorShare is ⌊total·i/n⌋ for i ≤ n.
func floorShare(total int64, i, n int) int64 {
	hi, lo := bits.Mul64(uint64(total), uint64(i))
	q, _ := bits.Div64(hi, lo, uint64(n))
	return int64(q)
}

// assignShards cuts the episodes into c shards by samples, the longest first, each to the shard that has least; ties are seeded.
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
			items = append(items, item{end - before, Mix(key ^ Mix(uint64(i)+goldenGamma)), int32(i)})
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
		return cmp.Or(cmp.Compare(b.size, a.size), cmp.Compare(a.tie, b.tie), cmp.Compare(a.place, b.place))
	})
	loads := make([]int64, c)
	for _, it := range items {
		least := slices.Index(loads, slices.Min(loads))
		out[least] = append(out[least], it.place)
		loads[least] += it.size
	}
	return out
}

// shuffleSeeded puts a list in a seeded order.
func shuffleSeeded(list []int32, key uint64) {
	for i := len(list) - 1; i > 0; i-- {
		j := scaleTo(Mix(key+uint64(i)*goldenGamma), uint64(i+1))
		list[i], list[j] = list[j], list[i]
	}
}

// makePhases makes the phases: one ends where a shard has given all.
func (o *pool) makePhases() {
	sizes := make([]int64, 0, len(o.shards))
	for i := range o.shards {
		sizes = append(sizes, o.shards[i].samples)
	}
	slices.Sort(sizes)
	var position, round int64
	for _, s := range slices.Compact(sizes) {
		if s == 0 {
			continue
		}
		ph := phase{start: position, round: round}
		for i := range o.shards {
			if o.shards[i].samples >= s {
				ph.shards = append(ph.shards, int32(i))
			}
		}
		o.phases = append(o.phases, ph)
		position += (s - round) * int64(len(ph.shards))
		round = s
	}
}

// Len is the number of samples of the epoch.
func (o *pool) Len() int64 { return o.length }

// shardDraw finds the shard of a position, and which of its draws it is.
func (o *pool) shardDraw(p int64) (shard int32, draw int64) {
	ph := &o.phases[o.currentPhase]
	if p < ph.start || o.currentPhase+1 < len(o.phases) && p >= o.phases[o.currentPhase+1].start {
		o.currentPhase = sort.Search(len(o.phases), func(i int) bool { return o.phases[i].start > p }) - 1
		ph = &o.phases[o.currentPhase]
	}
	d, m := uint64(p-ph.start), uint64(len(ph.shards))
	if m == 1 {
		return ph.shards[0], ph.round + int64(d)
	}
	q := d / m
	return ph.shards[d-q*m], ph.round + int64(q)
}

func (o *pool) shardAt(p int64) (*shard, int64) {
	l, draw := o.shardDraw(p)
	return &o.shards[l], draw
}

// At gives the sample at a position.
func (o *pool) At(p int64) int64 {
	l, draw := o.shardDraw(p)
	return o.shards[l].drawAt(draw)
}

// shard is one canonical shard: its episodes in the order of admission, and the simulation of its draws.
type shard struct {
	table                   *Table
	source                  int   // of a mixture
	offset                  int64 // of the source's sample numbers
	number, shards          int32
	places                  []int32
	samples                 int64 // samples
	maxSamples, maxEpisodes int64 // samples and episodes that may be resident; 0 = no bound
	key                     uint64
	residentState
	onAdmit func(ln *shard, place int32) // is told of each episode that enters; nil: nobody is
	drawCounts
}

// residentState are the episodes of a shard that samples are drawn from.
type residentState struct {
	drawn      int64
	admitted   int      // of places
	admitLimit int      // so few samples must be left before the next may enter; -1: none may, whatever is left
	tickets    []ticket // samples that the residents still have
	seats      []seat
	freeSeats  []int32
}

// drawCounts count the draws of a shard for the Sampler that follows it.
type drawCounts struct {
	rankDraws, allDraws int64 // draws of its rank, and of all ranks, since it follows the shard
	stepSpots           int64 // positions of a step, wrapped ones among them
	dealGroup           int   // of the shards that are dealt as one
}

// ticket is a sample that is still to be drawn.
type ticket struct{ seat, row int32 }

// seat is a resident episode.
type seat struct {
	firstSample int64 // its first sample
	remaining   int32
	place       int32
}

func (ln *shard) resetDraws() {
	ln.drawn, ln.admitted = 0, 0
	ln.tickets, ln.seats, ln.freeSeats = ln.tickets[:0], ln.seats[:0], ln.freeSeats[:0]
	ln.updateAdmitLimit()
}

// residents is the number of episodes that have samples left.
func (ln *shard) residents() int { return len(ln.seats) - len(ln.freeSeats) }

// updateAdmitLimit finds out when the next episode may enter.
func (ln *shard) updateAdmitLimit() {
	switch {
	case ln.admitted == len(ln.places):
		ln.admitLimit = -1
	case ln.maxEpisodes > 0 && int64(ln.residents()) >= ln.maxEpisodes:
		ln.admitLimit = -1 // until a resident is empty
	case ln.maxSamples == 0:
		ln.admitLimit = int(^uint(0) >> 1)
	default:
		from, to := ln.table.Span(int(ln.places[ln.admitted]))
		ln.admitLimit = int(max(ln.maxSamples-(to-from), 0)) // at least one is always resident
	}
}

// admitEpisodes lets episodes enter until the next must wait.
func (ln *shard) admitEpisodes() {
	for len(ln.tickets) <= ln.admitLimit {
		place := ln.places[ln.admitted]
		from, to := ln.table.Span(int(place))
		ln.admitted++
		s := seat{firstSample: from, remaining: int32(to - from), place: place}
		var k int32
		if n := len(ln.freeSeats); n > 0 {
			k = ln.freeSeats[n-1]
			ln.freeSeats = ln.freeSeats[:n-1]
			ln.seats[k] = s
		} else {
			k = int32(len(ln.seats))
			ln.seats = append(ln.seats, s)
		}
		n := len(ln.tickets)
		ln.tickets = slices.Grow(ln.tickets, int(s.remaining))[:n+int(s.remaining)]
		for row := range s.remaining {
			ln.tickets[n+int(row)] = ticket{k, row}
		}
		ln.updateAdmitLimit()
		if ln.onAdmit != nil {
			ln.onAdmit(ln, place)
		}
	}
}

// nextDraw makes the next draw.
func (ln *shard) nextDraw() int64 {
	if len(ln.tickets) <= ln.admitLimit {
		ln.admitEpisodes()
	}
	last := len(ln.tickets) - 1
	i := scaleTo(Mix(ln.key+uint64(ln.drawn)*goldenGamma), uint64(last+1))
	t := ln.tickets[i]
	ln.tickets[i] = ln.tickets[last]
	ln.tickets = ln.tickets[:last]
	ln.drawn++
	s := &ln.seats[t.seat]
	if s.remaining--; s.remaining == 0 {
		ln.freeSeats = append(ln.freeSeats, t.seat)
		ln.updateAdmitLimit()
	}
	return ln.offset + s.firstSample + int64(t.row)
}

// seekTo simulates until so many draws are made.
func (ln *shard) seekTo(drawn int64) {
	if drawn < ln.drawn {
		ln.resetDraws()
	}
	for ln.drawn < drawn {
		ln.nextDraw()
	}
}

// drawAt makes one of the draws: the next one at once, others by a simulation.
func (ln *shard) drawAt(draw int64) int64 {
	ln.seekTo(draw)
	return ln.nextDraw()
}

// forEachResident gives the samples that the residents still have, ascending, an episode at a time in the order of their places.
func (ln *shard) forEachResident(each func(place int32, samples []int64)) {
	ids := make([]int64, 0, len(ln.tickets))
	for _, t := range ln.tickets {
		ids = append(ids, ln.seats[t.seat].firstSample+int64(t.row))
	}
	slices.Sort(ids)
	for from := 0; from < len(ids); {
		_, place := ln.table.Row(ids[from])
		_, end := ln.table.Span(place)
		to := from + sort.Search(len(ids)-from, func(i int) bool { return ids[from+i] >= end })
		for i := range ids[from:to] {
			ids[from+i] += ln.offset
		}
		each(int32(place), ids[from:to])
		from = to
	}
}
