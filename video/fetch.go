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
	// fetchGap is the number of extra bytes that cost about as much as another request. This was
	// measured as CPU time on loopback, and as time of one connection at 5 ms latency.
	fetchGap = 64 << 10
	// fetchRequest limits a joined read. Above this size several connections are faster than one.
	fetchRequest = 4 << 20
	// maxFetched limits the bytes of one Fetch. Packets beyond it are read when they are decoded.
	maxFetched = 64 << 20
	// fetchParallel limits the concurrent reads of one Fetch. The store limits the reads of all
	// Fetches together.
	fetchParallel = 32
)

// Fetched holds packets of groups of one file that were read before decoding. A wait for a store
// then occupies no decoder and no core. Safe for concurrent decoding until Release.
type Fetched struct {
	index  *Index
	pieces []fetchedPiece // sorted by offset
	bytes  int64

	ranges          []Range // the reads of the plan, before they were joined
	reads, byteRead atomic.Int64
}

// fetchedPiece is one read: its bytes, or its error.
type fetchedPiece struct {
	off  int64
	data []byte
	err  error
}

func (p *fetchedPiece) endOffset() int64 { return p.off + int64(len(p.data)) }

// Fetch reads the packets of groups. It joins reads that are close together, and runs several
// concurrently. It fails only if ctx is canceled. A failed read becomes the error of the groups
// that need it when they are decoded, as if Decode had read it.
//
// It holds at most 64 MiB (see FetchBytes). Packets of larger plans are read when they are decoded.
func Fetch(ctx context.Context, f *File, groups []Group) (*Fetched, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	b := &Fetched{index: f.Index}
	b.planReads(f, groups)
	b.readAll(ctx, f)
	if err := ctx.Err(); err != nil {
		b.Release()
		return nil, err
	}
	return b, nil
}

// FetchBytes returns an upper bound of the bytes that Fetch reads for a group, without gaps of up
// to 64 KiB between joined reads.
func FetchBytes(f *File, g Group) int64 {
	var n int64
	eachRead(f, g, func(r Range) bool {
		n += r.Len
		return n < maxFetched
	})
	return n
}

// Bytes returns the memory that the packets occupy.
func (b *Fetched) Bytes() int64 { return b.bytes }

// Release frees the memory. It must not be called during a decode.
func (b *Fetched) Release() { b.index, b.pieces, b.bytes = nil, nil, 0 }

// eachRead calls yield with the reads that Decode makes for a group, until yield returns false. The
// first reads cover runs of adjacent packets of the group. The others are single packets behind it:
// a decoder that reorders frames delivers the last ones only after them. Packets that Decode
// rejects are left out.
func eachRead(f *File, g Group, yield func(Range) bool) {
	ix := f.Index
	if len(g.Ordinals) == 0 || g.Start < 0 || g.End >= ix.NumSamples() || g.Start > g.End {
		return
	}
	size := f.Ranged.Size()
	yieldRead := func(d, last int) (to int, ok bool) {
		to, r, fits := adjacentRead(ix, d, last)
		if !fits || r.Off < 0 || r.Len > size || r.Off > size-r.Len {
			return to, true
		}
		return to, yield(r)
	}
	ok := true
	for d := g.Start; d <= g.End && ok; {
		d, ok = yieldRead(d, g.End)
	}
	if ix.sameTimes || !ok {
		return
	}
	entry := ix.entryOf(g.Start)
	end := min(g.End+reorderDepth(ix, g.Start, g.End), ix.NumSamples()-1)
	for d := g.End + 1; d <= end && ok && ix.entryOf(d) == entry; {
		d, ok = yieldRead(d, d)
	}
}

// adjacentRead returns the read that begins with packet d. It covers the following packets up to
// last while they are adjacent in the file and fit a read. fits is false if packet d exceeds the
// maximum packet size.
func adjacentRead(ix *Index, d, last int) (to int, r Range, fits bool) {
	s := ix.Sample(d)
	to, r = d+1, Range{s.Offset, int64(s.Size)}
	for to <= last {
		n := ix.Sample(to)
		if n.Offset != r.endOffset() || r.Len+int64(n.Size) > maxRead || n.Entry != s.Entry {
			break
		}
		r.Len += int64(n.Size)
		to++
	}
	return to, r, s.Size <= maxPacket
}

