package container

import (
	"context"
	"sync"

	"github.com/goatnote-inc/robocache/store"
)

// Of a remote file, neighbouring chunks that are wanted come with one request: so many bytes
// between two of them, their message indexes, cost about what another request costs.
const (
	joinGap    = 256 << 10
	joinMost   = 4 << 20 // bytes of one request, unless a chunk alone is larger
	joinAhead  = 2       // requests that are under way beside the one that is waited for
	indexBatch = 8 << 20 // bytes of message indexes that are asked for together
)

// batch is chunks from to to of a list, which come with one request.
type batch struct {
	from, to int
	next     *batch
	raw      func() []*[]byte // asks for them, once
}

// joined is a list of chunks that is about to be read: the batch of each. A local file has none:
// there it is nil, and does nothing.
type joined struct {
	of    []*batch
	ahead sync.WaitGroup // requests that are sent ahead
}

// join plans the requests for chunks. What is asked for ahead ends with ctx; wait waits for that.
func (f *File) join(ctx context.Context, chunks []int32) *joined {
	if !store.Remote(f.r) || len(chunks) < 2 {
		return nil
	}
	most := max(256<<10, min(joinMost, f.Budget()/16))
	out := &joined{}
	var last *batch
	var off, end int64
	for n, i := range chunks {
		k := &f.Chunks[i]
		if last == nil || k.Offset < end || k.Offset-end > joinGap || k.Offset+k.Length-off > most {
			b := &batch{from: n}
			b.raw = sync.OnceValue(func() []*[]byte { return f.fetch(ctx, chunks[b.from:b.to]) })
			if off = k.Offset; last != nil {
				last.next = b
			}
			last = b
		}
		last.to, end = n+1, k.Offset+k.Length
		out.of = append(out.of, last)
	}
	return out
}

// take gives the record of the n-th chunk, once; nil where it is to be read alone. The requests
// behind its own are under way then.
func (j *joined) take(n int) (raw *[]byte) {
	if j == nil {
		return nil
	}
	own := j.of[n]
	for more, next := joinAhead, own.next; n == own.from && next != nil && more > 0; more, next = more-1, next.next {
		j.ahead.Go(func() { next.raw() })
	}
	all := own.raw()
	raw, all[n-own.from] = all[n-own.from], nil
	return raw
}

func (j *joined) wait() {
	if j != nil {
		j.ahead.Wait()
	}
}

// fetch reads the records of a batch together; nil of those that are to be read alone: one only,
// and all where they failed together, so that a chunk's error is its own.
func (f *File) fetch(ctx context.Context, chunks []int32) []*[]byte {
	raw := make([]*[]byte, len(chunks))
	var spans []store.Span
	for n, i := range chunks {
		k := &f.Chunks[i]
		if _, kept := f.cache.kept.Peek(
			chunkKey{f, int(i)},
		); !kept && !f.isBad(int(i)) &&
			len(chunks) > 1 {
			raw[n] = raws.borrow(int(k.Length))
			spans = append(spans, store.Span{Off: k.Offset, P: *raw[n]})
		}
	}
	if store.ReadRanges(ctx, f.r, spans) != nil {
		clear(raw)
	}
	return raw
}

// indexBytes reads the message indexes of chunks from on, as many as are asked for together; nil of
// those that are read one by one.
func (f *File) indexBytes(ctx context.Context, from int) (to int, raw map[int][]byte) {
	if !store.Remote(f.r) {
		return len(f.Chunks), nil
	}
	var spans []store.Span
	raw = map[int][]byte{}
	var total int64
	for to = from; to < len(f.Chunks); to++ {
		k := &f.Chunks[to]
		if k.unindexed || k.IndexLength <= 0 || k.IndexLength > indexBatch {
			continue // one that is larger than a batch is read alone
		}
		if total += k.IndexLength; total > indexBatch {
			break
		}
		raw[to] = make([]byte, k.IndexLength)
		spans = append(spans, store.Span{Off: k.Offset + k.Length, P: raw[to]})
	}
	if len(spans) < 2 || store.ReadRanges(ctx, f.r, spans) != nil {
		return to, nil // and its error is met again
	}
	return to, raw
}
