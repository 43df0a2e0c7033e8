package video

import (
	"context"
	"errors"
	"math"
	"strconv"

	"github.com/goatnote-inc/robocache"
)

const minInt64 = math.MinInt64

func itoa(n int) string { return strconv.Itoa(n) }

// job is one group on one decoder.
type job struct {
	pool    *Pool
	w       *worker
	f       *File
	from    *Fetched // nil: packets are read
	g       Group
	deliver func(ordinal int, pic Frame) error

	// inOrder says that the caller reads frame after frame: what is still inside is pushed out by
	// the packets that follow, which the next call needs, instead of a drain, after which the
	// decoder would have to start again at a sync sample.
	inOrder bool
	resumed bool // the decoder stood in the middle of the file

	left         int // wanted frames still to come
	first        int // decode index of wanted[0]
	err          error
	outsideGroup bool // what failed may lie outside of the group
}

// decode sends the packets and hands out the frames. keep says whether the decoder is sound.
//
// Packets carry their decode index in place of a pts: it names the frame even where a damaged file
// repeats a pts.
func (r *job) decode(ctx context.Context) (keep bool, err error) {
	r.want()
	keep, err = r.pass(ctx)
	if err != nil && r.outsideGroup {
		if failed := r.restart(keep); failed != nil {
			return false, failed
		}
		keep, err = r.pass(ctx)
	}
	return keep, err
}

// restart goes back to where the plan begins. A group must come out as it would with other
// neighbours or in another order: a damaged packet that was sent only to push its frames out, or
// that is still inside from the group before, is not its error.
func (r *job) restart(sound bool) error {
	w := r.w
	if sound {
		w.dec.Flush()
	} else {
		fresh, err := r.pool.newWorker(&w.entry)
		if err != nil {
			return at(err, r.f, &w.entry, r.missing())
		}
		r.pool.opened.Add(1)
		w.dec.Close()
		w.dec, w.skip, w.hold = fresh.dec, fresh.skip, fresh.hold
	}
	w.at = position{
		index:   r.f.Index,
		start:   r.g.Start,
		next:    r.g.Start,
		shown:   minInt64,
		skipped: -1,
	}
	r.inOrder, r.resumed, r.outsideGroup = false, false, false
	return nil
}

var errNotInside = errors.New("not inside the decoder")

// broken ends a pass whose decoder failed, or whose caller did.
func (r *job) broken(err error, ordinal int) (keep bool, _ error) {
	if r.err != nil {
		return r.w.rest(), r.err
	}
	r.outsideGroup = r.inOrder || r.resumed
	return false, at(err, r.f, &r.w.entry, ordinal)
}

func (r *job) pass(ctx context.Context) (keep bool, err error) {
	ix, w := r.f.Index, r.w
	if h, ok := w.dec.(Reorderer); ok && w.at.next == r.g.Start {
		h.Reorder(reorder(ix, r.g.Start, r.g.End))
	}
	// frames that are ready since the group before; a decoder may refuse packets until they are
	// taken
	if r.resumed {
		r.sentAll(w.at.next - 1)
		if err := r.receive(); err != nil {
			return r.broken(err, r.missing())
		}
	}
	end := r.g.End
	// A caller that reads in order is about to want the neighbours of what it wants.
	near := ix.DecodeIndex(r.g.Ordinals[0]) - reach
	if r.inOrder {
		end = r.further()
	}
	for w.at.next <= end && r.left > 0 && !w.at.drained {
		if err := ctx.Err(); err != nil {
			return w.rest(), err
		}
		from := w.at.next
		to, base, buf, err := r.fetch(ctx, from)
		if err != nil {
			r.outsideGroup = from > r.g.End
			return w.rest(), at(err, r.f, &w.entry, r.ordinalAt(from))
		}
		for d := from; d < to && r.left > 0; d++ {
			if d > from {
				if err := ctx.Err(); err != nil {
					return w.rest(), err
				}
			}
			s := ix.Sample(d)
			packet := buf[s.Offset-base : s.Offset-base+int64(s.Size)]
			if r.wants(d) == 0 && w.skip != nil && (!r.inOrder || d < near) {
				err = w.skip.SendUnwanted(packet, int64(d))
				w.at.skipped = d
			} else {
				err = w.dec.Send(packet, int64(d))
			}
			r.pool.packets.Add(1)
			r.pool.bytesNeeded.Add(int64(s.Size))
			w.at.next = d + 1
			if err == nil {
				r.sentAll(d)
				err = r.receive()
			}
			if err != nil {
				return r.broken(err, r.ordinalAt(d))
			}
		}
	}
	if r.left == 0 {
		return true, nil
	}
	if !w.at.drained {
		// What is wanted is still inside. So may be what the next group wants: the decoder keeps
		// that until a flush.
		w.at.drained = true
		err := w.dec.Drain()
		if err == nil {
			err = r.receive()
		}
		if err != nil {
			return r.broken(err, r.missing())
		}
	}
	switch {
	case r.left == 0:
		return true, nil
	case r.resumed:
		r.outsideGroup = true
		return true, errNotInside
	}
	return false, robocache.Malformed(
		opDecode,
		robocache.Where{"file": r.f.Path, "frame": r.missing(), "codec": string(w.entry.Codec)},
		"the decoder gave no frame for this packet: the video is damaged here",
	)
}

