package container

import (
	"context"
	"fmt"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/goatnote-inc/robocache/internal/guard"
	"github.com/goatnote-inc/robocache/internal/guard/leafcache"
)

// markBad marks a chunk as unreadable. It returns false if it was marked before.
func (f *File) markBad(i int) (first bool) {
	_, was := f.badChunks.LoadOrStore(i, true)
	return !was
}

func (f *File) isBad(i int) bool { _, bad := f.badChunks.Load(i); return bad }

// acquireRecords returns the records of a chunk, which the caller must release: all of them, or at
// least the first need bytes if need > 0. raw is the chunk's record if it was fetched with others,
// or nil.
func (f *File) acquireRecords(ctx context.Context, i int, need int64, raw *[]byte) *Records {
	for {
		mine := false
		r := leafcache.Load(ctx, f.chunkCache.records, chunkKey{f, i}, func() (*Records, int64) {
			r := f.readChunk(ctx, i, need, raw)
			mine, raw = true, nil
			r.uses.Add(1) // reference of the cache
			return r, int64(cap(*r.buf))
		})
		if !mine && !r.tryAcquire() {
			continue // evicted before it could be acquired
		}
		if r.isWhole || need > 0 && int64(len(r.b)) >= need {
			return r
		}
		r.Release() // a partial chunk that an earlier reader needed is replaced by the whole one
		f.chunkCache.records.Drop(chunkKey{f, i})
		need = 0
	}
}

// skipBadChunk marks a damaged chunk as skipped, or returns its error.
func (f *File) skipBadChunk(err error, i int) error {
	if f.options.Strict || !isDamage(err) {
		return err
	}
	var n int64
	if ix := f.index.Load(); ix != nil {
		for _, c := range ix.Channels {
			for _, k := range c.Chunk {
				if int(k) == i {
					n++
				}
			}
		}
	}
	if f.markBad(i) {
		return f.skipDamage(err, f.Chunks[i].Offset, n)
	}
	return nil
}

// missingLength returns the length of the record at offset at if r is partial and does not contain
// all of it. Otherwise it returns 0.
func (r *Records) missingLength(at uint32) int64 {
	if r.isWhole {
		return 0
	}
	n := int64(headSize)
	if int64(at)+headSize <= int64(len(r.b)) {
		n += int64(min(le64(r.b[at+1:]), maxTime>>1))
	}
	if int64(at)+n <= int64(len(r.b)) {
		return 0
	}
	return n
}

// At parses the message of a channel at an offset in a chunk's records.
func (f *File) At(
	records []byte,
	chunk int,
	at uint32,
	channel uint16,
	log int64,
	m *Message,
) error {
	off := f.Chunks[chunk].Offset
	if int64(at)+headSize > int64(len(records)) || Op(records[at]) != OpMessage ||
		le64(records[at+1:]) > uint64(len(records)-int(at)-headSize) {
		return malformed(
			off,
			"a message index points at no message",
			"",
			fmt.Sprintf("place %d of %d", at, len(records)),
		)
	}
	if err := parseMessage(m, records[int(at)+headSize:int(at)+headSize+int(le64(records[at+1:]))],
		off); err != nil {
		return err
	}
	if m.Channel != channel || m.Log != log {
		return malformed(
			off,
			"a message index and its message differ",
			fmt.Sprintf("channel %d at %d", channel, log),
			fmt.Sprintf("channel %d at %d", m.Channel, m.Log),
		)
	}
	return nil
}

// Part is the part of a chunk from its beginning to the end of the last needed record.
type Part struct {
	Chunk int32
	Last  uint32 // offset of that record
}

