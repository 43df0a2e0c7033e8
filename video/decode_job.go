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

// decodeJob decodes one group with one decoder.
type decodeJob struct {
	pool    *Pool
	worker  *worker
	file    *File
	fetched *Fetched // nil: packets are read from the file
	group   Group
	deliver func(ordinal int, pic Frame) error

	// inOrder reports that the caller reads frame after frame. Frames that are still in the decoder
	// are pushed out by the next packets, which the next call needs anyway. A drain would force the
	// decoder to start again at a sync sample.
	inOrder bool
	resumed bool // the decoder continues from an earlier group

	wantedLeft   int // number of wanted frames that are not delivered yet
	firstDecode  int // decode index of wanted[0]
	deliverErr   error
	outsideGroup bool // the failure may lie outside the group
}

// runGroup sends the packets and delivers the frames. keep reports whether the decoder can be
// reused.
//
// Packets carry their decode index instead of a pts. It identifies a frame even if a damaged file
// repeats a pts.
func (r *decodeJob) runGroup(ctx context.Context) (keep bool, err error) {
	r.fillWanted()
	keep, err = r.sendGroup(ctx)
	if err != nil && r.outsideGroup {
		if failed := r.restartGroup(keep); failed != nil {
			return false, failed
		}
		keep, err = r.sendGroup(ctx)
	}
	return keep, err
}

// restartGroup resets the decoder to the start of the group. If canReuse is false, it replaces the
// decoder. It is called if a group failed and the cause may be a packet outside the group: one that
// was only sent to push frames out, or that an earlier group left in the decoder. The second
// attempt makes the result independent of the groups before and after (video.V11).
func (r *decodeJob) restartGroup(canReuse bool) error {
	w := r.worker
	if canReuse {
		w.decoder.Flush()
	} else {
		fresh, err := r.pool.newWorker(&w.entry)
		if err != nil {
			return locateError(err, r.file, &w.entry, r.firstMissing())
		}
		r.pool.opened.Add(1)
		w.decoder.Close()
		w.decoder, w.skipper, w.holder = fresh.decoder, fresh.skipper, fresh.holder
	}
	w.position = position{
		index:       r.file.Index,
		start:       r.group.Start,
		next:        r.group.Start,
		lastShown:   minInt64,
		lastSkipped: -1,
	}
	r.inOrder, r.resumed, r.outsideGroup = false, false, false
	return nil
}

var errNotInside = errors.New("not inside the decoder")

// passFailed returns the error of a pass over the packets in which the decoder or the deliver
// function failed. keep reports whether the decoder can be reused.
func (r *decodeJob) passFailed(err error, ordinal int) (keep bool, _ error) {
	if r.deliverErr != nil {
		return r.worker.clearPosition(), r.deliverErr
	}
	r.outsideGroup = r.inOrder || r.resumed
	return false, locateError(err, r.file, &r.worker.entry, ordinal)
}

