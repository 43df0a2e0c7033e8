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
	n      int64
	shards []shard
	phases []phase
	now    int // phase of the last position, where the next one most likely is
}

// phase is a range of positions that are dealt over the same shards.
type phase struct {
	start int64   // its first position
	round int64   // draws that each of its shards had before it
	alive []int32 // in order
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
	o := &pool{n: t.Samples(), shards: make([]shard, c)}
	key := keyOf(seed, epoch, 1)
	for l, places := range partition(t, c, key) {
		part := func(total int64) int64 { // sums up to the total over the shards
			if total == 0 {
				return 0
			}
			return max(share(total, l+1, c)-share(total, l, c), 1)
		}
		ln := &o.shards[l]
		*ln = shard{table: t, number: int32(l), shards: int32(c), places: places, room: part(p.PoolSamples), most: part(p.PoolEpisodes), key: Mix(key + uint64(l) + 1)}
		for _, at := range places {
			from, to := t.Span(int(at))
			ln.n += to - from
		}
		shuffle(places, Mix(ln.key^golden))
		ln.reset()
	}
	o.deal()
	return o
}

// share is ⌊total·i/n⌋ for i ≤ n.
func share(total int64, i, n int) int64 {
	hi, lo := bits.Mul64(uint64(total), uint64(i))
	q, _ := bits.Div64(hi, lo, uint64(n))
	return int64(q)
}