// InOrder reads chunks concurrently and calls fn for one after the other, in the order of parts.
// Each chunk must occur once. The goroutine that decompressed a chunk calls fn, so that the records
// are still in the CPU cache. If the chunks exceed half of the budget, they are not cached.
func (f *File) InOrder(
	ctx context.Context,
	parts []Part,
	fn func(n int, records []byte) error,
) error {
	var total int64
	chunks := make([]int32, len(parts))
	for n, p := range parts {
		chunks[n] = p.Chunk
		total += f.Chunks[p.Chunk].Size
	}
	give := func(n int, r *Records, err error) error {
		if r != nil && err == nil {
			err = fn(n, r.b)
		}
		r.Release()
		return err
	}
	if len(parts) == 1 {
		r, err := guard.Value(func() *Records { return f.readPart(ctx, parts[0], true, nil) })
		return give(0, r, err)
	}
	keep := total <= f.Budget()/2 // otherwise the pass would only evict chunks that others use
	g, ctx := errgroup.WithContext(ctx)
	joined := f.planJoined(ctx, chunks)
	defer joined.waitAhead()
	turns := make([]chan struct{}, len(parts)+1) // closed when the chunk may be delivered
	for i := range turns {
		turns[i] = make(chan struct{})
	}
	close(turns[0])
	var next atomic.Int64
	for range min(workerCount(), len(parts)) {
		g.Go(func() (err error) {
			defer guard.Recover("mcap", &err)
			for n := int(next.Add(1)) - 1; n < len(parts) && err == nil; n = int(next.Add(1)) - 1 {
				r, bad := guard.Value(
					func() *Records { return f.readPart(ctx, parts[n], keep, joined.takeChunk(n)) },
				)
				select {
				case <-turns[n]:
					err = give(n, r, bad)
				case <-ctx.Done():
					r.Release()
					return ctx.Err()
				}
				close(turns[n+1])
			}
			return err
		})
	}
	return g.Wait()
}

// shortRecord is the assumed length of a record whose length is unknown.
const shortRecord = 16 << 10

// readPart returns the records of a chunk for one pass. With keep, it uses the cache. It returns
// nil if the chunk is damaged and skipped.
func (f *File) readPart(ctx context.Context, p Part, keep bool, raw *[]byte) *Records {
	i := int(p.Chunk)
	if f.isBad(i) {
		return nil
	}
	get := func(need int64) *Records {
		r, err := guard.Value(func() *Records {
			if keep {
				return f.acquireRecords(ctx, i, need, raw)
			}
			if r, ok := f.chunkCache.records.Peek(chunkKey{f, i}); ok && r.isWhole &&
				r.tryAcquire() {
				return r
			}
			return f.readChunk(ctx, i, need, raw)
		})
		if raw = nil; err != nil { // raw is used only once
			guard.Check(f.skipBadChunk(err, i))
		}
		return r
	}
	r := get(int64(p.Last) + max(shortRecord, f.longestRecord.Load()))
	if r == nil || r.missingLength(p.Last) == 0 {
		return r
	}
	// The record is longer than expected, so read the whole chunk.
	f.longestRecord.Store(max(f.longestRecord.Load(), r.missingLength(p.Last)))
	r.Release()
	return get(0)
}

// readRecord reads a record outside chunks.
func (f *File) readRecord(ctx context.Context, p Place, op Op, limit int64) []byte {
	if p.Length > limit {
		guard.Fail(
			tooLarge(
				p.Offset,
				fmt.Sprintf("a record of at most %d bytes", limit),
				fmt.Sprint(p.Length),
			),
		)
	}
	b := make([]byte, p.Length)
	guard.Check(f.ranged.ReadAt(ctx, b, p.Offset))
	if Op(b[0]) != op || le64(b[1:]) != uint64(p.Length-headSize) {
		guard.Fail(
			malformed(
				p.Offset,
				"an index points at another record",
				fmt.Sprintf("opcode %02x, %d bytes", byte(op), p.Length-headSize),
				fmt.Sprintf("opcode %02x, %d bytes", b[0], le64(b[1:])),
			),
		)
	}
	return b[headSize:]
}

// ReadMetadata reads a metadata record.
func (f *File) ReadMetadata(ctx context.Context, p Place) (_ map[string]string, err error) {
	defer guard.Recover("mcap", &err)
	c := newCursor(f.readRecord(ctx, p, OpMetadata, f.limits.Chunk), p.Offset, "metadata")
	c.str()
	m := c.stringMap()
	c.finish()
	return m, nil
}
