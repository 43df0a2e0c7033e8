package nvdec

import (
	"encoding/binary"
	"errors"
	"fmt"
	"unsafe"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/kernel/cuda"
	"github.com/goatnote-inc/robocache/video"
)

// The device's memory, and frames there: all of it on one stream of the backend, so that nothing on
// the host waits for one frame.

// maxForms is how many conversions have their tables on the device; others are made on the host.
const maxForms = 256

// form is a conversion: of what, to what.
type form struct {
	info          video.PlaneInfo
	width, height int
}

// Number is the driver's of the device.
func (b *Backend) Number() int { return b.device }

// at is the address of the device's memory that a slice stands for.
func at(m []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(m))) }

// order is the stream.
func (b *Backend) order() (_ uintptr, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.stream == 0 {
		b.stream, err = b.d.newStream()
	}
	return b.stream, err
}

// ordered calls f with the backend's stream after the launch of everything that is queued.
func (b *Backend) ordered(f func(stream uintptr) error) error {
	s, err := b.order()
	if err == nil {
		err = b.queue.Flush()
	}
	if err != nil {
		return err
	}
	return f(s)
}

// Alloc gives memory of the device.
func (b *Backend) Alloc(n int) ([]byte, error) { return b.d.alloc(n) }

// Free takes it back.
func (b *Backend) Free(m []byte) {
	_ = b.queue.Flush() // a queued copy may write to m; its error is reported to the caller of Wait
	b.d.free(m)
}

// Upload copies from the host, which may change src then.
func (b *Backend) Upload(dst, src []byte) error {
	return b.staging.copy(b, dst, func(m []byte) { copy(m, src) })
}

// UploadPlanes brings the host's planes to where KeepPlanes puts an engine's.
func (b *Backend) UploadPlanes(info video.PlaneInfo, dst, planes []byte) error {
	p, _ := info.Planes()
	return b.staging.copy(b, dst, func(m []byte) {
		copy(m[:p[1].Offset], planes)
		for y := range p[1].Rows {
			together(
				m[p[1].Offset+2*y*p[1].Stride:][:2*p[1].RowBytes],
				planes[p[1].Offset+y*p[1].Stride:],
				planes[p[2].Offset+y*p[2].Stride:],
			)
		}
	})
}

// together makes pairs of bytes, eight bytes at a time.
func together(pairs, u, v []byte) {
	x := 0
	for ; 2*x+8 <= len(pairs); x += 4 {
		binary.LittleEndian.PutUint64(
			pairs[2*x:],
			apart4(binary.LittleEndian.Uint32(u[x:]))|apart4(binary.LittleEndian.Uint32(v[x:]))<<8,
		)
	}
	for ; 2*x < len(pairs); x++ {
		pairs[2*x], pairs[2*x+1] = u[x], v[x]
	}
}

// apart4 is even's inverse.
func apart4(w uint32) uint64 {
	x := uint64(w)
	x = (x | x<<16) & 0x0000ffff0000ffff
	return (x | x<<8) & 0x00ff00ff00ff00ff
}

// Copy copies pieces of one size within the device.
func (b *Backend) Copy(dst, src [][]byte) error {
	if len(src) == 0 {
		return nil
	}
	to, from := make([]uintptr, len(src)), make([]uintptr, len(src))
	for i := range src {
		if len(src[i]) != len(src[0]) || len(dst[i]) < len(src[0]) {
			return robocache.Misuse(opDecode, nil, "pieces to be copied are not of one size").
				Expected(fmt.Sprint(len(src[0])), fmt.Sprint(len(src[i]), " to ", len(dst[i])))
		}
		to[i], from[i] = at(dst[i]), at(src[i])
	}
	return b.ordered(
		func(s uintptr) error { return b.d.copyRows(to, from, &cuda.Rows{{Bytes: len(src[0]), Rows: 1}}, s) },
	)
}

// Clear writes zeros.
func (b *Backend) Clear(dst []byte) error {
	return b.ordered(func(s uintptr) error { return b.d.clear(dst, s) })
}

// Wait returns when all that was begun is over.
func (b *Backend) Wait() error { return b.staging.wait(b) }

// Converts says whether there is a kernel.
func (b *Backend) Converts(info video.PlaneInfo, spec *video.Spec) bool {
	_, err := b.frames(info, spec)
	return err == nil
}

// ConvertKept converts what KeepPlanes wrote.
func (b *Backend) ConvertKept(
	info video.PlaneInfo,
	planes [][]byte,
	spec *video.Spec,
	dst [][]byte,
) error {
	p, _ := info.Planes()
	from := make([]cuda.FramePlanes, len(planes))
	for i, m := range planes {
		from[i] = cuda.FramePlanes{
			Luma:      at(m),
			Chroma:    at(m) + uintptr(p[1].Offset),
			LumaRow:   p[0].Stride,
			ChromaRow: 2 * p[1].Stride,
		}
	}
	return b.convert(info, from, spec, dst)
}

// convert makes RGB by the kernel.
func (b *Backend) convert(
	info video.PlaneInfo,
	from []cuda.FramePlanes,
	spec *video.Spec,
	dst [][]byte,
) error {
	shape := info.Shape()
	to := make([]uintptr, len(dst))
	for i, m := range dst {
		if err := shape.Check(spec, m); err != nil {
			return err
		}
		to[i] = at(m)
	}
	x, err := b.frames(info, spec)
	if err != nil {
		return err
	}
	return b.ordered(func(s uintptr) error { return x.Run(from, to, spec.ChannelsFirst, s) })
}

// frames gives the kernel of a conversion. That there is none is kept too.
func (b *Backend) frames(info video.PlaneInfo, spec *video.Spec) (frames, error) {
	key := form{info, spec.Width, spec.Height}
	b.mu.Lock()
	defer b.mu.Unlock()
	x, known := b.forms[key]
	if !known && len(b.forms) < maxForms && spec.Pixel == video.RGB8 {
		if f, ok := video.FormulaOf(info, spec); ok {
			own := cuda.FrameForm(f)
			made, err := b.d.frames(&own)
			if err == nil {
				x = made
			} else if !errors.Is(err, robocache.ErrUnsupported) {
				return nil, err
			}
		}
		b.forms[key] = x
	}
	if x == nil || spec.Pixel != video.RGB8 {
		return nil, robocache.Unsupported(
			opDecode,
			nil,
			"no kernel makes these pixels as the host does",
		)
	}
	return x, nil
}

// there is where the frame lies on the device, until its place is given to another.
func (f *frame) there() (p cuda.FramePlanes, err error) {
	s, err := f.d.b.order()
	if err == nil {
		err = f.mapped(s)
	}
	if err != nil {
		return p, err
	}
	shown := &f.d.format.shown
	if f.place.stream != s && !f.here { // a copy to the host that failed waited for nothing
		if err := f.d.b.d.wait(f.place.stream); err != nil {
			return p, err
		}
	}
	f.d.reads = true
	addr, pitch := f.place.addr, f.place.pitch
	luma := addr + uintptr(int(shown.top)*pitch+int(shown.left))
	chroma := addr + uintptr((int(f.d.format.height)+int(shown.top)/2)*pitch+int(shown.left))
	return cuda.FramePlanes{Luma: luma, Chroma: chroma, LumaRow: pitch, ChromaRow: pitch}, nil
}
