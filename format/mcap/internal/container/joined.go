package container

import (
	"context"
	"sync"

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

// trip is the requests for a list of chunks. Chunks in no trip are read one by one.
type trip struct {
	f      *File
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu      sync.Mutex
	flights []*flight
	ended   bool
}

// flight is one request for several chunks.
type flight struct {
	trip   *trip
	number int
	chunks []int32
	off    int64
	size   int64
	begun  bool
	done   chan struct{}

	left int    // chunks that were not taken yet
	data []byte // valid when done, unless err, until all of them are taken
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
	var run *flight
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, i := range chunks {
		k := &f.Chunks[i]
		if _, ok := f.cache.kept.Peek(chunkKey{f, int(i)}); ok || f.isBad(int(i)) || f.flying[i] != nil {
			run = nil
			continue
		}
		if run != nil && k.Offset >= run.off+run.size && k.Offset-run.off-run.size <= joinGap && k.Offset+k.Length-run.off <= most {
			run.size = k.Offset + k.Length - run.off
			run.chunks = append(run.chunks, i)
			run.left++
			continue
		}
		run = &flight{trip: t, number: len(t.flights), chunks: []int32{i}, off: k.Offset, size: k.Length, left: 1, done: make(chan struct{})}
		t.flights = append(t.flights, run)
	}
	for _, fl := range t.flights {
		for _, i := range fl.chunks {
			f.flying[i] = fl
		}
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
	t.f.mu.Lock()
	defer t.f.mu.Unlock()
	for _, fl := range t.flights {
		for _, i := range fl.chunks {
			if t.f.flying[i] == fl {
				delete(t.f.flying, i)
			}
		}
	}
}

// begin starts a flight and those that follow it.
func (t *trip) begin(number int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, fl := range t.flights[number:min(number+1+joinAhead, len(t.flights))] {
		if fl.begun {
			continue
		}
		fl.begun = true
		if t.ended { // taken before, asked for after
			fl.err = context.Canceled
			close(fl.done)
			continue
		}
		t.wg.Go(func() {
			defer close(fl.done)
			fl.data = make([]byte, fl.size)
			fl.err = t.f.r.ReadAt(t.ctx, fl.data, fl.off)
		})
	}
}

// take copies a chunk's part out; false where the request failed.
func (fl *flight) take(dst []byte, off int64) bool {
	if fl.err == nil {
		copy(dst, fl.data[off-fl.off:])
	}
	fl.trip.mu.Lock()
	defer fl.trip.mu.Unlock()
	if fl.left--; fl.left == 0 {
		fl.data = nil
	}
	return fl.err == nil
}

// raw gives the record of a chunk as it is in the file, in memory that is the caller's until it puts it back.
func (f *File) raw(ctx context.Context, i int) (*[]byte, error) {
	k := &f.Chunks[i]
	f.mu.Lock()
	fl := f.flying[int32(i)]
	delete(f.flying, int32(i)) // who wants it again reads it alone
	f.mu.Unlock()
	raw := raws.borrow(int(k.Length))
	if fl != nil {
		fl.trip.begin(fl.number)
		select {
		case <-fl.done:
		case <-ctx.Done():
			raws.Put(raw)
			return nil, ctx.Err()
		}
		if fl.take(*raw, k.Offset) {
			return raw, nil
		}
		// What failed together may come alone, and a chunk's error is its own.
	}
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
