package lerobot

import (
	"context"
	"sort"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/lerobot/internal/pq"
	"github.com/goatnote-inc/robocache/store"
)

// A recorder's episodes file has a row group every ten episodes: read one by one, its column chunks are ten thousand
// requests. Those of neighbouring columns lie side by side and are read together.
const (
	prefetchGap   = 8 << 10  // bytes that are read for nothing rather than asking twice
	prefetchBatch = 32 << 20 // bytes held at a time
)

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

// ahead reads the chunks of the leaves in the row groups from first on, up to a batch of bytes, and says which group comes next.
func (p *prefetched) ahead(ctx context.Context, f *pq.File, leaves []*pq.Node, first int) (next int, err error) {
	p.spans = p.spans[:0]
	type piece struct{ from, to int64 }
	var pieces []piece
	var total int64
	for next = first; next < len(f.Groups) && (total < prefetchBatch || next == first); next++ {
		for _, l := range leaves {
			k, ok := f.Chunk(next, l)
			// What lies outside the file is left to ReadColumn, which says so.
			if ok && k.Offset >= 0 && k.Size > 0 && k.Size <= f.Size && k.Offset <= f.Size-k.Size {
				pieces = append(pieces, piece{k.Offset, k.Offset + k.Size})
				total += k.Size
			}
		}
	}
	sort.Slice(pieces, func(i, j int) bool { return pieces[i].from < pieces[j].from })
	for i := 0; i < len(pieces); {
		at, end := pieces[i].from, pieces[i].to
		for i++; i < len(pieces) && pieces[i].from <= end+prefetchGap && pieces[i].to-at <= prefetchBatch; i++ {
			end = max(end, pieces[i].to)
		}
		if end-at > 2*prefetchBatch {
			continue // one huge chunk: read where it is needed
		}
		p.spans = append(p.spans, store.Span{Off: at, P: make([]byte, end-at)})
	}
	if err := store.ReadRanges(ctx, p.Ranged, p.spans); err != nil {
		p.spans = nil
		return next, err
	}
	return next, nil
}
