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

// defaultPoolBudget holds about forty decoders of 640×480.
const defaultPoolBudget = 256 << 20

const (
	// maxRead bounds what one read of adjacent packets asks for. A single larger packet is read
	// whole.
	maxRead = 1 << 20
	// maxPacket bounds a single one: a sample table may claim 4 GiB, and behind a URL the bytes
	// cost their writer nothing.
	maxPacket = 256 << 20
)

// Pool decodes groups of packets, and keeps idle decoders for the next group: least recently used
// first out, within a budget in bytes. A decoder fits every file of the same sample entry, so
// thousands of files of one encoder need as many decoders as there are callers.
type Pool struct {
	budget  int64
	backend Backend // nil: the registered one

	mu     sync.Mutex
	idle   []*worker // least recently used first
	bytes  int64
	closed bool

	packets, decoded, delivered, opened, evicted, bytesRead, bytesNeeded, reads, continued atomic.Int64
}

// PoolStats counts what a pool did, and what it holds.
type PoolStats struct {
	Packets     int64 // sent to decoders
	Decoded     int64 // frames that came out
	Delivered   int64 // of them, wanted
	Opened      int64 // decoders made
	Evicted     int64 // idle decoders closed for the budget
	Reads       int64 // of files: those of a Fetched count when the first of its groups is decoded
	BytesRead   int64
	BytesNeeded int64 // the packets' own
	Continued   int64 // groups that went on where a decoder stood
	Idle        int   // decoders kept
	IdleBytes   int64
}

// Add adds what another pool did, and holds.
func (s *PoolStats) Add(o PoolStats) {
	s.Packets, s.Decoded, s.Delivered, s.Opened, s.Evicted = s.Packets+o.Packets, s.Decoded+o.Decoded, s.Delivered+o.Delivered, s.Opened+o.Opened, s.Evicted+o.Evicted
	s.Reads, s.BytesRead, s.BytesNeeded, s.Continued = s.Reads+o.Reads, s.BytesRead+o.BytesRead, s.BytesNeeded+o.BytesNeeded, s.Continued+o.Continued
	s.Idle, s.IdleBytes = s.Idle+o.Idle, s.IdleBytes+o.IdleBytes
}

// worker is a decoder with the buffers that its use needs. One goroutine at a time.
type worker struct {
	dec   Decoder
	skip  Skipper // dec, where it can pass over frames that nothing refers to
	hold  Holder  // dec, where it holds frames
	entry SampleEntry
	bytes int64

	read   []byte  // adjacent packets
	wanted []int32 // ordinal+1 by decode index - first; 0 = not wanted
	at     position

	// The file and frame that it was last used for: a caller that comes back for the next frame
	// reads in order.
	index *Index
	last  int
}

// position is where a decoder stands in a file. A group further on in the same chain of frames goes
// on from there.
type position struct {
	index   *Index // nil: nowhere
	start   int    // first packet sent
	next    int    // packet to be sent next
	shown   int64  // largest pts that came out
	skipped int    // last packet sent as not wanted, -1 none
	drained bool   // no packet may follow before a flush; what is inside still comes out
}

// Skipper is a Decoder that can save the work on frames that are not wanted and that nothing refers
// to.
type Skipper interface {
	Decoder
	SendUnwanted(packet []byte, pts int64) error
}

// Reorderer is a Decoder that takes a hint: how many frames may precede one in decode order and
// follow it in presentation. Streams that do not say it themselves come out in the wrong order
// without.
type Reorderer interface {
	Reorder(images int)
}

// Within is a Decoder whose calls cost less within one: a device's context is then made current
// once.
type Within interface {
	Within(f func())
}

// Holder is a Decoder that holds frames until there are several, so that a device is waited for
// once. Give makes it hand out those that it has.
type Holder interface {
	Give()
}

// NewPool makes a pool that keeps at most budget bytes of idle decoders; 0 means 256 MiB.
func NewPool(budget int64) *Pool {
	orDefault(&budget, defaultPoolBudget)
	return &Pool{budget: budget}
}

// NewPoolOf makes a pool of another backend's decoders than the registered one's.
func NewPoolOf(b Backend, budget int64) *Pool {
	p := NewPool(budget)
	p.backend = b
	return p
}

