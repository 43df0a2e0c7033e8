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

	Channel []uint16 // of each, where they are of several
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
	if robocache.IsMachineLimit(err) {
		return false
	}
	return errors.Is(err, robocache.ErrMalformed) || errors.Is(err, robocache.ErrResourceLimit) ||
		errors.Is(err, robocache.ErrUnsupported)
}

// Index gives the index of all messages; Records and Each want it made before. It is made once: of
// the message indexes, and where they are missing, of the chunks themselves.
func (f *File) Index(ctx context.Context) (_ *Index, err error) {
	defer guard.Recover("mcap index", &err)
	f.indexing.Lock()
	defer f.indexing.Unlock()
	if ix := f.index.Load(); ix != nil {
		return ix, nil
	}
	ix := f.buildIndex(ctx)
	// Messages may lie outside of chunks, and a message index may lack some: the statistics know.
	if s := f.Statistics; s == nil || uint64(ix.Messages) != s.Messages {
		if more := f.gaps(ctx); len(more) > 0 {
			f.Chunks = append(f.Chunks, more...)
			ix = f.buildIndex(ctx)
		}
		if s != nil && uint64(ix.Messages) < s.Messages &&
			slices.ContainsFunc(f.Chunks, func(k Chunk) bool { return !k.unindexed }) {
			for i := range f.Chunks {
				f.Chunks[i].unindexed = true
			}
			ix = f.buildIndex(ctx)
		}
		if s != nil && uint64(ix.Messages) != s.Messages {
			f.found(
				robocache.SeverityWarning,
				"statistics-differ",
				-1,
				fmt.Sprintf(
					"the statistics say %d messages, there are %d",
					s.Messages,
					ix.Messages,
				),
				"rewrite the file",
				0,
			)
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
			f.found(
				robocache.SeverityError,
				"undefined-channel",
				-1,
				fmt.Sprintf(
					"%d messages are of channel %d, which no record defines: they are left out",
					n,
					id,
				),
				"record it anew",
				int64(n),
			)
		}
	}
}

// gaps lists what the summary does not: runs of plain messages, and chunks without an index.
func (f *File) gaps(ctx context.Context) (out []Chunk) {
	attachments, metadata, at, end := f.Attachments, f.Metadata, f.begin, f.end
	// they are in the summary
	defer func() { f.Attachments, f.Metadata, f.end = attachments, metadata, end }()
	for _, k := range f.Chunks {
		if !k.Bare {
			out = append(out, f.collect(ctx, at, k.Offset)...)
			at = k.Offset + k.Length + k.IndexLength
		}
	}
	return append(out, f.collect(ctx, at, end)...)
}

// workers is how many chunks are read at a time.
func workers() int { return max(2, min(8, runtime.GOMAXPROCS(0))) }

// maxDefined bounds what the chunks define, all together.
const maxDefined = 128 << 20

