package nvdec

import (
	"encoding/binary"
	"fmt"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/video"
)

// frame is the one that a decoder gave last. It is on the device until its pixels are asked for.
type frame struct {
	d *decoder
	inside
	here   bool   // in host
	met    bool   // it is mapped, and decoded without an error
	host   []byte // page-locked: the planes as the engine gives them, luma and then pairs of chroma
	planes []byte // scratch of Convert
}

var _ video.DeviceFrame = (*frame)(nil)

// Size is that of the upright frame.
func (f *frame) Size() (width, height int) {
	info := f.info()
	s := info.Shape()
	return s.Width, s.Height
}

// PixelFormat is libavutil's name.
func (f *frame) PixelFormat() string {
	info := f.info()
	return video.PlaneFormatName(info.Format)
}

// PlaneInfo says what the planes are: what libavcodec makes of the same stream.
func (f *frame) PlaneInfo() (video.PlaneInfo, bool) { return f.info(), true }

func (f *frame) info() video.PlaneInfo {
	t, e := &f.d.format, &f.d.entry
	full := t.fullRange()
	name := "yuv420p"
	if full && e.Codec != video.VP9 {
		name = "yuvj420p"
	}
	matrix := t.matrix
	if matrix == 0 || matrix == 2 { // the stream does not say it
		if matrix = uint8(e.Matrix); e.Matrix <= 0 || e.Matrix > 255 {
			matrix = 2
		}
	}
	return video.PlaneInfo{
		Width:     t.shown.right - t.shown.left,
		Height:    t.shown.bottom - t.shown.top,
		Format:    video.PlaneFormat(name),
		Matrix:    matrix,
		FullRange: full,
		Rotation:  int16(e.Rotation),
	}
}

// Bytes is the size that Convert needs.
func (f *frame) Bytes(spec *video.Spec) (int, error) {
	info := f.info()
	s := info.Shape()
	return s.Bytes(spec)
}

// Convert writes the frame as the CPU's decoder would.
func (f *frame) Convert(spec *video.Spec, dst []byte) error {
	info := f.info()
	if n := info.Bytes(); len(f.planes) != n {
		f.planes = make([]byte, n)
	}
	if err := f.CopyPlanes(f.planes); err != nil {
		return err
	}
	return video.ConvertPlanes(info, f.planes, spec, dst)
}

// CopyPlanes brings the planes to the host (N4).
func (f *frame) CopyPlanes(dst []byte) error {
	info := f.info()
	if n := info.Bytes(); len(dst) != n {
		return robocache.Misuse(opDecode, nil, "").
			Expected(fmt.Sprintf("a destination of %d bytes", n), fmt.Sprint(len(dst)))
	}
	var err error
	if f.d.b.d.within(func() { err = f.fetch() }); err != nil {
		return err
	}
	planes, _ := info.Planes()
	left, top := int(f.d.format.shown.left), int(f.d.format.shown.top)
	for y := range planes[0].Rows {
		copy(row(dst, &planes[0], y), f.host[(top+y)*f.place.pitch+left:])
	}
	chroma := f.host[int(f.d.format.height)*f.place.pitch:]
	for y := range planes[1].Rows {
		apart(
			row(dst, &planes[1], y),
			row(dst, &planes[2], y),
			chroma[(top/2+y)*f.place.pitch+left:],
		)
	}
	for _, p := range planes {
		n := p.Offset + p.Rows*p.Stride
		clear(dst[n : (n+63)&^63])
	}
	return nil
}

// row gives a row of a plane, and clears what pads it.
func row(dst []byte, p *video.Plane, y int) []byte {
	r := dst[p.Offset+y*p.Stride:][:p.Stride]
	clear(r[p.RowBytes:])
	return r[:p.RowBytes]
}

// apart takes pairs of bytes apart, sixteen bytes at a time.
func apart(u, v, pairs []byte) {
	n := len(u)
	v, pairs = v[:n], pairs[:2*n]
	x := 0
	for ; x+8 <= n; x += 8 {
		a, b := binary.LittleEndian.Uint64(pairs[2*x:]), binary.LittleEndian.Uint64(pairs[2*x+8:])
		binary.LittleEndian.PutUint64(u[x:], even(a)|even(b)<<32)
		binary.LittleEndian.PutUint64(v[x:], even(a>>8)|even(b>>8)<<32)
	}
	for ; x < n; x++ {
		u[x], v[x] = pairs[2*x], pairs[2*x+1]
	}
}

// even gathers each second byte of a word, from the lowest on.
func even(w uint64) uint64 {
	w &= 0x00ff00ff00ff00ff
	w = (w | w>>8) & 0x0000ffff0000ffff
	return (w | w>>16) & 0xffffffff
}

// mapped waits for the frame, and gives it its place, on a stream where it has none yet.
func (f *frame) mapped(stream uintptr) (err error) {
	d := f.d
	if d.closed {
		return closed()
	}
	if f.met {
		return nil
	}
	d.decoded()
	if f.place.addr == 0 {
		if f.place, err = d.mapSurface(f.surface, stream); err == nil {
			d.mapped = append(d.mapped, held{addr: f.place.addr})
		}
	}
	if err == nil {
		err = d.sound()
	}
	f.met, d.broken = err == nil, d.broken || err != nil
	return err
}

// fetch copies the frame from the device.
func (f *frame) fetch() error {
	if f.here {
		return nil
	}
	d := f.d
	err := f.mapped(d.stream)
	if err == nil {
		n := f.place.pitch * int(d.format.height) * 3 / 2
		if len(f.host) != n {
			if f.host != nil {
				d.b.d.freeHost(f.host)
			}
			f.host, err = d.b.d.host(n)
		}
	}
	if err == nil {
		err = d.b.d.copyOut(f.host, f.place.addr, f.place.stream)
	}
	f.here, d.broken = err == nil, d.broken || err != nil
	return err
}
