package video

import (
	"bytes"
	"context"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/goatnote-inc/robocache"
)

const opDecode = "decode video"

// defaultPoolBudget fits about 40 decoders of 640×480.
const defaultPoolBudget = 256 << 20

const (
	// maxRead limits one read of adjacent packets. A larger single packet is read as a whole.
	maxRead = 1 << 20
	// maxPacket limits a single packet. A sample table may claim 4 GiB at no cost to the writer of
	// a remote file.
	maxPacket = 256 << 20
)

// Pool decodes groups of packets. It keeps idle decoders for later groups within a budget in bytes,
// and evicts the least recently used first. A decoder fits every file with the same sample entry,
// so thousands of files from one encoder need only one decoder per concurrent caller. Safe for
// concurrent use.
type Pool struct {
	budget  int64
	backend Backend // nil: the registered backend

	mu        sync.Mutex
	idle      []*worker // least recently used first
	idleBytes int64
	closed    bool

	// The counters of PoolStats.
	packets, decoded, delivered, opened, evicted atomic.Int64
	bytesRead, bytesNeeded, reads, continued     atomic.Int64
}

// PoolStats reports the work and the contents of a pool.
type PoolStats struct {
	Packets     int64 // packets sent to decoders
	Decoded     int64 // frames received from decoders
	Delivered   int64 // frames delivered to callers
	Opened      int64 // decoders created
	Evicted     int64 // idle decoders closed because of the budget
	Reads       int64 // reads of files; those of a Fetched count when its first group is decoded
	BytesRead   int64
	BytesNeeded int64 // bytes of the packets that were sent
	Continued   int64 // groups that continued from a decoder's position
	Idle        int   // idle decoders
	IdleBytes   int64
}

// Add adds the numbers of another pool.
func (s *PoolStats) Add(o PoolStats) {
	s.Packets += o.Packets
	s.Decoded += o.Decoded
	s.Delivered += o.Delivered
	s.Opened += o.Opened
	s.Evicted += o.Evicted
	s.Reads += o.Reads
	s.BytesRead += o.BytesRead
	s.BytesNeeded += o.BytesNeeded
	s.Continued += o.Continued
	s.Idle += o.Idle
	s.IdleBytes += o.IdleBytes
}

// worker is a decoder and its buffers. It is used by one goroutine at a time.
type worker struct {
	decoder Decoder
	skipper Skipper // the decoder, if it can skip frames that no other frame refers to
	holder  Holder  // the decoder, if it holds frames
	entry   SampleEntry
	bytes   int64

	readBuffer []byte  // adjacent packets
	wanted     []int32 // ordinal+1 by decode index − first; 0: not wanted
	position   position

	// The file and the frame of the last group. A caller that requests the next frame reads in
	// order.
	lastIndex *Index
	lastFrame int
}

// position is the place in a file where a decoder can continue without a flush. A later group can
// use it if its frames follow those that were sent (see canServe).
type position struct {
	index       *Index // nil: no position
	start       int    // first packet that was sent
	next        int    // next packet to send
	lastShown   int64  // largest pts that was received
	lastSkipped int    // last packet that was sent as unwanted; -1: none
	drained     bool   // a flush must precede the next packet; frames can still be received
}

// Skipper is a Decoder that can skip the decoding of unwanted frames that no other frame refers to.
type Skipper interface {
	Decoder
	SendUnwanted(packet []byte, pts int64) error
}

// Reorderer is a Decoder that accepts the reorder depth of a stream. This is the largest number of
// frames that precede a frame in decode order and follow it in presentation order. Some streams do
// not carry this number, and their frames would be delivered in the wrong order.
type Reorderer interface {
	// Reorder sets the reorder depth. It must be called before the first packet.
	Reorder(depth int)
}

// Within is a Decoder whose calls are cheaper inside Within, because a device's context is made
// current once.
type Within interface {
	Within(f func())
}

// Holder is a Decoder that holds frames until it has several, so that one wait for a device covers
// all of them. DeliverPending makes Receive return the frames that it has.
type Holder interface {
	DeliverPending()
}

