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

// Index holds the positions of the messages of each channel.
type Index struct {
	Channels map[uint16]*ChannelIndex
	Messages int64
}

// ChannelIndex lists the messages of a channel by log time. Messages with equal times are in file
// order.
type ChannelIndex struct {
	Log   []int64
	Chunk []int32
	At    []uint32 // offset in the chunk's records

	Channel []uint16 // channel of each message, if there are several
}

// Len returns the number of messages.
func (c *ChannelIndex) Len() int { return len(c.Log) }

const entryBytes = 16

// messageSpot is the position of one message in a chunk.
type messageSpot struct {
	log     int64
	at      uint32
	channel uint16
}

// chunkContent is the result of scanning a chunk.
type chunkContent struct {
	spots       []messageSpot
	definitions []definition
	err         error
}

type definition struct {
	op  Op
	b   []byte
	off int64
}

// isDamage reports whether an error concerns the bytes of a chunk, so that other chunks may be
// intact.
func isDamage(err error) bool {
	if robocache.IsMachineLimit(err) {
		return false
	}
	return errors.Is(err, robocache.ErrMalformed) || errors.Is(err, robocache.ErrResourceLimit) ||
		errors.Is(err, robocache.ErrUnsupported)
}

// Index returns the index of all messages. It must be called before Records and Each. It is built
// once from the message indexes. Chunks without a message index are scanned.
func (f *File) Index(ctx context.Context) (_ *Index, err error) {
	defer guard.Recover("mcap index", &err)
	f.indexing.Lock()
	defer f.indexing.Unlock()
	if ix := f.index.Load(); ix != nil {
		return ix, nil
	}
	ix := f.buildIndex(ctx)
	// Messages may be outside chunks, and a message index may be incomplete. The statistics reveal
	// this.
	if s := f.Statistics; s == nil || uint64(ix.Messages) != s.Messages {
		if more := f.unlistedChunks(ctx); len(more) > 0 {
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
			f.addFinding(
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
	f.reportUndefined(ix)
	f.index.Store(ix)
	return ix, nil
}

// reportUndefined reports messages whose channel is not defined. No topic contains them.
func (f *File) reportUndefined(ix *Index) {
	for _, id := range slices.Sorted(maps.Keys(ix.Channels)) {
		if n := ix.Channels[id].Len(); f.Channels[id] == nil && n > 0 {
			f.addFinding(
				robocache.SeverityError,
				"undefined-channel",
				-1,
				fmt.Sprintf(
					"%d messages are of channel %d, which no record defines: they are left out",
					n,
					id,
				),
				"record the file again",
				int64(n),
			)
		}
	}
}

// unlistedChunks returns the parts of the file that the summary omits: plain messages, and chunks
// without an index.
func (f *File) unlistedChunks(ctx context.Context) (out []Chunk) {
	attachments, metadata, at, end := f.Attachments, f.Metadata, f.begin, f.end
	// The summary lists attachments and metadata.
	defer func() { f.Attachments, f.Metadata, f.end = attachments, metadata, end }()
	for _, k := range f.Chunks {
		if !k.Bare {
			out = append(out, f.collectChunks(ctx, at, k.Offset)...)
			at = k.Offset + k.Length + k.IndexLength
		}
	}
	return append(out, f.collectChunks(ctx, at, end)...)
}

// workerCount returns the number of chunks that are read concurrently.
func workerCount() int { return max(2, min(8, runtime.GOMAXPROCS(0))) }

// maxDefined limits the total size of the definitions in chunks.
const maxDefined = 128 << 20

// buildIndex builds the index from the message indexes, or from the chunks themselves.
func (f *File) buildIndex(ctx context.Context) *Index {
	found := make([]chunkContent, len(f.Chunks))
	var taken, defined atomic.Int64 // bytes
	take := func(n int) error {
		if taken.Add(int64(n)*entryBytes) > f.options.Index {
			return robocache.ResourceLimit("mcap", nil, "index of messages").
				Expected(fmt.Sprintf("at most %d bytes", f.options.Index), "more").
				WithHint("raise the memory budget, or split the recording")
		}
		return nil
	}
	// scanChunk scans the records of a chunk whose message index is missing or invalid.
	scanChunk := func(ctx context.Context, i int, raw *[]byte) error {
		c := &found[i]
		if *c = f.scanContent(ctx, i, raw); c.err != nil && !isDamage(c.err) {
			return c.err
		}
		n := int64(0)
		for _, d := range c.definitions {
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
	g.SetLimit(workerCount())
	var raw map[int][]byte
	for i, to := 0, 0; i < len(f.Chunks); i++ {
		if i == to {
			to, raw = f.readIndexBatch(ctx, i)
		}
		k, raw := &f.Chunks[i], raw[i]
		if k.unindexed {
			walked = append(walked, int32(i))
			continue
		}
		g.Go(func() (err error) {
			defer guard.Recover("mcap index", &err)
			if found[i].spots, err = guard.Value(
				func() []messageSpot { return f.readMessageIndexes(ctx, k, raw) },
			); err == nil {
				return take(len(found[i].spots))
			}
			if !isDamage(err) {
				return err
			}
			k.unindexed = true
			return scanChunk(ctx, i, nil)
		})
	}
	joined := f.planJoined(ctx, walked)
	defer joined.waitAhead()
	for n, i := range walked {
		g.Go(func() (err error) {
			defer guard.Recover("mcap index", &err)
			return scanChunk(ctx, int(i), joined.takeChunk(n))
		})
	}
	guard.Check(g.Wait())
	for i := range found {
		if err := found[i].err; err != nil {
			guard.Check(f.skipDamage(err, f.Chunks[i].Offset, 0))
			f.markBad(i)
		}
		for _, d := range found[i].definitions {
			f.defineRecord(d.op, d.b, d.off)
		}
	}
	return assembleIndex(found)
}

// assembleIndex groups the messages by channel.
func assembleIndex(found []chunkContent) *Index {
	// calls fn for each run of messages of one channel
	runs := func(fn func(chunk int, spots []messageSpot)) {
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
	runs(func(_ int, spots []messageSpot) { counts[spots[0].channel] += len(spots) })
	for id, n := range counts {
		ix.Channels[id] = &ChannelIndex{
			Log:   make([]int64, 0, n),
			Chunk: make([]int32, 0, n),
			At:    make([]uint32, 0, n),
		}
		ix.Messages += int64(n)
	}
	runs(func(chunk int, spots []messageSpot) {
		c := ix.Channels[spots[0].channel]
		for _, s := range spots {
			c.Log, c.Chunk, c.At = append(c.Log, s.log), append(c.Chunk, int32(chunk)),
				append(c.At, s.at)
		}
	})
	for _, c := range ix.Channels {
		if !slices.IsSorted(c.Log) {
			sort.Sort(c)
		}
	}
	return ix
}

// Of returns the messages of several channels as one ChannelIndex.
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
	return cmp.Or(cmp.Compare(c.Log[i], c.Log[j]), cmp.Compare(c.Chunk[i], c.Chunk[j]),
		cmp.Compare(c.At[i], c.At[j])) < 0
}

func (c *ChannelIndex) Swap(i, j int) {
	c.Log[i], c.Log[j] = c.Log[j], c.Log[i]
	c.Chunk[i], c.Chunk[j] = c.Chunk[j], c.Chunk[i]
	c.At[i], c.At[j] = c.At[j], c.At[i]
	if c.Channel != nil {
		c.Channel[i], c.Channel[j] = c.Channel[j], c.Channel[i]
	}
}

func compareOffsets(a, b messageSpot) int { return cmp.Compare(a.at, b.at) }

// readMessageIndexes reads the message indexes after a chunk and returns the messages in file
// order. raw holds the bytes of the indexes, or is nil if they must be read.
func (f *File) readMessageIndexes(ctx context.Context, k *Chunk, raw []byte) []messageSpot {
	if k.IndexLength > f.options.Index {
		guard.Fail(
			tooLarge(
				k.Offset,
				fmt.Sprintf("message indexes of at most %d bytes", f.options.Index),
				fmt.Sprint(k.IndexLength),
			),
		)
	}
	off := k.Offset + k.Length
	if raw == nil {
		own := rawBuffers.borrowBuffer(int(k.IndexLength))
		defer rawBuffers.Put(own)
		guard.Check(f.ranged.ReadAt(ctx, *own, off))
		raw = *own
	}
	out := make([]messageSpot, 0, len(raw)/entryBytes)
	seen, twice := map[uint16]bool{}, false
	for r := range (&Chunk{Offset: off}).eachRecord(raw) {
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
		c := newCursor(r.content, at, "message index")
		id := c.u16()
		entries := c.byteRun(16)
		if c.finish(); f.Channels[id] == nil {
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
			out = append(out, messageSpot{log: int64(log), at: uint32(pos), channel: id})
		}
		// Entries may be sorted by time. Messages with equal times must be in file order.
		if own := out[first:]; !slices.IsSortedFunc(own, compareOffsets) {
			slices.SortStableFunc(own, compareOffsets)
		}
	}
	if twice {
		slices.SortStableFunc(out, compareOffsets)
	}
	return out
}

// scanContent scans the records of a chunk. raw is its record if it was fetched with others, or
// nil.
func (f *File) scanContent(ctx context.Context, i int, raw *[]byte) (c chunkContent) {
	k := &f.Chunks[i]
	c.err = guard.Try(func() {
		held := f.readChunk(ctx, i, 0, raw)
		defer held.Release()
		for r := range k.eachRecord(held.b) {
			switch r.op {
			case OpSchema, OpChannel:
				c.definitions = append(
					c.definitions,
					definition{r.op, slices.Clone(r.content), k.Offset},
				)
			case OpMessage:
				var m Message
				guard.Check(parseMessage(&m, r.content, k.Offset))
				c.spots = append(
					c.spots,
					messageSpot{log: m.Log, at: uint32(r.at), channel: m.Channel},
				)
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
		c.spots = nil // nothing in a damaged chunk is trusted
	}
	return c
}
