package video

import (
	"cmp"
	"context"
	"slices"
	"sort"
	"sync/atomic"

	"golang.org/x/sync/errgroup"
)

const (
	// fetchGap: so many bytes cost about what a request costs, on a loopback as CPU and at 5 ms as
	// time of one connection.
	fetchGap = 64 << 10
	// fetchRequest bounds a joined read: beyond it several connections are faster than one.
	fetchRequest = 4 << 20
	// maxFetched bounds what one Fetch holds. What is over it is read when it is decoded.
	maxFetched = 64 << 20
	// fetchParallel bounds the reads in flight of one Fetch; the store bounds those of all.
	fetchParallel = 32
)

// Fetched holds the packets of groups of one file, read before a decoder is taken: waiting for a
// store then holds no decoder and no core. Any number of goroutines may decode from it, until
// Release.
type Fetched struct {
	index  *Index
	pieces []piece // by offset
	bytes  int64

	ranges          []Range // of the plan
	reads, byteRead atomic.Int64
}

// piece is one read: its bytes, or why they are not there.
type piece struct {
	off  int64
	data []byte
	err  error
}

func (p *piece) end() int64 { return p.off + int64(len(p.data)) }

// Fetch reads the packets of groups: near ones together, several reads at once. It fails where ctx
// ends, and only there: a read that fails is the error of the groups that need it, when they are
// decoded, as it would be with Decode.
//
// It holds at most 64 MiB (FetchBytes says how much beforehand); of larger plans the rest is read
// when it is decoded.
func Fetch(ctx context.Context, f *File, groups []Group) (*Fetched, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	b := &Fetched{index: f.Index}
	b.plan(f, groups)
	b.read(ctx, f)
	if err := ctx.Err(); err != nil {
		b.Release()
		return nil, err
	}
	return b, nil
}

// FetchBytes is at least what Fetch reads for a group alone, and what a group adds to a Fetch of
// several, gaps of up to 64 KiB aside.
func FetchBytes(f *File, g Group) int64 {
	var n int64
	eachRead(f, g, func(r Range) bool {
		n += r.Len
		return n < maxFetched
	})
	return n
}

// Bytes is the memory that it holds.
func (b *Fetched) Bytes() int64 { return b.bytes }

// Release gives the memory back. No decode may be under way, and none may follow.
func (b *Fetched) Release() { b.index, b.pieces, b.bytes = nil, nil, 0 }

// eachRead gives the reads of a group as Decode makes them, until yield refuses one: runs of
// packets that lie behind each other, then one by one those that push the last frames out of a
// decoder that reorders. What Decode would refuse is not among them.
func eachRead(f *File, g Group, yield func(Range) bool) {
	ix := f.Index
	if len(g.Ordinals) == 0 || g.Start < 0 || g.End >= ix.NumSamples() || g.Start > g.End {
		return
	}
	size := f.Ranged.Size()
	give := func(d, last int) (to int, ok bool) {
		to, r, fits := adjacent(ix, d, last)
		if !fits || r.Off < 0 || r.Len > size || r.Off > size-r.Len {
			return to, true
		}
		return to, yield(r)
	}
	ok := true
	for d := g.Start; d <= g.End && ok; {
		d, ok = give(d, g.End)
	}
	if ix.sameTimes || !ok {
		return
	}
	entry := ix.entryOf(g.Start)
	for d, end := g.End+1, min(g.End+reorder(ix, g.Start, g.End), ix.NumSamples()-1); d <= end && ok && ix.entryOf(d) == entry; {
		d, ok = give(d, d)
	}
}

// adjacent is the read that begins with packet d: as many packets as lie behind each other in the
// file, are needed, and fit a read. fits is false where the first alone is over the limit of a
// packet.
func adjacent(ix *Index, d, last int) (to int, r Range, fits bool) {
	s := ix.Sample(d)
	to, r = d+1, Range{s.Offset, int64(s.Size)}
	for to <= last {
		n := ix.Sample(to)
		if n.Offset != r.end() || r.Len+int64(n.Size) > maxRead || n.Entry != s.Entry {
			break
		}
		r.Len += int64(n.Size)
		to++
	}
	return to, r, s.Size <= maxPacket
}