// buildIndex makes an index of what the chunks' message indexes say, or the chunks themselves.
func (f *File) buildIndex(ctx context.Context) *Index {
	found := make([]content, len(f.Chunks))
	var taken, defined atomic.Int64 // bytes
	take := func(n int) error {
		if taken.Add(int64(n)*entryBytes) > f.opt.Index {
			return robocache.ResourceLimit("mcap", nil, "index of messages").
				Expected(fmt.Sprintf("at most %d bytes", f.opt.Index), "more").
				WithHint("raise the memory budget, or split the recording")
		}
		return nil
	}
	// walk reads the records of a chunk: it has no index, or one that does not fit.
	walk := func(ctx context.Context, i int, raw *[]byte) error {
		c := &found[i]
		if *c = f.contents(ctx, i, raw); c.err != nil && !damaged(c.err) {
			return c.err
		}
		n := int64(0)
		for _, d := range c.defs {
			n += int64(len(d.b))
		}
		if defined.Add(n) > maxDefined {
			return tooLarge(
				f.Chunks[i].Offset,
				fmt.Sprintf("schemas and channels of at most %d bytes", int64(maxDefined)),
				"more",
			)
		}
		return take(len(c.spots))
	}
	var walked []int32
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(workers())
	var raw map[int][]byte
	for i, to := 0, 0; i < len(f.Chunks); i++ {
		if i == to {
			to, raw = f.indexBytes(ctx, i)
		}
		k, raw := &f.Chunks[i], raw[i]
		if k.unindexed {
			walked = append(walked, int32(i))
			continue
		}
		g.Go(func() (err error) {
			defer guard.Recover("mcap index", &err)
			if found[i].spots, err = guard.Value(
				func() []spot { return f.indexes(ctx, k, raw) },
			); err == nil {
				return take(len(found[i].spots))
			}
			if !damaged(err) {
				return err
			}
			k.unindexed = true
			return walk(ctx, i, nil)
		})
	}
	joined := f.join(ctx, walked)
	defer joined.wait()
	for n, i := range walked {
		g.Go(func() (err error) {
			defer guard.Recover("mcap index", &err)
			return walk(ctx, int(i), joined.take(n))
		})
	}
	guard.Check(g.Wait())
	for i := range found {
		if err := found[i].err; err != nil {
			guard.Check(f.skip(err, f.Chunks[i].Offset, 0))
			f.markBad(i)
		}
		for _, d := range found[i].defs {
			f.define(d.op, d.b, d.off)
		}
	}
	return assemble(found)
}

// assemble sorts what was found by channel.
func assemble(found []content) *Index {
	runs := func(fn func(chunk int, spots []spot)) { // those of one channel
		for i := range found {
			for rest := found[i].spots; len(rest) > 0; {
				n := 1
				for n < len(rest) && rest[n].channel == rest[0].channel {
					n++
				}
				fn(i, rest[:n])
				rest = rest[n:]
			}
		}
	}
	counts := map[uint16]int{}
	ix := &Index{Channels: map[uint16]*ChannelIndex{}}
	runs(func(_ int, spots []spot) { counts[spots[0].channel] += len(spots) })
	for id, n := range counts {
		ix.Channels[id] = &ChannelIndex{
			Log:   make([]int64, 0, n),
			Chunk: make([]int32, 0, n),
			At:    make([]uint32, 0, n),
		}
		ix.Messages += int64(n)
	}
	runs(func(chunk int, spots []spot) {
		c := ix.Channels[spots[0].channel]
		for _, s := range spots {
			c.Log, c.Chunk, c.At = append(
				c.Log,
				s.log,
			), append(
				c.Chunk,
				int32(chunk),
			), append(
				c.At,
				s.at,
			)
		}
	})
	for _, c := range ix.Channels {
		if !slices.IsSorted(c.Log) {
			sort.Sort(c)
		}
	}
	return ix
}

// Of gives the messages of some channels as those of one.
func (ix *Index) Of(channels []uint16) *ChannelIndex {
	if len(channels) == 1 && ix.Channels[channels[0]] != nil {
		return ix.Channels[channels[0]]
	}
	out := &ChannelIndex{Channel: []uint16{}}
	for _, id := range channels {
		if c := ix.Channels[id]; c != nil {
			out.Log, out.Chunk, out.At = append(
				out.Log,
				c.Log...), append(
				out.Chunk,
				c.Chunk...), append(
				out.At,
				c.At...)
			out.Channel = append(out.Channel, slices.Repeat([]uint16{id}, c.Len())...)
		}
	}
	sort.Sort(out)
	return out
}

func (c *ChannelIndex) Less(i, j int) bool {
	return cmp.Or(
		cmp.Compare(c.Log[i], c.Log[j]),
		cmp.Compare(c.Chunk[i], c.Chunk[j]),
		cmp.Compare(c.At[i], c.At[j]),
	) < 0
}

