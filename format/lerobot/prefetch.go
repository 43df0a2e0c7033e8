package lerobot

import (
	"cmp"
	"context"
	"slices"
	"sort"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/lerobot/internal/pq"
	"github.com/goatnote-inc/robocache/internal/guard"
	"github.com/goatnote-inc/robocache/store"
)

// A recorder's episodes file has a row group every ten episodes: read one by one, its column chunks are ten thousand
// requests. Those of neighbouring columns lie side by side and are read together.
const (
	prefetchGap   = 8 << 10  // bytes that are read for nothing rather than asking twice
	prefetchBatch = 32 << 20 // bytes held at a time
)

// piece is a part of a file.
type piece struct{ off, size int64 }

// pieces are the column chunks of leaves in a row group of at most a size. What does not lie in the file is left to ReadColumn, which says so.
func pieces(to []piece, f *pq.File, leaves []*pq.Node, group int, most int64) []piece {
	for _, l := range leaves {
		if k, ok := f.Chunk(group, l); ok && k.Offset >= 0 && k.Size > 0 && k.Size <= min(most, f.Size) && k.Offset <= f.Size-k.Size {
			to = append(to, piece{k.Offset, k.Size})
		}
	}
	return to
}

// join sorts pieces and joins those that lie side by side, up to a size.
func join(list []piece, most int64) []piece {
	slices.SortFunc(list, func(a, b piece) int { return cmp.Or(cmp.Compare(a.off, b.off), cmp.Compare(a.size, b.size)) })
	out := list[:0]
	for _, p := range list {
		end := p.off + p.size
		if n := len(out); n > 0 {
			if last := &out[n-1]; p.off <= last.off+last.size+prefetchGap && end-last.off <= most {
				last.size = max(last.size, end-last.off)
				continue
			}
		}
		out = append(out, p)
	}
	return out
}

// prefetched serves reads out of spans that were read ahead, and others from the file.
type prefetched struct {
	robocache.Ranged
	spans []store.Span // by offset
}

func (p *prefetched) ReadAt(ctx context.Context, b []byte, off int64) error {
	i := sort.Search(len(p.spans), func(i int) bool { return p.spans[i].Off > off }) - 1
	if i >= 0 {
		if s := p.spans[i]; off+int64(len(b)) <= s.Off+int64(len(s.P)) {
			copy(b, s.P[off-s.Off:])
			return nil
		}
	}
	return p.Ranged.ReadAt(ctx, b, off)
}

// inMemory reads a file as a whole.
func inMemory(ctx context.Context, r robocache.Ranged) robocache.Ranged {
	p := &prefetched{r, []store.Span{{P: make([]byte, r.Size())}}}
	if err := r.ReadAt(ctx, p.spans[0].P, 0); err != nil {
		r.Close()
		guard.Fail(err)
	}
	return p
}

// ahead reads the chunks of the leaves in the row groups from first on, up to a batch of bytes, and says which group comes next.
func (p *prefetched) ahead(ctx context.Context, f *pq.File, leaves []*pq.Node, first int) (next int) {
	p.spans = p.spans[:0]
	var list []piece
	var total int64
	for next = first; next < len(f.Groups) && (total < prefetchBatch || next == first); next++ {
		n := len(list)
		list = pieces(list, f, leaves, next, 2*prefetchBatch) // a huge chunk is read where it is needed
		for _, k := range list[n:] {
			total += k.size
		}
	}
	for _, k := range join(list, prefetchBatch) {
		p.spans = append(p.spans, store.Span{Off: k.off, P: make([]byte, k.size)})
	}
	guard.Check(store.ReadRanges(ctx, p.Ranged, p.spans))
	return next
}

// eachGroup opens a table of the metadata and reads its row groups one after the other. leaves says which columns are read of them, out of those wanted.
// Its errors end the work (guard.Fail), with the file.
func (d *Dataset) eachGroup(ctx context.Context, name string, want func(column string) bool, leaves func(*pq.File) []*pq.Node, read func(r robocache.Ranged, f *pq.File, group int)) (rows int) {
	defer guard.At(robocache.Where{"file": name})
	r := d.openSmall(ctx, name)
	defer r.Close()
	f := guard.Must(pq.Open(ctx, r, want))
	list := leaves(f)
	p := &prefetched{Ranged: r}
	for g, next := 0, 0; g < len(f.Groups); g++ {
		if g == next {
			next = p.ahead(ctx, f, list, g)
		}
		read(p, f, g)
	}
	return int(f.Rows)
}
