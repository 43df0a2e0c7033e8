package container

import (
	"context"
	"fmt"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/goatnote-inc/robocache/internal/guard"
)

// markBad notes that a chunk cannot be read, and how many messages are lost with it.
func (f *File) markBad(i int, messages int64) (first bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.bad[i] {
		return false
	}
	f.bad[i] = true
	f.lost += messages
	return true
}

// Lost counts the messages of chunks that were skipped so far.
func (f *File) Lost() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.lost
}

// Records gives the records of a chunk, held until Release: all of them, or where need > 0 at least the first need bytes. nil without an
// error is a damaged chunk that is skipped.
func (f *File) Records(ctx context.Context, i int, need int64) (*Records, error) {
	if f.isBad(i) {
		return nil, nil
	}
	for {
		mine := false
		r, err := f.cache.get(ctx, f, i, func() (*Records, int64, error) {
			r, err := f.read(ctx, i, need)
			if err != nil {
				return nil, 0, err
			}
			mine = true
			r.uses.Add(1) // the cache's
			return r, int64(cap(*r.buf)), nil
		})
		if err != nil {
			return nil, f.pass(err, i)
		}
		if !mine && !r.acquire() {
			continue // it was let go before it could be held
		}
		if r.all || need > 0 && int64(len(r.b)) >= need {
			return r, nil
		}
		r.Release() // a part, read for who needed less: it will be all
		f.cache.drop(f, i)
		need = 0
	}
}

// peek gives the records of a chunk that is in the cache.
func (f *File) peek(i int) *Records {
	if r, ok := f.cache.peek(f, i); ok && r.all && r.acquire() {
		return r
	}
	return nil
}

func (f *File) isBad(i int) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.bad[i]
}

// pass notes a damaged chunk as skipped, or gives its error.
func (f *File) pass(err error, i int) error {
	if f.opt.Strict || !damaged(err) {
		return err
	}
	var n int64
	if ix := f.indexed(); ix != nil {
		for _, c := range ix.Channels {
			for _, k := range c.Chunk {
				if int(k) == i {
					n++
				}
			}
		}
	}
	if f.markBad(i, n) {
		return f.skip(err, f.Chunks[i].Offset, n)
	}
	return nil
}

// Beyond says how long the record at a place claims to be, where r is a part that does not hold all of it; else 0.
func (r *Records) Beyond(at uint32) int64 {
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
func (f *File) At(records []byte, chunk int, at uint32, channel uint16, log int64, m *Message) error {
	off := f.Chunks[chunk].Offset
	if int64(at)+headSize > int64(len(records)) || Op(records[at]) != OpMessage || le64(records[at+1:]) > uint64(len(records)-int(at)-headSize) {
		return malformed(off, "a message index points at no message", "", fmt.Sprintf("place %d of %d", at, len(records)))
	}
	if err := parseMessage(m, records[int(at)+headSize:int(at)+headSize+int(le64(records[at+1:]))], off); err != nil {
		return err
	}
	if m.Channel != channel || m.Log != log {
		return malformed(off, "a message index and its message differ", fmt.Sprintf("channel %d at %d", channel, log), fmt.Sprintf("channel %d at %d", m.Channel, m.Log))
	}
	return nil
}

// Prefetch reads chunks into the cache beside who is about to read them, several at a time, until stop is called, which waits for it. It is a
// hint: its errors are met again by Records.
func (f *File) Prefetch(ctx context.Context, chunks []int32) (stop func()) {
	trip := f.join(ctx, chunks) // before who calls asks for the first of them
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		var g errgroup.Group
		g.SetLimit(workers())
		for _, i := range chunks {
			if ctx.Err() != nil {
				break
			}
			g.Go(func() (err error) {
				defer guard.Malformed("mcap", &err)
				if _, ok := f.cache.peek(f, int(i)); !ok {
					r, _ := f.Records(ctx, int(i), 0)
					r.Release()
				}
				return nil
			})
		}
		_ = g.Wait()
	}()
	return func() {
		cancel()
		<-done
		trip.end()
	}
}

