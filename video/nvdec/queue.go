package nvdec

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/kernel/cuda"
	"github.com/goatnote-inc/robocache/video"
)

// maxQueued is the maximum number of frames in one launch.
const maxQueued = 32

// frameOp is an operation on a frame in device memory: a conversion to RGB, or a copy of its
// planes. Frames with equal operations can be processed by one launch.
type frameOp struct {
	kernel        frameKernel // converts the frame; nil copies its planes
	channelsFirst bool        // write channels first
	chroma        int         // bytes from the first luma row to the first chroma row
	luma          int         // bytes from one luma row to the next
	pairs         int         // bytes from one chroma row to the next
	rows          cuda.Rows
	bytes         int // bytes of one result
}

// fence identifies a launch by its number. After the queue has made that many launches, the
// operation is on the backend's stream, and later work on that stream runs after it. The zero fence
// has passed.
type fence uint64

// launchQueue collects frames with the same operation, until a launch is full or other work must
// follow them. One launch per frame would leave most of the device idle, and the driver runs the
// calls of all threads one at a time.
//
// Other work on the backend's stream must go through Backend.withStream, which flushes the queue
// first. Memory of a queued operation may be freed or overwritten only after its fence has passed
// or after a flush; the type system does not enforce this.
type launchQueue struct {
	launch func(op *frameOp, to []uintptr, from []cuda.FramePlanes) error

	mu           sync.Mutex
	op           frameOp
	destinations []uintptr
	sources      []cuda.FramePlanes
	launchCount  atomic.Uint64
	// error of a launch; kept for the life of the process, because every later result would be
	// wrong
	err error
}

// Submit queues one frame and returns the fence of its operation. It first launches the queued
// frames if the launch is full, if the operations differ, or if two results overlap. Submit sets
// the fields of op that describe the layout of the frame.
func (q *launchQueue) Submit(to []byte, from cuda.FramePlanes, op frameOp) (fence, error) {
	op.chroma, op.luma = int(from.Chroma-from.Luma), from.LumaRow
	op.pairs, op.bytes = from.ChromaRow, len(to)
	q.mu.Lock()
	defer q.mu.Unlock()
	isFull := len(q.destinations) == maxQueued
	differs := len(q.destinations) > 0 && q.op != op
	if isFull || differs || q.overlaps(deviceAddress(to)) {
		q.launchQueued()
	}
	q.op = op
	q.destinations = append(q.destinations, deviceAddress(to))
	q.sources = append(q.sources, from)
	return fence(q.launchCount.Load() + 1), q.err
}

// overlaps reports whether a result at an address would overlap a queued one. Caller must hold
// q.mu.
func (q *launchQueue) overlaps(address uintptr) bool {
	for _, x := range q.destinations {
		// One of the differences is negative, which is a large number without a sign.
		if n := uintptr(q.op.bytes); x-address < n || address-x < n {
			return true
		}
	}
	return false
}

// Flush launches the queued frames. It does not wait for the device.
func (q *launchQueue) Flush() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.launchQueued()
	return q.err
}

// Passed reports whether the operation of f has been launched.
func (q *launchQueue) Passed(f fence) bool { return uint64(f) <= q.launchCount.Load() }

// launchQueued launches the queued frames. Caller must hold q.mu.
func (q *launchQueue) launchQueued() {
	if len(q.destinations) == 0 {
		return
	}
	if q.err == nil {
		q.err = q.launch(&q.op, q.destinations, q.sources)
	}
	q.destinations, q.sources = q.destinations[:0], q.sources[:0]
	q.launchCount.Add(1)
}

// launchFrames starts an operation on several frames on the backend's stream.
func (b *Backend) launchFrames(op *frameOp, to []uintptr, from []cuda.FramePlanes) error {
	stream, err := b.sharedStream()
	if err != nil {
		return err
	}
	if op.kernel != nil {
		return op.kernel.Run(from, to, op.channelsFirst, stream)
	}
	planes := make([]uintptr, len(from))
	for i := range from {
		planes[i] = from[i].Luma
	}
	return b.driver.copyRows(to, planes, &op.rows, stream)
}

// submit queues an operation that reads the frame's surface. The surface stays mapped until the
// operation's fence has passed.
func (f *frame) submit(to []byte, from cuda.FramePlanes, op frameOp) error {
	passed, err := f.decoder.backend.queue.Submit(to, from, op)
	for i := range f.decoder.mapped {
		if x := &f.decoder.mapped[i]; x.addr == f.mapping.addr {
			x.lastReader = passed
		}
	}
	return err
}

// ConvertThere queues the conversion of the frame into memory of the device.
func (f *frame) ConvertThere(spec *video.Spec, dst []byte) (err error) {
	f.decoder.backend.driver.withContext(func() { err = f.convertOnDevice(spec, dst) })
	return err
}

// convertOnDevice queues the conversion. The device context must be current.
func (f *frame) convertOnDevice(spec *video.Spec, dst []byte) error {
	info := f.planeInfo()
	shape := info.Shape()
	if err := shape.Check(spec, dst); err != nil {
		return err
	}
	x, err := f.decoder.backend.kernelFor(info, spec)
	if err != nil {
		return err
	}
	p, err := f.devicePlanes()
	if err != nil {
		return err
	}
	if p.LumaRow%4 != 0 {
		return f.decoder.backend.unsupported(
			"the row stride is not a multiple of 4 bytes",
			"",
			fmt.Sprint(p.LumaRow),
		)
	}
	return f.submit(dst, p, frameOp{kernel: x, channelsFirst: spec.ChannelsFirst})
}

// KeepPlanes queues a copy of the planes within the device.
func (f *frame) KeepPlanes(dst []byte) (err error) {
	f.decoder.backend.driver.withContext(func() { err = f.keepPlanes(dst) })
	return err
}

// keepPlanes queues the copy. The device context must be current.
func (f *frame) keepPlanes(dst []byte) error {
	info := f.planeInfo()
	if n := info.Bytes(); len(dst) < n {
		return robocache.Misuse(opDecode, nil, "").
			Expected(fmt.Sprintf("a destination of %d bytes", n), fmt.Sprint(len(dst)))
	}
	p, err := f.devicePlanes()
	if err != nil {
		return err
	}
	to, _ := info.Planes()
	luma, chroma := to[0], to[1]
	return f.submit(dst, p, frameOp{rows: cuda.Rows{
		{Bytes: luma.RowBytes, Rows: luma.Rows, From: p.LumaRow, To: luma.Stride},
		{ // pairs of samples of both chroma planes
			Bytes:  2 * chroma.RowBytes,
			Rows:   chroma.Rows,
			From:   p.ChromaRow,
			To:     2 * chroma.Stride,
			FromAt: int(p.Chroma - p.Luma),
			ToAt:   chroma.Offset,
		},
	}})
}