// plan finds the reads, and makes a piece of memory for each.
func (b *Fetched) plan(f *File, groups []Group) {
	var total int64
	b.ranges = make([]Range, 0, len(groups))
	for _, g := range groups {
		eachRead(f, g, func(r Range) bool {
			if total+r.Len > maxFetched {
				return false
			}
			total += r.Len
			b.ranges = append(b.ranges, r)
			return true
		})
	}
	for _, r := range Coalesce(slices.Clone(b.ranges), fetchGap, fetchRequest) {
		if b.bytes+r.Len > 2*maxFetched { // gaps
			break
		}
		b.bytes += r.Len
		b.pieces = append(b.pieces, piece{off: r.Off, data: make([]byte, r.Len)})
	}
}

// read fills the pieces. A read that failed and that served several is made again for each of them
// alone: a group must come out as it would with other neighbours.
func (b *Fetched) read(ctx context.Context, f *File) {
	b.fill(ctx, f, b.pieces)
	n := len(b.pieces)
	for i := range n {
		if p := b.pieces[i]; p.err != nil && ctx.Err() == nil {
			if parts := b.parts(p); len(parts) > 1 {
				b.fill(ctx, f, parts)
				b.pieces[i].data = nil
				b.pieces = append(b.pieces, parts...)
			}
		}
	}
	if len(b.pieces) > n {
		slices.SortFunc(b.pieces, func(x, y piece) int { return cmp.Compare(x.off, y.off) })
	}
}

// parts cuts a piece into the reads that it was joined of.
func (b *Fetched) parts(p piece) []piece {
	var own []Range
	for _, r := range b.ranges {
		if r.Len > 0 && r.Off >= p.off && r.end() <= p.end() {
			own = append(own, r)
		}
	}
	slices.SortFunc(
		own,
		func(x, y Range) int { return cmp.Or(cmp.Compare(x.Off, y.Off), cmp.Compare(x.Len, y.Len)) },
	)
	own = slices.Compact(own)
	parts := make([]piece, len(own))
	end := p.off
	for i, r := range own {
		parts[i] = piece{off: r.Off, data: p.data[r.Off-p.off:][:r.Len:r.Len]}
		if r.Off < end { // groups share packets: two reads at once must not write to one place
			parts[i].data = make([]byte, r.Len)
		}
		end = max(end, r.end())
	}
	return parts
}

// fill reads pieces, several at once.
func (b *Fetched) fill(ctx context.Context, f *File, pieces []piece) {
	var g errgroup.Group
	g.SetLimit(fetchParallel)
	for i := range pieces {
		p := &pieces[i]
		g.Go(func() error {
			if ctx.Err() == nil {
				b.reads.Add(1)
				b.byteRead.Add(int64(len(p.data)))
				p.err = f.Ranged.ReadAt(ctx, p.data, p.off)
			}
			return nil
		})
	}
	_ = g.Wait()
}

// find is the piece that holds a whole range, nil where none does.
func (b *Fetched) find(r Range) *piece {
	i := sort.Search(len(b.pieces), func(i int) bool { return b.pieces[i].off > r.Off })
	for i--; i >= 0; i-- {
		if p := &b.pieces[i]; len(p.data) > 0 { // one that was cut into its parts holds nothing
			if r.end() <= p.end() {
				return p
			}
			return nil
		}
	}
	return nil
}

func (b *Fetched) holds(d int) bool {
	s := b.index.Sample(d)
	return b.find(Range{s.Offset, int64(s.Size)}) != nil
}

// packets gives the packets from d on that one piece holds; ok is false where it must be read.
func (b *Fetched) packets(d, last int) (to int, base int64, buf []byte, err error, ok bool) {
	ix := b.index
	s := ix.Sample(d)
	p := b.find(Range{s.Offset, int64(s.Size)})
	if p == nil || s.Size == 0 {
		return 0, 0, nil, nil, false
	}
	if p.err != nil {
		return d + 1, s.Offset, nil, p.err, true
	}
	for to = d + 1; to <= last; to++ {
		n := ix.Sample(to)
		if n.Offset < p.off || n.Offset+int64(n.Size) > p.end() || n.Entry != s.Entry {
			break
		}
	}
	return to, p.off, p.data, nil, true
}