// InOrder reads chunks, several at a time, past the cache where they are not in it, and calls fn for one after the other, in the order of
// chunks. Who opened a chunk gives it to fn, so that its records are still near.
func (f *File) InOrder(ctx context.Context, chunks []int32, fn func(chunk int32, records []byte) error) error {
	var total int64
	for _, i := range chunks {
		total += f.Chunks[i].Size
	}
	keep := total <= f.Budget()/2 // else a pass would only push out what others want
	trip := f.join(ctx, chunks)
	defer trip.end()
	g, ctx := errgroup.WithContext(ctx)
	turns := make([]chan struct{}, len(chunks)+1) // closed when it is a chunk's turn
	for i := range turns {
		turns[i] = make(chan struct{})
	}
	close(turns[0])
	var next atomic.Int64
	for range min(workers(), len(chunks)) {
		g.Go(func() (err error) {
			defer guard.Malformed("mcap", &err)
			for {
				n := int(next.Add(1)) - 1
				if n >= len(chunks) {
					return nil
				}
				r, err := f.once(ctx, int(chunks[n]), keep)
				if err != nil {
					return err
				}
				select {
				case <-turns[n]:
				case <-ctx.Done():
					r.Release()
					return ctx.Err()
				}
				if r != nil {
					err = fn(chunks[n], r.b)
					r.Release()
				}
				if err != nil {
					return err
				}
				close(turns[n+1])
			}
		})
	}
	return g.Wait()
}

// once gives the records of a chunk for one pass; nil where it is damaged and skipped.
func (f *File) once(ctx context.Context, i int, keep bool) (*Records, error) {
	if f.isBad(i) {
		return nil, nil
	}
	if r := f.peek(i); r != nil {
		return r, nil
	}
	if keep {
		return f.Records(ctx, i, 0)
	}
	r, err := f.read(ctx, i, 0)
	if err != nil {
		return nil, f.pass(err, i)
	}
	return r, nil
}

// Attachment is a file inside the file.
type Attachment struct {
	Log, Create     int64
	Name, MediaType string
	Data            []byte
}

// content reads a record outside of chunks.
func (f *File) content(ctx context.Context, p Place, op Op, limit int64) ([]byte, error) {
	if p.Length > limit {
		return nil, tooLarge(p.Offset, fmt.Sprintf("a record of at most %d bytes", limit), fmt.Sprint(p.Length))
	}
	b := make([]byte, p.Length)
	if err := f.r.ReadAt(ctx, b, p.Offset); err != nil {
		return nil, err
	}
	if Op(b[0]) != op || le64(b[1:]) != uint64(p.Length-headSize) {
		return nil, malformed(p.Offset, "an index points at another record", fmt.Sprintf("opcode %02x, %d bytes", byte(op), p.Length-headSize), fmt.Sprintf("opcode %02x, %d bytes", b[0], le64(b[1:])))
	}
	return b[headSize:], nil
}

// ReadAttachment reads an attachment.
func (f *File) ReadAttachment(ctx context.Context, p Place) (*Attachment, error) {
	b, err := f.content(ctx, p, OpAttachment, f.lim.Chunk)
	if err != nil {
		return nil, err
	}
	c := cursor{b: b}
	a := &Attachment{Log: int64(c.u64()), Create: int64(c.u64()), Name: c.str(), MediaType: c.str()}
	n := c.u64()
	if c.bad || n > uint64(len(c.b)) {
		return nil, short(p.Offset, "attachment", len(b))
	}
	a.Data = c.b[:n]
	return a, nil
}

// ReadMetadata reads a metadata record.
func (f *File) ReadMetadata(ctx context.Context, p Place) (map[string]string, error) {
	b, err := f.content(ctx, p, OpMetadata, f.lim.Chunk)
	if err != nil {
		return nil, err
	}
	c := cursor{b: b}
	c.str()
	m := c.strings()
	if c.bad {
		return nil, short(p.Offset, "metadata", len(b))
	}
	return m, nil
}