// sentAll tells a decoder that holds frames when the group's last packet was sent.
func (r *job) sentAll(last int) {
	if r.w.hold != nil && last >= r.g.End {
		r.w.hold.Give()
	}
}

// reach is beyond the decoded frame buffer of any codec: how many packets may pass between a
// frame's own and its coming out.
const reach = 24

// further is the last packet that may be sent to push out what is wanted. Where packets were
// fetched, none is waited for: a drain costs less.
func (r *job) further() int {
	ix := r.f.Index
	end, entry := r.g.End, ix.entryOf(r.g.Start)
	for end+1 < ix.NumSamples() && end < r.g.End+reach && ix.entryOf(end+1) == entry && (r.from == nil || end+1 < r.w.at.next || r.from.holds(end+1)) {
		end++
	}
	return end
}

// rest forgets where the decoder stands; it is sound, and flushed when it is given back.
func (w *worker) rest() bool {
	w.at.index = nil
	return true
}

// want fills the table of wanted frames.
func (r *job) want() {
	ix, w := r.f.Index, r.w
	r.first = r.g.Start
	n := r.g.End - r.g.Start + 1
	if cap(w.wanted) < n {
		w.wanted = make([]int32, n)
	}
	w.wanted = w.wanted[:n]
	clear(w.wanted)
	r.left = 0
	for _, k := range r.g.Ordinals {
		if slot := &w.wanted[ix.DecodeIndex(k)-r.first]; *slot == 0 {
			*slot = int32(k) + 1
			r.left++
		}
	}
}

func (r *job) wants(d int) int32 {
	if i := d - r.first; i >= 0 && i < len(r.w.wanted) {
		return r.w.wanted[i]
	}
	return 0
}

// ordinalAt names the wanted frame that a failure at packet d concerns: its own, else the first
// that is still to come.
func (r *job) ordinalAt(d int) int {
	if k := r.wants(d); k > 0 {
		return int(k) - 1
	}
	return r.missing()
}

func (r *job) missing() int {
	for _, k := range r.g.Ordinals {
		if r.w.wanted[r.f.Index.DecodeIndex(k)-r.first] > 0 {
			return k
		}
	}
	return r.g.Ordinals[0]
}

// fetch gives packets from d on: those that were fetched, or one read of as many as lie behind each
// other in the file, are needed, and fit the buffer. Beyond the group they come one by one: mostly
// the first of them is enough.
func (r *job) fetch(ctx context.Context, d int) (to int, base int64, buf []byte, err error) {
	w := r.w
	to, run, fits := adjacent(r.f.Index, d, r.g.End)
	if !fits {
		return to, run.Off, nil, robocache.ResourceLimit(
			opDecode,
			nil,
			"a packet of %s bytes, limit %s",
			itoa(int(run.Len)),
			itoa(maxPacket),
		)
	}
	if r.from != nil {
		if to, base, buf, err, ok := r.from.packets(d, r.g.End); ok {
			return to, base, buf, err
		}
	}
	size := int(run.Len)
	if cap(w.read) < size {
		w.read = make([]byte, max(size, min(2*cap(w.read), maxRead), 64<<10))
	}
	buf = w.read[:size]
	r.pool.reads.Add(1)
	r.pool.bytesRead.Add(int64(size))
	return to, run.Off, buf, r.f.Ranged.ReadAt(ctx, buf, run.Off)
}

// receive takes the frames that are ready, and hands out the wanted ones.
func (r *job) receive() error {
	ix, w := r.f.Index, r.w
	for {
		pic, key, ok, err := w.dec.Receive()
		if err != nil || !ok {
			return err
		}
		r.pool.decoded.Add(1)
		d := int(key)
		if d < 0 || d >= ix.NumSamples() {
			continue
		}
		w.at.shown = max(w.at.shown, ix.Sample(d).PTS)
		k := r.wants(d)
		if k == 0 {
			continue
		}
		r.w.wanted[d-r.first] = 0
		r.left--
		r.pool.delivered.Add(1)
		if err := r.deliver(int(k)-1, pic); err != nil {
			r.err = err
			return err
		}
		if r.left == 0 {
			return nil // what else is ready may be what the next group wants
		}
	}
}

// reorder is the largest number of frames that precede one in decode order and follow it in
// presentation.
func reorder(ix *Index, start, end int) int {
	const most = 16 // the decoded frame buffer of H.264
	var recent [most]int64
	depth := 0
	for d := start; d <= end; d++ {
		pts := ix.Sample(d).PTS
		after := 0
		for i := 0; i < min(d-start, most); i++ {
			if recent[i] > pts {
				after++
			}
		}
		depth = max(depth, after)
		recent[(d-start)%most] = pts
	}
	return depth
}