// Decode sends the packets of groups, in order, and hands each wanted frame to deliver, in
// presentation order within a group, on the caller's goroutine. The frame is valid during that
// call. An error of deliver ends the decode and is returned as it is. Groups that follow each other
// without a gap are one run of packets: nothing is drained or flushed between them, so that a whole
// file costs what decoding in sequence costs. Packets are taken from b, which may be nil, as far as
// it holds them, and read else: the same frames, and the same errors.
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
				"the packets were fetched of another file, or released",
			)
		}
		p.reads.Add(b.reads.Swap(0))
		p.bytesRead.Add(b.byteRead.Swap(0))
	}
	for len(groups) > 0 {
		g, n := groups[0], 1
		for n < len(groups) && joins(f.Index, g, groups[n]) {
			g.End = max(g.End, groups[n].End)
			n++
		}
		g.Ordinals = slices.Clip(g.Ordinals) // what is behind them is the next group's
		for _, m := range groups[1:n] {
			g.Ordinals = append(g.Ordinals, m.Ordinals...)
		}
		if err := p.decode(ctx, f, b, g, deliver); err != nil {
			return err
		}
		groups = groups[n:]
	}
	return nil
}

func (p *Pool) decode(
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
	w, how, err := p.acquire(f, g)
	if err != nil {
		return at(err, f, nil, g.Ordinals[0])
	}
	if how == resumed {
		p.continued.Add(1)
	} else {
		w.at = position{index: ix, start: g.Start, next: g.Start, shown: minInt64, skipped: -1}
	}
	r := job{
		pool:    p,
		w:       w,
		f:       f,
		from:    b,
		g:       g,
		deliver: deliver,
		inOrder: how != elsewhere,
		resumed: how == resumed,
	}
	keep := false
	defer func() { p.release(w, keep) }() // where deliver panics too: a decoder is C memory
	w.index, w.last = ix, g.Ordinals[len(g.Ordinals)-1]
	if d, is := w.dec.(Within); is {
		keep, err = r.within(ctx, d)
	} else {
		keep, err = r.decode(ctx)
	}
	return err
}

// within is decode within one of the decoder's; a job of its own, so that others' stay on the
// stack.
func (r job) within(ctx context.Context, d Within) (keep bool, err error) {
	d.Within(func() { keep, err = r.decode(ctx) })
	return keep, err
}

func joins(ix *Index, g, next Group) bool {
	return len(next.Ordinals) > 0 && next.Start >= g.Start && next.Start <= g.End+1 &&
		next.Start < ix.NumSamples() &&
		next.End < ix.NumSamples() &&
		ix.entryOf(next.Start) == ix.entryOf(g.Start)
}

