package container

import (
	"context"
	"fmt"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/goatnote-inc/robocache/internal/guard"
	"github.com/goatnote-inc/robocache/internal/guard/leafcache"
)

// markBad notes that a chunk cannot be read.
func (f *File) markBad(i int) (first bool) {
	_, was := f.bad.LoadOrStore(i, true)
	return !was
}

func (f *File) isBad(i int) bool { _, bad := f.bad.Load(i); return bad }

// records gives the records of a chunk, held until Release: all of them, or where need > 0 at least
// the first need bytes. raw is its record where that was fetched with others, else nil.
func (f *File) records(ctx context.Context, i int, need int64, raw *[]byte) *Records {
	for {
		mine := false
		r := leafcache.Load(ctx, f.cache.kept, chunkKey{f, i}, func() (*Records, int64) {
			r := f.read(ctx, i, need, raw)
			mine, raw = true, nil
			r.uses.Add(1) // the cache's
			return r, int64(cap(*r.buf))
		})
		if !mine && !r.acquire() {
			continue // it was let go before it could be held
		}
		if r.all || need > 0 && int64(len(r.b)) >= need {
			return r
		}
		r.Release() // a part, read for who needed less: it will be all
		f.cache.kept.Drop(chunkKey{f, i})
		need = 0
	}
}

// pass notes a damaged chunk as skipped, or gives its error.
func (f *File) pass(err error, i int) error {
	if f.opt.Strict || !damaged(err) {
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
		return f.skip(err, f.Chunks[i].Offset, n)
	}
	return nil
}

// beyond says how long the record at a place claims to be, where r is a part that does not hold all
// of it; else 0.
func (r *Records) beyond(at uint32) int64 {
	if r.all {
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

// At reads the message of a channel at a place of a chunk's records.
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
	if err := parseMessage(
		m,
		records[int(at)+headSize:int(at)+headSize+int(le64(records[at+1:]))],
		off,
	); err != nil {
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

// Part is a chunk that is wanted, from its beginning to the end of the last record that is.
type Part struct {
	Chunk int32
	Last  uint32 // where that record begins
}

// InOrder reads chunks, several at a time, and calls fn for one after the other, in the order of
// parts, which have each chunk once. Who opened a chunk gives it to fn, so that its records are
// still near. More of them than the cache may hold are read past it.
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
		r, err := guard.Value(func() *Records { return f.once(ctx, parts[0], true, nil) })
		return give(0, r, err)
	}
	keep := total <= f.Budget()/2 // else a pass would only push out what others want
	g, ctx := errgroup.WithContext(ctx)
	joined := f.join(ctx, chunks)
	defer joined.wait()
	turns := make([]chan struct{}, len(parts)+1) // closed when it is a chunk's turn
	for i := range turns {
		turns[i] = make(chan struct{})
	}
	close(turns[0])
	var next atomic.Int64
	for range min(workers(), len(parts)) {
		g.Go(func() (err error) {
			defer guard.Recover("mcap", &err)
			for n := int(next.Add(1)) - 1; n < len(parts) && err == nil; n = int(next.Add(1)) - 1 {
				r, bad := guard.Value(
					func() *Records { return f.once(ctx, parts[n], keep, joined.take(n)) },
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

// shortRecord is what is taken for a record whose length is not known.
const shortRecord = 16 << 10

// once gives the records of a chunk for one pass, through the cache where they are kept there; nil
// where it is damaged and skipped.
func (f *File) once(ctx context.Context, p Part, keep bool, raw *[]byte) *Records {
	i := int(p.Chunk)
	if f.isBad(i) {
		return nil
	}
	get := func(need int64) *Records {
		r, err := guard.Value(func() *Records {
			if keep {
				return f.records(ctx, i, need, raw)
			}
			if r, ok := f.cache.kept.Peek(chunkKey{f, i}); ok && r.all && r.acquire() {
				return r
			}
			return f.read(ctx, i, need, raw)
		})
		if raw = nil; err != nil { // read, it is used for others
			guard.Check(f.pass(err, i))
		}
		return r
	}
	r := get(int64(p.Last) + max(shortRecord, f.longest.Load()))
	if r == nil || r.beyond(p.Last) == 0 {
		return r
	}
	// Longer than any before it: the rest of the chunk is wanted too.
	f.longest.Store(max(f.longest.Load(), r.beyond(p.Last)))
	r.Release()
	return get(0)
}

// content reads a record outside of chunks.
func (f *File) content(ctx context.Context, p Place, op Op, limit int64) []byte {
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
	guard.Check(f.r.ReadAt(ctx, b, p.Offset))
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
	c := parse(f.content(ctx, p, OpMetadata, f.lim.Chunk), p.Offset, "metadata")
	c.str()
	m := c.strings()
	c.end()
	return m, nil
}