func (c *ChannelIndex) Swap(i, j int) {
	c.Log[i], c.Log[j] = c.Log[j], c.Log[i]
	c.Chunk[i], c.Chunk[j] = c.Chunk[j], c.Chunk[i]
	c.At[i], c.At[j] = c.At[j], c.At[i]
	if c.Channel != nil {
		c.Channel[i], c.Channel[j] = c.Channel[j], c.Channel[i]
	}
}

func byPlace(a, b spot) int { return cmp.Compare(a.at, b.at) }

// indexes reads the message indexes behind a chunk: each channel's in the order of the file.
// raw are their bytes, nil where they are still to be read.
func (f *File) indexes(ctx context.Context, k *Chunk, raw []byte) []spot {
	if k.IndexLength > f.opt.Index {
		guard.Fail(
			tooLarge(
				k.Offset,
				fmt.Sprintf("message indexes of at most %d bytes", f.opt.Index),
				fmt.Sprint(k.IndexLength),
			),
		)
	}
	off := k.Offset + k.Length
	if raw == nil {
		own := raws.borrow(int(k.IndexLength))
		defer raws.Put(own)
		guard.Check(f.r.ReadAt(ctx, *own, off))
		raw = *own
	}
	out := make([]spot, 0, len(raw)/entryBytes)
	seen, twice := map[uint16]bool{}, false
	for r := range (&Chunk{Offset: off}).walk(raw) {
		at := off + int64(r.at)
		if r.op != OpMessageIndex {
			guard.Fail(
				malformed(
					at,
					"records behind a chunk",
					"message indexes (opcode 07)",
					fmt.Sprintf("opcode %02x", byte(r.op)),
				),
			)
		}
		c := parse(r.content, at, "message index")
		id := c.u16()
		entries := c.run(16)
		if c.end(); f.Channels[id] == nil {
			guard.Fail(
				malformed(
					at,
					"a message index of a channel that is not defined",
					"",
					fmt.Sprint(id),
				),
			)
		}
		twice, seen[id] = twice || seen[id], true
		first := len(out)
		for b := entries; len(b) > 0; b = b[16:] {
			log, pos := le64(b), le64(b[8:])
			if log > maxTime || pos > uint64(k.Size) {
				guard.Fail(
					malformed(
						at,
						"an entry of a message index",
						fmt.Sprintf("a time of 63 bits and a place in %d bytes", k.Size),
						fmt.Sprintf("%d, %d", log, pos),
					),
				)
			}
			out = append(out, spot{log: int64(log), at: uint32(pos), channel: id})
		}
		// Entries may stand by time; messages of one time come in the order of the file.
		if own := out[first:]; !slices.IsSortedFunc(own, byPlace) {
			slices.SortStableFunc(own, byPlace)
		}
	}
	if twice {
		slices.SortStableFunc(out, byPlace)
	}
	return out
}

// contents walks the records of a chunk; raw is that of it, where it was fetched with others.
func (f *File) contents(ctx context.Context, i int, raw *[]byte) (c content) {
	k := &f.Chunks[i]
	c.err = guard.Try(func() {
		held := f.read(ctx, i, 0, raw)
		defer held.Release()
		for r := range k.walk(held.b) {
			switch r.op {
			case OpSchema, OpChannel:
				c.defs = append(c.defs, definition{r.op, slices.Clone(r.content), k.Offset})
			case OpMessage:
				var m Message
				guard.Check(parseMessage(&m, r.content, k.Offset))
				c.spots = append(c.spots, spot{log: m.Log, at: uint32(r.at), channel: m.Channel})
			case OpChunk, OpHeader, OpFooter, OpDataEnd:
				guard.Fail(
					malformed(
						k.Offset,
						fmt.Sprintf("the record at %d of a chunk", r.at),
						"a schema, channel or message",
						fmt.Sprintf("opcode %02x", byte(r.op)),
					),
				)
			}
		}
	})
	if c.err != nil {
		c.spots = nil // of a damaged chunk nothing is believed
	}
	return c
}
