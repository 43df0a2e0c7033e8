package nvdec

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/kernel/cuda"
	"github.com/goatnote-inc/robocache/video"
)

// maxQueued is the number of frames of one launch.
const maxQueued = 32

// frameOp is an operation on frames within the device: they are converted, or their planes are
// copied. Frames with equal operations may be processed by one launch.
type frameOp struct {
	frames frames // nil: the planes are copied
	planar bool   // the result is
	chroma int    // bytes from luma to chroma
	luma   int    // bytes from row to row of luma
	pairs  int    // bytes from row to row of chroma
	rows   cuda.Rows
	bytes  int // of a result
}

// fence is a number of launches. An operation has begun on the device when its queue has made that
// many: then whatever is put on the backend's stream comes after the operation. The zero fence has
// passed.
type fence uint64

// launchQueue collects frames with one operation until a launch is full or something must come
// after them. A launch per frame would leave most of the device idle, and driver calls of all
// threads exclude each other.
//
// Work on the backend's stream must go through Backend.ordered, which flushes the queue first, and
// memory that a queued operation uses may be freed or overwritten after its fence has passed, or
// after a flush.
type launchQueue struct {
	launch func(op *frameOp, to []uintptr, from []cuda.FramePlanes) error

	mu       sync.Mutex
	op       frameOp
	to       []uintptr
	from     []cuda.FramePlanes
	launches atomic.Uint64
	err      error // of a launch, for the life of the process: every later result would be wrong
}

// Submit queues one frame and returns the fence that its operation passes. It launches what is
// queued if the launch is full, if the operations differ, or if two results overlap.
func (q *launchQueue) Submit(to []byte, from cuda.FramePlanes, op frameOp) (fence, error) {
	op.chroma, op.luma, op.pairs, op.bytes = int(
		from.Chroma-from.Luma,
	), from.LumaRow, from.ChromaRow, len(
		to,
	)
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.to) == maxQueued || len(q.to) > 0 && q.op != op || q.overlaps(at(to)) {
		q.launchQueued()
	}
	q.op, q.to, q.from = op, append(q.to, at(to)), append(q.from, from)
	return fence(q.launches.Load() + 1), q.err
}

// overlaps reports whether a result at address to would overlap a queued one. Caller must hold
// q.mu.
func (q *launchQueue) overlaps(to uintptr) bool {
	for _, x := range q.to {
		if n := uintptr(q.op.bytes); x-to < n || to-x < n {
			return true
		}
	}
	return false
}

// Flush launches what is queued. It does not wait for the device.
func (q *launchQueue) Flush() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.launchQueued()
	return q.err
}

// Passed reports whether the operation of f has been launched.
func (q *launchQueue) Passed(f fence) bool { return uint64(f) <= q.launches.Load() }

// launchQueued launches what is queued. Caller must hold q.mu.
func (q *launchQueue) launchQueued() {
	if len(q.to) == 0 {
		return
	}
	if q.err == nil {
		q.err = q.launch(&q.op, q.to, q.from)
	}
	q.to, q.from = q.to[:0], q.from[:0]
	q.launches.Add(1)
}

// launchFrames begins an operation on the backend's stream.
func (b *Backend) launchFrames(op *frameOp, to []uintptr, from []cuda.FramePlanes) error {
	stream, err := b.order()
	if err != nil {
		return err
	}
	if op.frames != nil {
		return op.frames.Run(from, to, op.planar, stream)
	}
	planes := make([]uintptr, len(from))
	for i := range from {
		planes[i] = from[i].Luma
	}
	return b.d.copyRows(to, planes, &op.rows, stream)
}

// submit queues an operation on the frame's surface, which stays mapped until the operation's fence
// has passed.
func (f *frame) submit(to []byte, from cuda.FramePlanes, op frameOp) error {
	passed, err := f.d.b.queue.Submit(to, from, op)
	for i := range f.d.mapped {
		if x := &f.d.mapped[i]; x.addr == f.place.addr {
			x.readers = passed
		}
	}
	return err
}

// ConvertThere queues the conversion of the frame into memory of the device.
func (f *frame) ConvertThere(spec *video.Spec, dst []byte) (err error) {
	f.d.b.d.within(func() { err = f.convertThere(spec, dst) })
	return err
}

func (f *frame) convertThere(spec *video.Spec, dst []byte) error {
	info := f.info()
	shape := info.Shape()
	if err := shape.Check(spec, dst); err != nil {
		return err
	}
	x, err := f.d.b.frames(info, spec)
	if err != nil {
		return err
	}
	p, err := f.there()
	if err != nil {
		return err
	}
	if p.LumaRow%4 != 0 {
		return f.d.b.refuse(
			"rows that do not lie a multiple of 4 bytes apart",
			"",
			fmt.Sprint(p.LumaRow),
		)
	}
	return f.submit(dst, p, frameOp{frames: x, planar: spec.ChannelsFirst})
}

// KeepPlanes queues a copy of the planes within the device.
func (f *frame) KeepPlanes(dst []byte) (err error) {
	f.d.b.d.within(func() { err = f.keepPlanes(dst) })
	return err
}

func (f *frame) keepPlanes(dst []byte) error {
	info := f.info()
	if n := info.Bytes(); len(dst) < n {
		return robocache.Misuse(opDecode, nil, "").
			Expected(fmt.Sprintf("a destination of %d bytes", n), fmt.Sprint(len(dst)))
	}
	p, err := f.there()
	if err != nil {
		return err
	}
	to, _ := info.Planes()
	return f.submit(dst, p, frameOp{rows: cuda.Rows{
		{Bytes: to[0].RowBytes, Rows: to[0].Rows, From: p.LumaRow, To: to[0].Stride},
		{
			Bytes:  2 * to[1].RowBytes,
			Rows:   to[1].Rows,
			From:   p.ChromaRow,
			To:     2 * to[1].Stride,
			FromAt: int(p.Chroma - p.Luma),
			ToAt:   to[1].Offset,
		},
	}})
}