func checkGroup(f *File, g Group) error {
	n := f.Index.NumFrames()
	for _, k := range g.Ordinals {
		if k < 0 || k >= n {
			return robocache.NotFound(
				opDecode,
				robocache.Where{"file": f.Path, "frame": k},
				"no such frame: the file presents %s",
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

// How a decoder that acquire gives stands to the group.
const (
	elsewhere = iota // flushed
	nearby           // flushed, but its last frame was shortly before: the caller reads in order
	resumed          // stands where the group goes on
)

const (
	// nearFrames is how far ahead a caller that reads in order may ask.
	nearFrames = 8
	// longGroup is the number of packets from which a place in a file is worth a decoder of its
	// own, and keepPositions the number of such decoders.
	longGroup, keepPositions = 8, 12
)

// acquire takes an idle decoder of the group's sample entry, or makes one.
func (p *Pool) acquire(f *File, g Group) (w *worker, how int, err error) {
	entry := &f.Index.Entries()[f.Index.Sample(g.Start).Entry]
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return nil, elsewhere, robocache.Misuse(opDecode, nil, "the pool is closed")
	}
	found, fitting := -1, 0
	for i, c := range p.idle {
		if !sameEntry(&c.entry, entry) {
			continue
		}
		// Of equal ones the least recently used: those used last may stand where another caller
		// goes on.
		if fitting++; found < 0 {
			found = i
		}
		if c.index != f.Index {
			continue
		}
		if c.at.index != nil && c.at.serves(f.Index, g) {
			found, how = i, resumed
			break
		}
		if ahead := g.Ordinals[0] - c.last; how == elsewhere && ahead > 0 && ahead <= nearFrames {
			found, how = i, nearby
		}
	}
	if found >= 0 && how == elsewhere && g.Cost() > longGroup && fitting < keepPositions &&
		p.idle[found].index != f.Index {
		found = -1
	}
	if found >= 0 {
		w = p.idle[found]
		p.idle = slices.Delete(p.idle, found, found+1)
		p.bytes -= w.bytes
		p.mu.Unlock()
		if how != resumed && w.at.index != nil {
			w.dec.Flush()
			w.at = position{}
		}
		return w, how, nil
	}
	p.mu.Unlock()
	w, err = p.newWorker(entry)
	if err == nil {
		p.opened.Add(1)
	}
	return w, elsewhere, err
}

func (p *Pool) newWorker(entry *SampleEntry) (_ *worker, err error) {
	b := p.backend
	if b == nil {
		if b, err = ActiveBackend(); err != nil {
			return nil, err
		}
	}
	codec := entry.Codec
	if codec == "" {
		codec = Codec(entry.FourCC) // so that the error names it
	}
	if err := b.Supports(codec); err != nil {
		return nil, err
	}
	dec, err := b.NewDecoder(entry)
	if err != nil {
		return nil, err
	}
	w := &worker{dec: dec, entry: *entry}
	w.skip, _ = dec.(Skipper)
	w.hold, _ = dec.(Holder)
	return w, nil
}

// serves says whether a decoder that stands here has everything that g needs, and has not yet given
// any of it away.
func (at *position) serves(ix *Index, g Group) bool {
	if at.start > g.Start || g.Start > at.next || ix.entryOf(at.start) != ix.entryOf(g.Start) {
		return false
	}
	for _, k := range g.Ordinals {
		d := ix.DecodeIndex(k)
		if d >= at.next {
			if at.drained {
				return false
			}
			continue
		}
		if d <= at.skipped || ix.Sample(d).PTS <= at.shown {
			return false
		}
	}
	return true
}

func sameEntry(a, b *SampleEntry) bool {
	return a.FourCC == b.FourCC && a.Codec == b.Codec && a.Width == b.Width && a.Height == b.Height && a.Primaries == b.Primaries &&
		a.Transfer == b.Transfer && a.Matrix == b.Matrix && a.FullRange == b.FullRange &&
		a.Rotation == b.Rotation &&
		bytes.Equal(a.Extradata, b.Extradata)
}

// release takes a decoder back. One that failed is closed: what is inside it cannot be known.
func (p *Pool) release(w *worker, keep bool) {
	if !keep {
		w.dec.Close()
		return
	}
	if cap(w.read) > 2*maxRead {
		w.read = nil
	}
	if w.at.index == nil {
		w.dec.Flush()
	}
	w.bytes = w.dec.MemoryBytes() + int64(
		cap(w.read),
	) + int64(
		4*cap(w.wanted),
	) + int64(
		len(w.entry.Extradata),
	)
	p.mu.Lock()
	if p.closed || w.bytes > p.budget {
		p.mu.Unlock()
		w.dec.Close()
		return
	}
	p.idle = append(p.idle, w)
	p.bytes += w.bytes
	var out []*worker
	for p.bytes > p.budget {
		out = append(out, p.idle[0])
		p.bytes -= p.idle[0].bytes
		p.idle = slices.Delete(p.idle, 0, 1)
	}
	p.mu.Unlock()
	for _, o := range out {
		o.dec.Close()
		p.evicted.Add(1)
	}
}

// Stats says what the pool did, and what it holds.
func (p *Pool) Stats() PoolStats {
	p.mu.Lock()
	idle, held := len(p.idle), p.bytes
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

// Close closes the idle decoders, and each of the others when its work ends.
func (p *Pool) Close() error {
	p.mu.Lock()
	idle := p.idle
	p.idle, p.bytes, p.closed = nil, 0, true
	p.mu.Unlock()
	for _, w := range idle {
		w.dec.Close()
	}
	return nil
}

// at adds the place to an error of a decoder or of a read. The caller's own cancellation stays what
// it is; a store's time-out has a place.
func at(err error, f *File, entry *SampleEntry, ordinal int) error {
	if err == context.Canceled || err == context.DeadlineExceeded {
		return err
	}
	where := robocache.Where{"file": f.Path, "frame": ordinal}
	if entry != nil {
		where["codec"] = string(entry.Codec)
	}
	return robocache.At(err, where)
}