// planReads computes the reads and allocates their memory.
func (b *Fetched) planReads(f *File, groups []Group) {
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
		if b.bytes+r.Len > 2*maxFetched { // gaps can exceed the budget
			break
		}
		b.bytes += r.Len
		b.pieces = append(b.pieces, fetchedPiece{off: r.Off, data: make([]byte, r.Len)})
	}
}

// readAll reads all pieces. A failed read that covers several planned reads is repeated for each of
// them. A read error then concerns only the groups that need the damaged bytes (video.V11).
func (b *Fetched) readAll(ctx context.Context, f *File) {
	b.readPieces(ctx, f, b.pieces)
	joined := len(b.pieces)
	for i := range joined {
		if p := b.pieces[i]; p.err != nil && ctx.Err() == nil {
			if parts := b.splitPiece(p); len(parts) > 1 {
				b.readPieces(ctx, f, parts)
				b.pieces[i].data = nil // findPiece skips it
				b.pieces = append(b.pieces, parts...)
			}
		}
	}
	if len(b.pieces) > joined {
		slices.SortFunc(b.pieces, func(x, y fetchedPiece) int { return cmp.Compare(x.off, y.off) })
	}
}

// splitPiece returns the planned reads that a piece covers, as pieces.
func (b *Fetched) splitPiece(p fetchedPiece) []fetchedPiece {
	var own []Range
	for _, r := range b.ranges {
		if r.Len > 0 && r.Off >= p.off && r.endOffset() <= p.endOffset() {
			own = append(own, r)
		}
	}
	slices.SortFunc(
		own,
		func(x, y Range) int {
			return cmp.Or(cmp.Compare(x.Off, y.Off), cmp.Compare(x.Len, y.Len))
		},
	)
	own = slices.Compact(own)
	parts := make([]fetchedPiece, len(own))
	end := p.off
	for i, r := range own {
		parts[i] = fetchedPiece{off: r.Off, data: p.data[r.Off-p.off:][:r.Len:r.Len]}
		if r.Off < end { // groups share packets: concurrent reads must not write to the same memory
			parts[i].data = make([]byte, r.Len)
		}
		end = max(end, r.endOffset())
	}
	return parts
}

// readPieces reads pieces concurrently.
func (b *Fetched) readPieces(ctx context.Context, f *File, pieces []fetchedPiece) {
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

// findPiece returns the piece that covers a whole range, or nil.
func (b *Fetched) findPiece(r Range) *fetchedPiece {
	i := sort.Search(len(b.pieces), func(i int) bool { return b.pieces[i].off > r.Off })
	for i--; i >= 0; i-- {
		if p := &b.pieces[i]; len(p.data) > 0 { // a piece that was split has no data
			if r.endOffset() <= p.endOffset() {
				return p
			}
			return nil
		}
	}
	return nil
}

// holdsPacket reports whether packet d was fetched.
func (b *Fetched) holdsPacket(d int) bool {
	s := b.index.Sample(d)
	return b.findPiece(Range{s.Offset, int64(s.Size)}) != nil
}

// packetsFrom returns the bytes of packets d … to-1, at most up to last, that one piece covers. buf
// begins at file offset base. ok is false if packet d is not covered and must be read.
func (b *Fetched) packetsFrom(d, last int) (to int, base int64, buf []byte, err error, ok bool) {
	ix := b.index
	s := ix.Sample(d)
	p := b.findPiece(Range{s.Offset, int64(s.Size)})
	if p == nil || s.Size == 0 {
		return 0, 0, nil, nil, false
	}
	if p.err != nil {
		return d + 1, s.Offset, nil, p.err, true
	}
	for to = d + 1; to <= last; to++ {
		n := ix.Sample(to)
		if n.Offset < p.off || n.Offset+int64(n.Size) > p.endOffset() || n.Entry != s.Entry {
			break
		}
	}
	return to, p.off, p.data, nil, true
}
