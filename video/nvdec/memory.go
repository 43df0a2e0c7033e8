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

// All work on device memory and on frames in it runs on one CUDA stream of the backend, so the host
// does not wait for single frames.

// maxForms limits the conversions whose tables are in device memory. The host does further ones.
const maxForms = 256

// conversionKey identifies a conversion by the source format and the size of the result.
type conversionKey struct {
	info          video.PlaneInfo
	width, height int
}

// Number returns the driver's number of the device.
func (b *Backend) Number() int { return b.device }

// deviceAddress returns the device address that a slice wraps.
func deviceAddress(m []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(m))) }

// sharedStream returns the backend's stream, and creates it at the first call.
func (b *Backend) sharedStream() (_ uintptr, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.stream == 0 {
		b.stream, err = b.driver.newStream()
	}
	return b.stream, err
}

// withStream launches everything that is queued, then calls f with the backend's stream.
func (b *Backend) withStream(f func(stream uintptr) error) error {
	s, err := b.sharedStream()
	if err == nil {
		err = b.queue.Flush()
	}
	if err != nil {
		return err
	}
	return f(s)
}

// Alloc allocates n bytes of device memory. The caller must call Free.
func (b *Backend) Alloc(n int) ([]byte, error) { return b.driver.allocDevice(n) }

// Free frees memory that Alloc returned.
func (b *Backend) Free(m []byte) {
	_ = b.queue.Flush() // a queued copy may write to m; its error is reported to the caller of Wait
	b.driver.freeDevice(m)
}

// Upload copies src to the device. The caller may change src when it returns.
func (b *Backend) Upload(dst, src []byte) error {
	return b.staging.copyToDevice(b, dst, func(m []byte) { copy(m, src) })
}

// UploadPlanes copies planes from the host to device memory, in the layout that KeepPlanes writes.
func (b *Backend) UploadPlanes(info video.PlaneInfo, dst, planes []byte) error {
	p, _ := info.Planes()
	u, v := p[1], p[2]
	return b.staging.copyToDevice(b, dst, func(m []byte) {
		copy(m[:u.Offset], planes) // the luma plane
		for y := range u.Rows {
			pairs := m[u.Offset+2*y*u.Stride:][:2*u.RowBytes]
			joinPairs(pairs, planes[u.Offset+y*u.Stride:], planes[v.Offset+y*v.Stride:])
		}
	})
}

// joinPairs interleaves chroma samples, 8 bytes at a time.
func joinPairs(pairs, u, v []byte) {
	x := 0
	for ; 2*x+8 <= len(pairs); x += 4 {
		low := spreadBytes(binary.LittleEndian.Uint32(u[x:]))
		high := spreadBytes(binary.LittleEndian.Uint32(v[x:]))
		binary.LittleEndian.PutUint64(pairs[2*x:], low|high<<8)
	}
	for ; 2*x < len(pairs); x++ {
		pairs[2*x], pairs[2*x+1] = u[x], v[x]
	}
}

// spreadBytes puts the four bytes of w into the even bytes of the result. It is the inverse of
// evenBytes.
func spreadBytes(w uint32) uint64 {
	x := uint64(w)
	x = (x | x<<16) & 0x0000ffff0000ffff
	return (x | x<<8) & 0x00ff00ff00ff00ff
}

// Copy copies pieces of equal size within the device.
func (b *Backend) Copy(dst, src [][]byte) error {
	if len(src) == 0 {
		return nil
	}
	to, from := make([]uintptr, len(src)), make([]uintptr, len(src))
	for i := range src {
		if len(src[i]) != len(src[0]) || len(dst[i]) < len(src[0]) {
			return robocache.Misuse(opDecode, nil, "the pieces to copy have different sizes").
				Expected(fmt.Sprint(len(src[0])), fmt.Sprint(len(src[i]), " to ", len(dst[i])))
		}
		to[i], from[i] = deviceAddress(dst[i]), deviceAddress(src[i])
	}
	return b.withStream(
		func(s uintptr) error {
			return b.driver.copyRows(to, from, &cuda.Rows{{Bytes: len(src[0]), Rows: 1}}, s)
		},
	)
}

// Clear fills dst with zeros.
func (b *Backend) Clear(dst []byte) error {
	return b.withStream(func(s uintptr) error { return b.driver.clearDevice(dst, s) })
}

// Wait blocks until all work that was started before is complete.
func (b *Backend) Wait() error { return b.staging.waitDevice(b) }

// Converts reports whether a kernel exists for the conversion.
func (b *Backend) Converts(info video.PlaneInfo, spec *video.Spec) bool {
	_, err := b.kernelFor(info, spec)
	return err == nil
}

// ConvertKept converts planes that KeepPlanes wrote.
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
			Luma:      deviceAddress(m),
			Chroma:    deviceAddress(m) + uintptr(p[1].Offset),
			LumaRow:   p[0].Stride,
			ChromaRow: 2 * p[1].Stride,
		}
	}
	return b.convertPlanes(info, from, spec, dst)
}

// convertPlanes converts planes to RGB with a kernel.
func (b *Backend) convertPlanes(
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
		to[i] = deviceAddress(m)
	}
	x, err := b.kernelFor(info, spec)
	if err != nil {
		return err
	}
	return b.withStream(func(s uintptr) error { return x.Run(from, to, spec.ChannelsFirst, s) })
}

// kernelFor returns the kernel of a conversion, or ErrUnsupported. It keeps the kernel for later
// calls, or nil if there is none.
func (b *Backend) kernelFor(info video.PlaneInfo, spec *video.Spec) (frameKernel, error) {
	key := conversionKey{info, spec.Width, spec.Height}
	b.mu.Lock()
	defer b.mu.Unlock()
	kernel, known := b.kernels[key]
	if !known && len(b.kernels) < maxForms && spec.Pixel == video.RGB8 {
		if f, ok := video.FormulaOf(info, spec); ok {
			form := cuda.FrameForm(f)
			prepared, err := b.driver.prepareKernel(&form)
			if err == nil {
				kernel = prepared
			} else if !errors.Is(err, robocache.ErrUnsupported) {
				return nil, err
			}
		}
		b.kernels[key] = kernel
	}
	if kernel == nil || spec.Pixel != video.RGB8 {
		return nil, robocache.Unsupported(
			opDecode,
			nil,
			"no GPU kernel gives the same pixels as the CPU",
		)
	}
	return kernel, nil
}

// devicePlanes returns the device addresses of the frame's planes. They are valid until the surface
// is unmapped.
func (f *frame) devicePlanes() (p cuda.FramePlanes, err error) {
	s, err := f.decoder.backend.sharedStream()
	if err == nil {
		err = f.ensureMapped(s)
	}
	if err != nil {
		return p, err
	}
	shown := &f.decoder.format.shown
	// after a failed copy to the host, the mapping's stream may still be at work
	if f.mapping.stream != s && !f.onHost {
		if err := f.decoder.backend.driver.waitStream(f.mapping.stream); err != nil {
			return p, err
		}
	}
	f.decoder.backendMayAccess = true
	addr, pitch := f.mapping.addr, f.mapping.pitch
	luma := addr + uintptr(int(shown.top)*pitch+int(shown.left))
	chroma := addr + uintptr((int(f.decoder.format.height)+int(shown.top)/2)*pitch+int(shown.left))
	return cuda.FramePlanes{Luma: luma, Chroma: chroma, LumaRow: pitch, ChromaRow: pitch}, nil
}
