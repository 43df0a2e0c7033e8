package container

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"sort"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/guard"
)

// Index says where each message of each channel lies.
type Index struct {
	Channels map[uint16]*ChannelIndex
	Messages int64
}

// ChannelIndex lists a channel's messages by log time; those of one time in the order of the file.
type ChannelIndex struct {
	Log   []int64
	Chunk []int32
	At    []uint32 // in the chunk's records
}

// Len is the number of messages.
func (c *ChannelIndex) Len() int { return len(c.Log) }

const entryBytes = 16

// spot is one message of a chunk.
type spot struct {
	log     int64
	at      uint32
	channel uint16
}

// content is what walking a chunk found.
type content struct {
	spots []spot
	defs  []definition
	err   error
}

type definition struct {
	op  Op
	b   []byte
	off int64
}

// damaged says that an error is about the bytes of a chunk: others of the file may be good.
func damaged(err error) bool {
	return errors.Is(err, robocache.ErrMalformed) || errors.Is(err, robocache.ErrResourceLimit) || errors.Is(err, robocache.ErrUnsupported)
}

// Index gives the index of all messages; Records and Each want it made before. It is made once: of the message indexes, and where they are missing, of the chunks themselves.
func (f *File) Index(ctx context.Context) (*Index, error) {
	f.indexing.Lock()
	defer f.indexing.Unlock()
	if ix := f.index.Load(); ix != nil {
		return ix, nil
	}
	ix, err := f.buildIndex(ctx)
	if err != nil {
		return nil, err
	}
	// Messages may lie outside of chunks, and a message index may lack some: the statistics know.
	if f.Statistics == nil || uint64(ix.Messages) != f.Statistics.Messages {
		more, err := f.gaps(ctx)
		if err != nil {
			return nil, err
		}
		if f.Chunks = append(f.Chunks, more...); len(more) > 0 {
			if ix, err = f.buildIndex(ctx); err != nil {
				return nil, err
			}
		}
		if f.Statistics != nil && uint64(ix.Messages) < f.Statistics.Messages {
			walked := false
			for i := range f.Chunks {
				walked = walked || !f.Chunks[i].unindexed
				f.Chunks[i].unindexed = true
			}
			if walked {
				if ix, err = f.buildIndex(ctx); err != nil {
					return nil, err
				}
			}
		}
		if f.Statistics != nil && uint64(ix.Messages) != f.Statistics.Messages {
			f.found(robocache.SeverityWarning, "statistics-differ", -1, fmt.Sprintf("the statistics say %d messages, there are %d", f.Statistics.Messages, ix.Messages), "rewrite the file", 0)
		}
	}
	f.strangers(ix)
	f.index.Store(ix)
	return ix, nil
}

// strangers names the channels of messages that nothing defines: no topic will show them.
func (f *File) strangers(ix *Index) {
	for _, id := range slices.Sorted(maps.Keys(ix.Channels)) {
		if n := ix.Channels[id].Len(); f.Channels[id] == nil && n > 0 {
			f.found(robocache.SeverityError, "undefined-channel", -1, fmt.Sprintf("%d messages are of channel %d, which no record defines: they are left out", n, id), "record it anew", int64(n))
		}
	}
}

// gaps lists what the summary does not: runs of plain messages, and chunks without an index.
func (f *File) gaps(ctx context.Context) ([]Chunk, error) {
	var out []Chunk
	at, end := f.begin, f.end
	part := func(to int64) error {
		if at >= to {
			return nil
		}
		attachments, metadata, strict := f.Attachments, f.Metadata, f.opt.Strict
		got, err := f.collect(ctx, at, to)
		f.Attachments, f.Metadata, f.opt.Strict, f.end = attachments, metadata, strict, end // they are in the summary
		out = append(out, got...)
		return err
	}
	for i := range f.Chunks {
		k := &f.Chunks[i]
		if k.Bare {
			continue
		}
		if err := part(k.Offset); err != nil {
			return nil, err
		}
		at = k.Offset + k.Length + k.IndexLength
	}
	return out, part(end)
}

