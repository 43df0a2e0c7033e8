package container

import (
	"context"
	"sync"

	"github.com/goatnote-inc/robocache/store"
)

// Neighboring chunks of a remote file are read with one request. The message indexes between two
// chunks are read too; joinGap bytes cost about as much as another request.
const (
	joinGap    = 256 << 10
	joinMost   = 4 << 20 // bytes of one request, unless a single chunk is larger
	joinAhead  = 2       // requests in progress in addition to the current one
	indexBatch = 8 << 20 // bytes of message indexes that are requested together
)

// chunkBatch is a range of a list of chunks that is read with one request.
type chunkBatch struct {
	from, to int
	next     *chunkBatch
	raw      func() []*[]byte // sends the request, once
}

// joinedReads is a list of chunks that will be read, with the batch of each. It is nil for a local
// file, and its methods then do nothing.
type joinedReads struct {
	batches []*chunkBatch
	ahead   sync.WaitGroup // requests that are sent ahead
}

// planJoined plans the requests for chunks. Canceling ctx ends the requests that are sent ahead,
// and wait waits for them.
func (f *File) planJoined(ctx context.Context, chunks []int32) *joinedReads {
	if !store.Remote(f.ranged) || len(chunks) < 2 {
		return nil
	}
	most := max(256<<10, min(joinMost, f.Budget()/16))
	out := &joinedReads{}
	var last *chunkBatch
	var off, end int64
	for n, i := range chunks {
		k := &f.Chunks[i]
		if last == nil || k.Offset < end || k.Offset-end > joinGap || k.Offset+k.Length-off > most {
			b := &chunkBatch{from: n}
			b.raw = sync.OnceValue(
				func() []*[]byte { return f.fetchBatch(ctx, chunks[b.from:b.to]) },
			)
			if off = k.Offset; last != nil {
				last.next = b
			}
			last = b
		}
		last.to, end = n+1, k.Offset+k.Length
		out.batches = append(out.batches, last)
	}
	return out
}

// takeChunk returns the record of the n-th chunk, once. It returns nil if the chunk must be read
// separately. It also starts the next requests.
func (j *joinedReads) takeChunk(n int) (raw *[]byte) {
	if j == nil {
		return nil
	}
	own := j.batches[n]
	for more, next := joinAhead, own.next; n == own.from && next != nil &&
		more > 0; more, next = more-1, next.next {
		j.ahead.Go(func() { next.raw() })
	}
	all := own.raw()
	raw, all[n-own.from] = all[n-own.from], nil
	return raw
}

func (j *joinedReads) waitAhead() {
	if j != nil {
		j.ahead.Wait()
	}
}

// fetchBatch reads the records of a batch together. The result is nil for chunks that must be read
// separately: a single one, or all of them if the request failed. Each chunk then has its own
// error.
func (f *File) fetchBatch(ctx context.Context, chunks []int32) []*[]byte {
	raw := make([]*[]byte, len(chunks))
	var spans []store.Span
	for n, i := range chunks {
		k := &f.Chunks[i]
		if _, kept := f.chunkCache.records.Peek(chunkKey{f, int(i)}); !kept && !f.isBad(int(i)) &&
			len(chunks) > 1 {
			raw[n] = rawBuffers.borrowBuffer(int(k.Length))
			spans = append(spans, store.Span{Off: k.Offset, P: *raw[n]})
		}
	}
	if store.ReadRanges(ctx, f.ranged, spans) != nil {
		clear(raw)
	}
	return raw
}

// readIndexBatch reads the message indexes of chunks, starting at from, up to indexBatch bytes. raw
// has no entry for indexes that must be read separately.
func (f *File) readIndexBatch(ctx context.Context, from int) (to int, raw map[int][]byte) {
	if !store.Remote(f.ranged) {
		return len(f.Chunks), nil
	}
	var spans []store.Span
	raw = map[int][]byte{}
	var total int64
	for to = from; to < len(f.Chunks); to++ {
		k := &f.Chunks[to]
		if k.unindexed || k.IndexLength <= 0 || k.IndexLength > indexBatch {
			continue // an index that is larger than a batch is read separately
		}
		if total += k.IndexLength; total > indexBatch {
			break
		}
		raw[to] = make([]byte, k.IndexLength)
		spans = append(spans, store.Span{Off: k.Offset + k.Length, P: raw[to]})
	}
	if len(spans) < 2 || store.ReadRanges(ctx, f.ranged, spans) != nil {
		return to, nil // reading them separately returns the error
	}
	return to, raw
}
