package container

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/goatnote-inc/robocache/store"
)

// Of a remote file, neighbouring chunks that are wanted come with one request: so many bytes between two of them, their message indexes,
// cost about what another request costs.
const (
	joinGap    = 256 << 10
	joinMost   = 4 << 20 // bytes of one request, unless a chunk alone is larger
	joinAhead  = 2       // requests that are under way beside the one that is waited for
	indexBatch = 8 << 20 // bytes of message indexes that are asked for together
)

// trip is the requests for a list of chunks.
type trip struct {
	f      *File
	ctx    context.Context
	cancel context.CancelFunc
	all    []*request

	mu    sync.Mutex
	ended bool
	wg    sync.WaitGroup // requests that are sent ahead
}

// request is one request for several chunks.
type request struct {
	trip *trip
	off  int64
	size int64
	next *request

	once sync.Once
	left atomic.Int64 // chunks that were not taken yet
	data []byte       // until all of them are taken
	err  error
}

// join plans the requests for chunks that are about to be read, in the order in which they will be. end must be called: it gives up what
// nobody took. Local files are read as they are: there it is nil, and does nothing.
func (f *File) join(ctx context.Context, chunks []int32) *trip {
	if !store.Remote(f.r) || len(chunks) < 2 {
		return nil
	}
	most := max(256<<10, min(joinMost, f.Budget()/16))
	t := &trip{f: f}
	t.ctx, t.cancel = context.WithCancel(ctx)
	var run *request
	for _, i := range chunks {
		k := &f.Chunks[i]
		if _, ok := f.cache.kept.Peek(chunkKey{f, int(i)}); ok || f.isBad(int(i)) {
			run = nil
			continue
		}
		if run == nil || k.Offset < run.off+run.size || k.Offset-run.off-run.size > joinGap || k.Offset+k.Length-run.off > most {
			run = &request{trip: t, off: k.Offset}
		}
		if _, asked := f.asked.LoadOrStore(i, run); asked {
			run = nil
			continue
		}
		if run.left.Add(1) == 1 {
			if n := len(t.all); n > 0 {
				t.all[n-1].next = run
			}
			t.all = append(t.all, run)
		}
		run.size = k.Offset + k.Length - run.off
	}
	return t
}

// end gives up what nobody took.
func (t *trip) end() {
	if t == nil {
		return
	}
	t.mu.Lock()
	t.ended = true
	t.mu.Unlock()
	t.cancel()
	t.wg.Wait()
	t.f.asked.Range(func(chunk, r any) bool {
		if r.(*request).trip == t {
			t.f.asked.CompareAndDelete(chunk, r)
		}
		return true
	})
}

func (r *request) send() {
	r.once.Do(func() {
		r.data = make([]byte, r.size)
		r.err = r.trip.f.r.ReadAt(r.trip.ctx, r.data, r.off)
	})
}

// take copies a chunk's part out, while those behind this one are under way; false where this one failed.
func (r *request) take(dst []byte, off int64) bool {
	r.trip.mu.Lock()
	for n, more := r.next, joinAhead; n != nil && more > 0 && !r.trip.ended; n, more = n.next, more-1 {
		r.trip.wg.Go(n.send)
	}
	r.trip.mu.Unlock()
	r.send()
	if r.err == nil {
		copy(dst, r.data[off-r.off:])
	}
	if r.left.Add(-1) == 0 {
		r.data = nil
	}
	return r.err == nil
}

// raw gives the record of a chunk as it is in the file, in memory that is the caller's until it puts it back.
func (f *File) raw(ctx context.Context, i int) (*[]byte, error) {
	k := &f.Chunks[i]
	raw := raws.borrow(int(k.Length))
	if r, ok := f.asked.LoadAndDelete(int32(i)); ok && r.(*request).take(*raw, k.Offset) { // who wants it again reads it alone
		return raw, nil
	}
	// What failed together may come alone, and a chunk's error is its own.
	if err := f.r.ReadAt(ctx, *raw, k.Offset); err != nil {
		raws.Put(raw)
		return nil, err
	}
	return raw, nil
}

// indexBytes reads the message indexes of chunks from on, as many as are asked for together; nil of those that are read one by one.
func (f *File) indexBytes(ctx context.Context, from int) (to int, raw map[int][]byte) {
	if !store.Remote(f.r) {
		return len(f.Chunks), nil
	}
	var spans []store.Span
	var which []int
	var total int64
	for to = from; to < len(f.Chunks); to++ {
		k := &f.Chunks[to]
		if k.unindexed || k.IndexLength <= 0 {
			continue
		}
		if total += k.IndexLength; total > indexBatch {
			if len(spans) == 0 {
				to++ // one that is larger than a batch is read alone
			}
			break
		}
		spans, which = append(spans, store.Span{Off: k.Offset + k.Length, P: make([]byte, k.IndexLength)}), append(which, to)
	}
	if len(spans) < 2 || store.ReadRanges(ctx, f.r, spans) != nil {
		return to, nil // and its error is met again
	}
	raw = map[int][]byte{}
	for n, i := range which {
		raw[i] = spans[n].P
	}
	return to, raw
}