// workers is how many chunks are read at a time.
func workers() int { return max(2, min(8, runtime.GOMAXPROCS(0))) }

// maxDefined bounds what the chunks define, all together.
const maxDefined = 128 << 20

// buildIndex makes an index of what the chunks' message indexes say, or the chunks themselves.
func (f *File) buildIndex(ctx context.Context) (*Index, error) {
	found := make([]content, len(f.Chunks))
	left := make(chan int64, 1) // bytes that the index may still take
	left <- f.opt.Index
	take := func(n int) error {
		l := <-left - int64(n)*entryBytes
		left <- l
		if l < 0 {
			return &robocache.Error{Class: robocache.ErrResourceLimit, Op: "mcap", Msg: "index of messages", Want: fmt.Sprintf("at most %d bytes", f.opt.Index), Got: "more", Hint: "raise the memory budget, or split the recording"}
		}
		return nil
	}
	var defined atomic.Int64
	var walked []int32
	for i := range f.Chunks {
		if f.Chunks[i].unindexed {
			walked = append(walked, int32(i))
		}
	}
	trip := f.join(ctx, walked)
	defer trip.end()
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(workers())
	var raw map[int][]byte
	for i, to := 0, 0; i < len(f.Chunks); i++ {
		if i == to {
			to, raw = f.indexBytes(ctx, i)
		}
		raw := raw[i]
		g.Go(func() (err error) {
			defer guard.Malformed("mcap index", &err)
			k := &f.Chunks[i]
			c := &found[i]
			if !k.unindexed {
				c.spots, err = f.indexes(ctx, k, raw)
				if err != nil && !damaged(err) {
					return err
				}
				if err == nil {
					return take(len(c.spots))
				}
				k.unindexed = true // its index does not fit: its records are walked
			}
			*c = f.contents(ctx, i)
			if c.err != nil && !damaged(c.err) {
				return c.err
			}
			n := int64(0)
			for _, d := range c.defs {
				n += int64(len(d.b))
			}
			if defined.Add(n) > maxDefined {
				return tooLarge(k.Offset, fmt.Sprintf("schemas and channels of at most %d bytes", int64(maxDefined)), "more")
			}
			return take(len(c.spots))
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	for i := range found {
		if err := found[i].err; err != nil {
			if err := f.skip(err, f.Chunks[i].Offset, 0); err != nil {
				return nil, err
			}
			f.markBad(i, 0)
		}
		for _, d := range found[i].defs {
			if err := f.define(d.op, d.b, d.off); err != nil {
				return nil, err
			}
		}
	}
	return assemble(found)
}

// assemble sorts what was found by channel.
func assemble(found []content) (*Index, error) {
	counts := map[uint16]int{}
	ix := &Index{Channels: map[uint16]*ChannelIndex{}}
	for i := range found {
		for spots := found[i].spots; len(spots) > 0; {
			n := sameChannel(spots)
			counts[spots[0].channel] += n
			spots = spots[n:]
		}
		ix.Messages += int64(len(found[i].spots))
	}
	for id, n := range counts {
		ix.Channels[id] = &ChannelIndex{Log: make([]int64, 0, n), Chunk: make([]int32, 0, n), At: make([]uint32, 0, n)}
	}
	for i := range found {
		for spots := found[i].spots; len(spots) > 0; {
			n := sameChannel(spots)
			c := ix.Channels[spots[0].channel]
			for _, s := range spots[:n] {
				c.Log, c.Chunk, c.At = append(c.Log, s.log), append(c.Chunk, int32(i)), append(c.At, s.at)
			}
			spots = spots[n:]
		}
		found[i].spots = nil
	}
	for _, c := range ix.Channels {
		if !slices.IsSorted(c.Log) {
			sort.Stable(byLog{c})
		}
	}
	return ix, nil
}

// sameChannel is how many of the first spots are of one channel.
func sameChannel(spots []spot) int {
	n := 1
	for n < len(spots) && spots[n].channel == spots[0].channel {
		n++
	}
	return n
}

type byLog struct{ *ChannelIndex }

func (b byLog) Less(i, j int) bool { return b.Log[i] < b.Log[j] }
func (b byLog) Swap(i, j int) {
	b.Log[i], b.Log[j] = b.Log[j], b.Log[i]
	b.Chunk[i], b.Chunk[j] = b.Chunk[j], b.Chunk[i]
	b.At[i], b.At[j] = b.At[j], b.At[i]
}

func byPlace(a, b spot) int { return cmp.Compare(a.at, b.at) }

// indexes reads the message indexes behind a chunk: each channel's in the order of the file.
// raw are their bytes, nil where they are still to be read.
func (f *File) indexes(ctx context.Context, k *Chunk, raw []byte) ([]spot, error) {
	if k.IndexLength > f.opt.Index {
		return nil, tooLarge(k.Offset, fmt.Sprintf("message indexes of at most %d bytes", f.opt.Index), fmt.Sprint(k.IndexLength))
	}
	off := k.Offset + k.Length
	if raw == nil {
		own := raws.borrow(int(k.IndexLength))
		defer raws.Put(own)
		if err := f.r.ReadAt(ctx, *own, off); err != nil {
			return nil, err
		}
		raw = *own
	}
	out := make([]spot, 0, len(raw)/entryBytes)
	in := Chunk{Offset: off}
	seen, twice := map[uint16]bool{}, false
	err := in.walk(raw, func(op Op, b []byte, at int) error {
		if op != OpMessageIndex {
			return malformed(off+int64(at), "records behind a chunk", "message indexes (opcode 07)", fmt.Sprintf("opcode %02x", byte(op)))
		}
		c := cursor{b: b}
		id := c.u16()
		entries := c.run(16)
		if c.bad {
			return short(off+int64(at), "message index", len(b))
		}
		if f.Channels[id] == nil {
			return malformed(off+int64(at), "a message index of a channel that is not defined", "", fmt.Sprint(id))
		}
		twice, seen[id] = twice || seen[id], true
		first := len(out)
		for b := entries; len(b) > 0; b = b[16:] {
			log, pos := le64(b), le64(b[8:])
			if log > maxTime || pos > uint64(k.Size) {
				return malformed(off+int64(at), "an entry of a message index", fmt.Sprintf("a time of 63 bits and a place in %d bytes", k.Size), fmt.Sprintf("%d, %d", log, pos))
			}
			out = append(out, spot{log: int64(log), at: uint32(pos), channel: id})
		}
		// Entries may stand by time; messages of one time come in the order of the file.
		if own := out[first:]; !slices.IsSortedFunc(own, byPlace) {
			slices.SortStableFunc(own, byPlace)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if twice {
		slices.SortStableFunc(out, byPlace)
	}
	return out, nil
}

// contents walks the records of a chunk.
func (f *File) contents(ctx context.Context, i int) (c content) {
	k := &f.Chunks[i]
	r, err := f.read(ctx, i, 0)
	if err != nil {
		return content{err: err}
	}
	defer r.Release()
	c.err = k.walk(r.b, func(op Op, b []byte, at int) error {
		switch op {
		case OpSchema, OpChannel:
			c.defs = append(c.defs, definition{op, slices.Clone(b), k.Offset})
		case OpMessage:
			var m Message
			if err := parseMessage(&m, b, k.Offset); err != nil {
				return err
			}
			c.spots = append(c.spots, spot{log: m.Log, at: uint32(at), channel: m.Channel})
		case OpChunk, OpHeader, OpFooter, OpDataEnd:
			return malformed(k.Offset, fmt.Sprintf("the record at %d of a chunk", at), "a schema, channel or message", fmt.Sprintf("opcode %02x", byte(op)))
		}
		return nil
	})
	if c.err != nil {
		c.spots = nil // of a damaged chunk nothing is believed
	}
	return c
}