// partition cuts the episodes into c shards by samples, the longest first, each to the shard that has least; ties are seeded.
func partition(t *Table, c int, key uint64) [][]int32 {
	type item struct {
		size  int64
		tie   uint64
		place int32
	}
	items := make([]item, 0, len(t.ends))
	before := int64(0)
	for i, end := range t.ends {
		if end > before {
			items = append(items, item{end - before, Mix(key ^ Mix(uint64(i)+golden)), int32(i)})
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

// shuffle puts a list in a seeded order.
func shuffle(list []int32, key uint64) {
	for i := len(list) - 1; i > 0; i-- {
		j := below(Mix(key+uint64(i)*golden), uint64(i+1))
		list[i], list[j] = list[j], list[i]
	}
}

// deal makes the phases: one ends where a shard has given all.
func (o *pool) deal() {
	sizes := make([]int64, 0, len(o.shards))
	for i := range o.shards {
		sizes = append(sizes, o.shards[i].n)
	}
	slices.Sort(sizes)
	var position, round int64
	for _, s := range slices.Compact(sizes) {
		if s == 0 {
			continue
		}
		ph := phase{start: position, round: round}
		for i := range o.shards {
			if o.shards[i].n >= s {
				ph.alive = append(ph.alive, int32(i))
			}
		}
		o.phases = append(o.phases, ph)
		position += (s - round) * int64(len(ph.alive))
		round = s
	}
}

// Len is the number of samples of the epoch.
func (o *pool) Len() int64 { return o.n }

// at finds the shard of a position, and which of its draws it is.
func (o *pool) at(p int64) (shard int32, draw int64) {
	ph := &o.phases[o.now]
	if p < ph.start || o.now+1 < len(o.phases) && p >= o.phases[o.now+1].start {
		o.now = sort.Search(len(o.phases), func(i int) bool { return o.phases[i].start > p }) - 1
		ph = &o.phases[o.now]
	}
	d, m := uint64(p-ph.start), uint64(len(ph.alive))
	if m == 1 {
		return ph.alive[0], ph.round + int64(d)
	}
	q := d / m
	return ph.alive[d-q*m], ph.round + int64(q)
}

func (o *pool) place(p int64) (*shard, int64) {
	l, draw := o.at(p)
	return &o.shards[l], draw
}

// At gives the sample at a position.
func (o *pool) At(p int64) int64 {
	l, draw := o.at(p)
	return o.shards[l].at(draw)
}

// shard is one canonical shard: its episodes in the order of admission, and the simulation of its draws.
type shard struct {
	table          *Table
	source         int   // of a mixture
	offset         int64 // of the source's sample numbers
	number, shards int32
	places         []int32
	n              int64 // samples
	room, most     int64 // samples and episodes that may be resident; 0 = no bound
	key            uint64
	poolSeats
	tell func(ln *shard, place int32) // is told of each episode that enters; nil: nobody is
	samplerNotes
}

// poolSeats are the episodes of a shard that samples are drawn from.
type poolSeats struct {
	drawn   int64
	entered int      // of places
	limit   int      // so few samples must be left before the next may enter; -1: none may, whatever is left
	left    []ticket // samples that the residents still have
	seats   []seat
	free    []int32
}

// samplerNotes count the draws of a shard for the Sampler that follows it.
type samplerNotes struct {
	own, all int64 // draws of its rank, and of all ranks, since it follows the shard
	spots    int64 // positions of a step, wrapped ones among them
	group    int   // of the shards that are dealt as one
}

// ticket is a sample that is still to be drawn.
type ticket struct{ seat, row int32 }

// seat is a resident episode.
type seat struct {
	from  int64 // its first sample
	left  int32
	place int32
}

func (ln *shard) reset() {
	ln.drawn, ln.entered = 0, 0
	ln.left, ln.seats, ln.free = ln.left[:0], ln.seats[:0], ln.free[:0]
	ln.aim()
}

// residents is the number of episodes that have samples left.
func (ln *shard) residents() int { return len(ln.seats) - len(ln.free) }

// aim finds out when the next episode may enter.
func (ln *shard) aim() {
	switch {
	case ln.entered == len(ln.places):
		ln.limit = -1
	case ln.most > 0 && int64(ln.residents()) >= ln.most:
		ln.limit = -1 // until a resident is empty
	case ln.room == 0:
		ln.limit = int(^uint(0) >> 1)
	default:
		from, to := ln.table.Span(int(ln.places[ln.entered]))
		ln.limit = int(max(ln.room-(to-from), 0)) // at least one is always resident
	}
}

// admit lets episodes enter until the next must wait.
func (ln *shard) admit() {
	for len(ln.left) <= ln.limit {
		place := ln.places[ln.entered]
		from, to := ln.table.Span(int(place))
		ln.entered++
		s := seat{from: from, left: int32(to - from), place: place}
		var k int32
		if n := len(ln.free); n > 0 {
			k = ln.free[n-1]
			ln.free = ln.free[:n-1]
			ln.seats[k] = s
		} else {
			k = int32(len(ln.seats))
			ln.seats = append(ln.seats, s)
		}
		n := len(ln.left)
		ln.left = slices.Grow(ln.left, int(s.left))[:n+int(s.left)]
		for row := range s.left {
			ln.left[n+int(row)] = ticket{k, row}
		}
		ln.aim()
		if ln.tell != nil {
			ln.tell(ln, place)
		}
	}
}

// draw makes the next draw.
func (ln *shard) draw() int64 {
	if len(ln.left) <= ln.limit {
		ln.admit()
	}
	last := len(ln.left) - 1
	i := below(Mix(ln.key+uint64(ln.drawn)*golden), uint64(last+1))
	t := ln.left[i]
	ln.left[i] = ln.left[last]
	ln.left = ln.left[:last]
	ln.drawn++
	s := &ln.seats[t.seat]
	if s.left--; s.left == 0 {
		ln.free = append(ln.free, t.seat)
		ln.aim()
	}
	return ln.offset + s.from + int64(t.row)
}

// seek simulates until so many draws are made.
func (ln *shard) seek(drawn int64) {
	if drawn < ln.drawn {
		ln.reset()
	}
	for ln.drawn < drawn {
		ln.draw()
	}
}

// at makes one of the draws: the next one at once, others by a simulation.
func (ln *shard) at(draw int64) int64 {
	ln.seek(draw)
	return ln.draw()
}

// remaining gives the samples that the residents still have, ascending, an episode at a time in the order of their places.
func (ln *shard) remaining(each func(place int32, samples []int64)) {
	ids := make([]int64, 0, len(ln.left))
	for _, t := range ln.left {
		ids = append(ids, ln.seats[t.seat].from+int64(t.row))
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