// sendGroup sends the packets of the group and delivers its frames. On an error it sets
// outsideGroup if the cause may lie outside the group.
func (r *decodeJob) sendGroup(ctx context.Context) (keep bool, err error) {
	ix, w := r.file.Index, r.worker
	if h, ok := w.decoder.(Reorderer); ok && w.position.next == r.group.Start {
		h.Reorder(reorderDepth(ix, r.group.Start, r.group.End))
	}
	// The decoder may have frames of the previous group ready. It may refuse packets until they are
	// received.
	if r.resumed {
		r.deliverIfSent(w.position.next - 1)
		if err := r.receiveFrames(); err != nil {
			return r.passFailed(err, r.firstMissing())
		}
	}
	end := r.group.End
	// A caller that reads in order probably needs the neighbors of its frames next, so they are not
	// skipped.
	near := ix.DecodeIndex(r.group.Ordinals[0]) - reach
	if r.inOrder {
		end = r.lastPushPacket()
	}
	for w.position.next <= end && r.wantedLeft > 0 && !w.position.drained {
		if err := ctx.Err(); err != nil {
			return w.clearPosition(), err
		}
		from := w.position.next
		to, base, buf, err := r.readPackets(ctx, from)
		if err != nil {
			r.outsideGroup = from > r.group.End
			return w.clearPosition(), locateError(err, r.file, &w.entry, r.ordinalAt(from))
		}
		for d := from; d < to && r.wantedLeft > 0; d++ {
			if d > from {
				if err := ctx.Err(); err != nil {
					return w.clearPosition(), err
				}
			}
			s := ix.Sample(d)
			packet := buf[s.Offset-base : s.Offset-base+int64(s.Size)]
			isNeighbor := r.inOrder && d >= near
			if r.wantedOrdinal(d) == 0 && w.skipper != nil && !isNeighbor {
				err = w.skipper.SendUnwanted(packet, int64(d))
				w.position.lastSkipped = d
			} else {
				err = w.decoder.Send(packet, int64(d))
			}
			r.pool.packets.Add(1)
			r.pool.bytesNeeded.Add(int64(s.Size))
			w.position.next = d + 1
			if err == nil {
				r.deliverIfSent(d)
				err = r.receiveFrames()
			}
			if err != nil {
				return r.passFailed(err, r.ordinalAt(d))
			}
		}
	}
	if r.wantedLeft == 0 {
		return true, nil
	}
	if !w.position.drained {
		// The remaining wanted frames are still in the decoder, perhaps with frames of the next
		// group. The decoder keeps these until a flush.
		w.position.drained = true
		err := w.decoder.Drain()
		if err == nil {
			err = r.receiveFrames()
		}
		if err != nil {
			return r.passFailed(err, r.firstMissing())
		}
	}
	switch {
	case r.wantedLeft == 0:
		return true, nil
	case r.resumed:
		r.outsideGroup = true
		return true, errNotInside
	}
	return false, noFrame(robocache.Where{
		"file":  r.file.Path,
		"frame": r.firstMissing(),
		"codec": string(w.entry.Codec),
	})
}

// deliverIfSent calls DeliverPending of the decoder if the last packet of the group was sent.
func (r *decodeJob) deliverIfSent(last int) {
	if r.worker.holder != nil && last >= r.group.End {
		r.worker.holder.DeliverPending()
	}
}

// reach exceeds the decoded frame buffer of every codec. It bounds the number of packets between a
// frame's own packet and its delivery.
const reach = 24

// lastPushPacket returns the last packet that may be sent to push out wanted frames. With fetched
// packets it stops at the first packet that is not fetched, because a drain is cheaper than a read.
func (r *decodeJob) lastPushPacket() int {
	ix := r.file.Index
	end, entry := r.group.End, ix.entryOf(r.group.Start)
	needsRead := func(d int) bool {
		wasSent := d < r.worker.position.next
		return r.fetched != nil && !wasSent && !r.fetched.holdsPacket(d)
	}
	for end < r.group.End+reach {
		next := end + 1
		if next >= ix.NumSamples() || ix.entryOf(next) != entry || needsRead(next) {
			break
		}
		end = next
	}
	return end
}

// clearPosition discards the decoder's position. The decoder is flushed when it is released. It
// returns true: the decoder can be reused.
func (w *worker) clearPosition() bool {
	w.position.index = nil
	return true
}

// fillWanted fills the table of wanted frames and counts them. The table has an entry for each
// packet of the group: the ordinal of its frame plus 1, or 0 if the frame is not wanted.
func (r *decodeJob) fillWanted() {
	ix, w := r.file.Index, r.worker
	r.firstDecode = r.group.Start
	packets := r.group.End - r.group.Start + 1
	if cap(w.wanted) < packets {
		w.wanted = make([]int32, packets)
	}
	w.wanted = w.wanted[:packets]
	clear(w.wanted)
	r.wantedLeft = 0
	for _, ordinal := range r.group.Ordinals {
		entry := &w.wanted[ix.DecodeIndex(ordinal)-r.firstDecode]
		if *entry == 0 { // otherwise the group names the frame twice
			*entry = int32(ordinal) + 1
			r.wantedLeft++
		}
	}
}