// NewPool returns a pool that keeps at most budget bytes of idle decoders. 0 means 256 MiB. The
// caller must call Close.
func NewPool(budget int64) *Pool {
	orDefault(&budget, defaultPoolBudget)
	return &Pool{budget: budget}
}

// NewPoolOf returns a pool of decoders of b instead of the registered backend.
func NewPoolOf(b Backend, budget int64) *Pool {
	p := NewPool(budget)
	p.backend = b
	return p
}

// Decode decodes groups in order and calls deliver with each wanted frame, in presentation order
// within a group, on the caller's goroutine. The frame is valid during that call. An error of
// deliver ends the decode and is returned unchanged. Adjacent groups form one run of packets
// without drain or flush, so a whole file costs as much as sequential decoding. Packets that b
// holds are taken from b, and others are read. b may be nil. The frames and errors do not depend on
// b.
func (p *Pool) Decode(
	ctx context.Context,
	f *File,
	b *Fetched,
	groups []Group,
	deliver func(ordinal int, pic Frame) error,
) error {
	if b != nil && len(groups) > 0 {
		if b.index != f.Index {
			return robocache.Misuse(
				opDecode,
				robocache.Where{"file": f.Path},
				"the fetched packets belong to another file, or were released",
			)
		}
		p.reads.Add(b.reads.Swap(0))
		p.bytesRead.Add(b.byteRead.Swap(0))
	}
	for len(groups) > 0 {
		g, n := groups[0], 1
		for n < len(groups) && canJoin(f.Index, g, groups[n]) {
			g.End = max(g.End, groups[n].End)
			n++
		}
		g.Ordinals = slices.Clip(g.Ordinals) // the next group's ordinals follow in the same array
		for _, m := range groups[1:n] {
			g.Ordinals = append(g.Ordinals, m.Ordinals...)
		}
		if err := p.decodeGroup(ctx, f, b, g, deliver); err != nil {
			return err
		}
		groups = groups[n:]
	}
	return nil
}

// decodeGroup decodes one group with an idle or a new decoder.
func (p *Pool) decodeGroup(
	ctx context.Context,
	f *File,
	b *Fetched,
	g Group,
	deliver func(ordinal int, pic Frame) error,
) error {
	ix := f.Index
	if err := checkGroup(f, g); err != nil {
		return err
	}
	if len(g.Ordinals) == 0 {
		return nil
	}
	w, relation, err := p.acquireDecoder(f, g)
	if err != nil {
		return locateError(err, f, nil, g.Ordinals[0])
	}
	if relation == resumed {
		p.continued.Add(1)
	} else {
		w.position = position{
			index:       ix,
			start:       g.Start,
			next:        g.Start,
			lastShown:   minInt64,
			lastSkipped: -1,
		}
	}
	r := decodeJob{
		pool:    p,
		worker:  w,
		file:    f,
		fetched: b,
		group:   g,
		deliver: deliver,
		inOrder: relation != elsewhere,
		resumed: relation == resumed,
	}
	keep := false
	// also if deliver panics, because a decoder is C memory
	defer func() { p.releaseDecoder(w, keep) }()
	w.lastIndex, w.lastFrame = ix, g.Ordinals[len(g.Ordinals)-1]
	if d, is := w.decoder.(Within); is {
		keep, err = r.runWithin(ctx, d)
	} else {
		keep, err = r.runGroup(ctx)
	}
	return err
}

// runWithin calls runGroup inside the decoder's Within. The copy of the job keeps the jobs of other
// decoders on the stack.
func (r decodeJob) runWithin(ctx context.Context, d Within) (keep bool, err error) {
	d.Within(func() { keep, err = r.runGroup(ctx) })
	return keep, err
}

// canJoin reports whether next continues g without a gap, with the same sample entry.
func canJoin(ix *Index, g, next Group) bool {
	hasNoGap := next.Start >= g.Start && next.Start <= g.End+1
	isInFile := next.Start < ix.NumSamples() && next.End < ix.NumSamples()
	return len(next.Ordinals) > 0 && hasNoGap && isInFile &&
		ix.entryOf(next.Start) == ix.entryOf(g.Start)
}

