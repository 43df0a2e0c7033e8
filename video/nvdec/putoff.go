package nvdec

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/kernel/cuda"
	"github.com/goatnote-inc/robocache/video"
)

// maxPutOff is how many are put off: of frames a launch.
const maxPutOff = 32

// work is what is done with frames within the device: they are converted, or their planes copied. Works that are equal may be one launch.
type work struct {
	frames      frames // nil: copied
	planes      bool   // of the result
	chroma      int    // bytes from luma to chroma
	luma, pairs int    // bytes from row to row of each
	rows        cuda.Rows
	bytes       int // of a result
}

// putOff holds frames of one work that is still to be launched, so that many are one call of the driver: calls wait for one another, and for those of whoever
// trains, and a frame alone leaves most of the device idle. It is launched before anything that reads or writes the device's memory in order,
// and before memory or a place that it uses is given back: nobody can tell.
type putOff struct {
	mu   sync.Mutex
	work work
	to   []uintptr
	from []cuda.FramePlanes
	made atomic.Uint64 // launches
	err  error         // of a launch, for the life of the process: what was promised is not there, so that nothing that comes later can be right
}

// putOff puts work with a frame off; its place is held until that is launched.
func (f *frame) putOff(to []byte, from cuda.FramePlanes, w work) error {
	w.chroma, w.luma, w.pairs, w.bytes = int(from.Chroma-from.Luma), from.LumaRow, from.ChromaRow, len(to)
	p := &f.d.b.later
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.to) == maxPutOff || len(p.to) > 0 && p.work != w || p.writes(at(to)) {
		p.launch(f.d.b)
	}
	p.work, p.to, p.from = w, append(p.to, at(to)), append(p.from, from)
	for i := range f.d.mapped {
		if x := &f.d.mapped[i]; x.addr == f.place.addr {
			x.launch = p.made.Load() + 1
		}
	}
	return p.err
}

// writes says whether a result would overlap one that is to be written.
func (p *putOff) writes(to uintptr) bool {
	for _, x := range p.to {
		if n := uintptr(p.work.bytes); x-to < n || to-x < n {
			return true
		}
	}
	return false
}

// launch launches what was put off.
func (b *Backend) launch() error {
	b.later.mu.Lock()
	defer b.later.mu.Unlock()
	b.later.launch(b)
	return b.later.err
}

func (p *putOff) launch(b *Backend) {
	if len(p.to) == 0 {
		return
	}
	if p.err == nil {
		var s uintptr
		switch s, p.err = b.order(); {
		case p.err != nil:
		case p.work.frames != nil:
			p.err = p.work.frames.Run(p.from, p.to, p.work.planes, s)
		default:
			from := make([]uintptr, len(p.from))
			for i := range from {
				from[i] = p.from[i].Luma
			}
			p.err = b.d.copyRows(p.to, from, &p.work.rows, s)
		}
	}
	p.to, p.from = p.to[:0], p.from[:0]
	p.made.Add(1)
}

// ConvertThere is Convert, into memory of the device.
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
		return f.d.b.refuse("rows that do not lie a multiple of 4 bytes apart", "", fmt.Sprint(p.LumaRow))
	}
	return f.putOff(dst, p, work{frames: x, planes: spec.ChannelsFirst})
}

// KeepPlanes copies the planes within the device.
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
	return f.putOff(dst, p, work{rows: cuda.Rows{
		{Bytes: to[0].RowBytes, Rows: to[0].Rows, From: p.LumaRow, To: to[0].Stride},
		{Bytes: 2 * to[1].RowBytes, Rows: to[1].Rows, From: p.ChromaRow, To: 2 * to[1].Stride, FromAt: int(p.Chroma - p.Luma), ToAt: to[1].Offset},
	}})
}