// wantedOrdinal returns the ordinal of packet d plus 1, or 0 if its frame is not wanted.
func (r *decodeJob) wantedOrdinal(d int) int32 {
	if i := d - r.firstDecode; i >= 0 && i < len(r.worker.wanted) {
		return r.worker.wanted[i]
	}
	return 0
}

// ordinalAt returns the wanted frame that a failure at packet d affects: the packet's own frame, or
// else the first frame that is not delivered yet.
func (r *decodeJob) ordinalAt(d int) int {
	if ordinalPlus1 := r.wantedOrdinal(d); ordinalPlus1 > 0 {
		return int(ordinalPlus1) - 1
	}
	return r.firstMissing()
}

// firstMissing returns the first wanted frame that is not delivered yet. If all are delivered, it
// returns the first wanted frame.
func (r *decodeJob) firstMissing() int {
	for _, k := range r.group.Ordinals {
		if r.worker.wanted[r.file.Index.DecodeIndex(k)-r.firstDecode] > 0 {
			return k
		}
	}
	return r.group.Ordinals[0]
}

// readPackets returns the bytes of packets d … to-1 in buf, which begins at file offset base. It
// takes fetched packets if packet d was fetched. Otherwise it reads adjacent packets of the group
// at once, up to maxRead bytes. Packets beyond the group are read one by one, because usually the
// first one is enough.
func (r *decodeJob) readPackets(
	ctx context.Context,
	d int,
) (to int, base int64, buf []byte, err error) {
	w := r.worker
	to, run, fits := adjacentRead(r.file.Index, d, r.group.End)
	if !fits {
		return to, run.Off, nil, robocache.ResourceLimit(
			opDecode,
			nil,
			"a packet of %s bytes, limit %s",
			itoa(int(run.Len)),
			itoa(maxPacket),
		)
	}
	if r.fetched != nil {
		if to, base, buf, err, ok := r.fetched.packetsFrom(d, r.group.End); ok {
			return to, base, buf, err
		}
	}
	size := int(run.Len)
	if cap(w.readBuffer) < size {
		w.readBuffer = make([]byte, max(size, min(2*cap(w.readBuffer), maxRead), 64<<10))
	}
	buf = w.readBuffer[:size]
	r.pool.reads.Add(1)
	r.pool.bytesRead.Add(int64(size))
	return to, run.Off, buf, r.file.Ranged.ReadAt(ctx, buf, run.Off)
}

// receiveFrames receives the frames that are ready and delivers the wanted ones.
func (r *decodeJob) receiveFrames() error {
	ix, w := r.file.Index, r.worker
	for {
		pic, key, ok, err := w.decoder.Receive()
		if err != nil || !ok {
			return err
		}
		r.pool.decoded.Add(1)
		d := int(key)
		if d < 0 || d >= ix.NumSamples() {
			continue
		}
		w.position.lastShown = max(w.position.lastShown, ix.Sample(d).PTS)
		ordinalPlus1 := r.wantedOrdinal(d)
		if ordinalPlus1 == 0 {
			continue
		}
		r.worker.wanted[d-r.firstDecode] = 0
		r.wantedLeft--
		r.pool.delivered.Add(1)
		if err := r.deliver(int(ordinalPlus1)-1, pic); err != nil {
			r.deliverErr = err
			return err
		}
		if r.wantedLeft == 0 {
			return nil // the next group may want the other frames that are ready
		}
	}
}

// reorderDepth returns the largest number of frames that precede a frame in decode order and follow
// it in presentation order.
func reorderDepth(ix *Index, start, end int) int {
	const most = 16        // the decoded frame buffer of H.264
	var recent [most]int64 // presentation times of the last packets, as a ring
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