// checkGroup returns an error if the group names frames or packets that the file does not have.
func checkGroup(f *File, g Group) error {
	n := f.Index.NumFrames()
	for _, k := range g.Ordinals {
		if k < 0 || k >= n {
			return robocache.NotFound(
				opDecode,
				robocache.Where{"file": f.Path, "frame": k},
				"no such frame: the file has %s frames",
				itoa(n),
			)
		}
		if d := f.Index.DecodeIndex(k); d < g.Start || d > g.End {
			return robocache.Misuse(
				opDecode,
				robocache.Where{"file": f.Path, "frame": k},
				"the group does not send the frame's packet",
			)
		}
	}
	if len(g.Ordinals) > 0 && (g.Start < 0 || g.End >= f.Index.NumSamples()) {
		return robocache.Misuse(
			opDecode,
			robocache.Where{"file": f.Path},
			"the group is outside the file",
		)
	}
	return nil
}

// Relations between a decoder from acquireDecoder and the group.
const (
	// The decoder is new or was flushed.
	elsewhere = iota
	// The decoder was flushed, but its last wanted frame is shortly before the group, so the caller
	// probably reads frame after frame.
	nearby
	// The decoder continues from its position without a flush.
	resumed
)

const (
	// nearFrames is the largest step between frames that counts as reading in order.
	nearFrames = 8
	// A group of more than longGroup packets gets a new decoder, so that other decoders keep their
	// positions. There are at most keepPositions such decoders.
	longGroup, keepPositions = 8, 12
)

// acquireDecoder returns an idle decoder for the group's sample entry, or a new one. relation is
// its relation to the group.
func (p *Pool) acquireDecoder(f *File, g Group) (w *worker, relation int, err error) {
	entry := &f.Index.Entries()[f.Index.Sample(g.Start).Entry]
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return nil, elsewhere, robocache.Misuse(opDecode, nil, "the pool is closed")
	}
	i, relation := p.findIdle(f.Index, g, entry)
	if i < 0 {
		p.mu.Unlock()
		w, err = p.newWorker(entry)
		if err == nil {
			p.opened.Add(1)
		}
		return w, elsewhere, err
	}
	w = p.idle[i]
	p.idle = slices.Delete(p.idle, i, i+1)
	p.idleBytes -= w.bytes
	p.mu.Unlock()
	if relation != resumed && w.position.index != nil {
		w.decoder.Flush()
		w.position = position{}
	}
	return w, relation, nil
}

// findIdle returns the index in p.idle of the decoder to use for the group, and its relation to the
// group. It returns -1 if the group needs a new decoder. Caller must hold p.mu.
func (p *Pool) findIdle(ix *Index, g Group, entry *SampleEntry) (found, relation int) {
	found = -1
	sameEntries := 0 // number of idle decoders with this entry
	for i, idle := range p.idle {
		if !sameEntry(&idle.entry, entry) {
			continue
		}
		sameEntries++
		// p.idle begins with the least recently used decoder. Prefer it among equal decoders,
		// because other callers may continue at the positions of the newer ones.
		if found < 0 {
			found = i
		}
		if idle.lastIndex != ix {
			continue
		}
		if idle.position.index != nil && idle.position.canServe(ix, g) {
			return i, resumed
		}
		ahead := g.Ordinals[0] - idle.lastFrame
		isNear := ahead > 0 && ahead <= nearFrames
		if relation == elsewhere && isNear {
			found, relation = i, nearby
		}
	}
	if found < 0 || relation == nearby || p.idle[found].lastIndex == ix {
		return found, relation
	}
	// The decoder was last used for another file. A long group is worth a new decoder, so that the
	// idle one keeps its position for the caller that used it.
	if g.Cost() > longGroup && sameEntries < keepPositions {
		return -1, elsewhere
	}
	return found, relation
}

// newWorker returns a worker with a new decoder for the sample entry.
func (p *Pool) newWorker(entry *SampleEntry) (_ *worker, err error) {
	b := p.backend
	if b == nil {
		if b, err = ActiveBackend(); err != nil {
			return nil, err
		}
	}
	codec := entry.Codec
	if codec == "" {
		codec = Codec(entry.FourCC) // for the error message
	}
	if err := b.Supports(codec); err != nil {
		return nil, err
	}
	dec, err := b.NewDecoder(entry)
	if err != nil {
		return nil, err
	}
	w := &worker{decoder: dec, entry: *entry}
	w.skipper, _ = dec.(Skipper)
	w.holder, _ = dec.(Holder)
	return w, nil
}

// canServe reports whether a decoder at this position can deliver all frames of g: it has not
// passed the group's start, and has not delivered or skipped any of its frames.
func (at *position) canServe(ix *Index, g Group) bool {
	if at.start > g.Start || g.Start > at.next || ix.entryOf(at.start) != ix.entryOf(g.Start) {
		return false
	}
	for _, k := range g.Ordinals {
		d := ix.DecodeIndex(k)
		if d >= at.next { // not sent yet
			if at.drained {
				return false
			}
			continue
		}
		if d <= at.lastSkipped || ix.Sample(d).PTS <= at.lastShown {
			return false
		}
	}
	return true
}

// sameEntry reports whether a decoder for a also decodes streams of b.
func sameEntry(a, b *SampleEntry) bool {
	return a.FourCC == b.FourCC && a.Codec == b.Codec && a.Width == b.Width &&
		a.Height == b.Height && a.Primaries == b.Primaries && a.Transfer == b.Transfer &&
		a.Matrix == b.Matrix && a.FullRange == b.FullRange && a.Rotation == b.Rotation &&
		bytes.Equal(a.Extradata, b.Extradata)
}

// releaseDecoder makes a decoder idle. A failed decoder is closed, because its state is unknown.
func (p *Pool) releaseDecoder(w *worker, keep bool) {
	if !keep {
		w.decoder.Close()
		return
	}
	if cap(w.readBuffer) > 2*maxRead {
		w.readBuffer = nil
	}
	if w.position.index == nil {
		w.decoder.Flush()
	}
	w.bytes = w.decoder.MemoryBytes() +
		int64(cap(w.readBuffer)+4*cap(w.wanted)+len(w.entry.Extradata))
	p.mu.Lock()
	if p.closed || w.bytes > p.budget {
		p.mu.Unlock()
		w.decoder.Close()
		return
	}
	p.idle = append(p.idle, w)
	p.idleBytes += w.bytes
	var out []*worker
	for p.idleBytes > p.budget {
		out = append(out, p.idle[0])
		p.idleBytes -= p.idle[0].bytes
		p.idle = slices.Delete(p.idle, 0, 1)
	}
	p.mu.Unlock()
	for _, o := range out {
		o.decoder.Close()
		p.evicted.Add(1)
	}
}

// Stats returns the work and the contents of the pool.
func (p *Pool) Stats() PoolStats {
	p.mu.Lock()
	idle, held := len(p.idle), p.idleBytes
	p.mu.Unlock()
	return PoolStats{
		Packets:     p.packets.Load(),
		Decoded:     p.decoded.Load(),
		Delivered:   p.delivered.Load(),
		Opened:      p.opened.Load(),
		Evicted:     p.evicted.Load(),
		Reads:       p.reads.Load(),
		BytesRead:   p.bytesRead.Load(),
		BytesNeeded: p.bytesNeeded.Load(),
		Continued:   p.continued.Load(),
		Idle:        idle,
		IdleBytes:   held,
	}
}

// Close closes the idle decoders. Each decoder in use is closed when its group ends.
func (p *Pool) Close() error {
	p.mu.Lock()
	idle := p.idle
	p.idle, p.idleBytes, p.closed = nil, 0, true
	p.mu.Unlock()
	for _, w := range idle {
		w.decoder.Close()
	}
	return nil
}

// locateError adds file, frame and codec to an error of a decoder or a read. The caller's own
// cancellation is returned unchanged, in contrast to a time-out of a store.
func locateError(err error, f *File, entry *SampleEntry, ordinal int) error {
	if err == context.Canceled || err == context.DeadlineExceeded {
		return err
	}
	where := robocache.Where{"file": f.Path, "frame": ordinal}
	if entry != nil {
		where["codec"] = string(entry.Codec)
	}
	return robocache.At(err, where)
}
