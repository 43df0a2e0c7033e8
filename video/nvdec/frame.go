package nvdec

import (
	"encoding/binary"
	"fmt"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/video"
)

// frame is the frame that a decoder delivered last. Its pixels stay on the device until they are
// requested.
type frame struct {
	decoder *decoder
	pendingFrame
	onHost    bool // hostBytes holds the pixels
	isChecked bool // the surface is mapped, and was decoded without an error
	// page-locked memory with the planes in the engine's layout: luma, then pairs of chroma samples
	hostBytes     []byte
	scratchPlanes []byte // scratch memory of Convert
}

var _ video.DeviceFrame = (*frame)(nil)

// Size returns the size of the frame after rotation.
func (f *frame) Size() (width, height int) {
	info := f.planeInfo()
	s := info.Shape()
	return s.Width, s.Height
}

// PixelFormat returns libavutil's name of the format.
func (f *frame) PixelFormat() string {
	info := f.planeInfo()
	return video.PlaneFormatName(info.Format)
}

// PlaneInfo describes the planes in the form that libavcodec decodes the same stream to.
func (f *frame) PlaneInfo() (video.PlaneInfo, bool) { return f.planeInfo(), true }

// planeInfo returns the description of the planes. Fields that the stream does not specify come
// from the sample entry.
func (f *frame) planeInfo() video.PlaneInfo {
	t, e := &f.decoder.format, &f.decoder.entry
	full := t.isFullRange()
	name := "yuv420p"
	if full && e.Codec != video.VP9 {
		name = "yuvj420p"
	}
	matrix := t.matrix
	if matrix == 0 || matrix == 2 { // the stream does not specify a matrix
		matrix = uint8(e.Matrix)
		if e.Matrix <= 0 || e.Matrix > 255 {
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

// Bytes returns the size of the destination that Convert needs.
func (f *frame) Bytes(spec *video.Spec) (int, error) {
	info := f.planeInfo()
	s := info.Shape()
	return s.Bytes(spec)
}

// Convert writes the frame to dst. The bytes are identical to those of the CPU decoder.
func (f *frame) Convert(spec *video.Spec, dst []byte) error {
	info := f.planeInfo()
	if n := info.Bytes(); len(f.scratchPlanes) != n {
		f.scratchPlanes = make([]byte, n)
	}
	if err := f.CopyPlanes(f.scratchPlanes); err != nil {
		return err
	}
	return video.ConvertPlanes(info, f.scratchPlanes, spec, dst)
}

// CopyPlanes copies the planes to the host, cropped to the displayed area (nvdec.N4).
func (f *frame) CopyPlanes(dst []byte) error {
	info := f.planeInfo()
	if n := info.Bytes(); len(dst) != n {
		return robocache.Misuse(opDecode, nil, "").
			Expected(fmt.Sprintf("a destination of %d bytes", n), fmt.Sprint(len(dst)))
	}
	var err error
	if f.decoder.backend.driver.withContext(func() { err = f.fetchToHost() }); err != nil {
		return err
	}
	planes, _ := info.Planes()
	left, top := int(f.decoder.format.shown.left), int(f.decoder.format.shown.top)
	for y := range planes[0].Rows {
		copy(clearedRow(dst, &planes[0], y), f.hostBytes[(top+y)*f.mapping.pitch+left:])
	}
	chroma := f.hostBytes[int(f.decoder.format.height)*f.mapping.pitch:]
	for y := range planes[1].Rows {
		splitPairs(
			clearedRow(dst, &planes[1], y),
			clearedRow(dst, &planes[2], y),
			chroma[(top/2+y)*f.mapping.pitch+left:],
		)
	}
	for _, p := range planes {
		n := p.Offset + p.Rows*p.Stride
		clear(dst[n : (n+63)&^63])
	}
	return nil
}

// clearedRow returns row y of a plane without its padding, and zeroes the padding.
func clearedRow(dst []byte, p *video.Plane, y int) []byte {
	r := dst[p.Offset+y*p.Stride:][:p.Stride]
	clear(r[p.RowBytes:])
	return r[:p.RowBytes]
}

// splitPairs separates interleaved chroma samples (u, v, u, v, …), 16 bytes at a time. The samples
// of u are the even bytes of a word, and those of v the odd ones.
func splitPairs(u, v, pairs []byte) {
	n := len(u)
	v, pairs = v[:n], pairs[:2*n]
	x := 0
	for ; x+8 <= n; x += 8 {
		a, b := binary.LittleEndian.Uint64(pairs[2*x:]), binary.LittleEndian.Uint64(pairs[2*x+8:])
		binary.LittleEndian.PutUint64(u[x:], evenBytes(a)|evenBytes(b)<<32)
		binary.LittleEndian.PutUint64(v[x:], evenBytes(a>>8)|evenBytes(b>>8)<<32)
	}
	for ; x < n; x++ {
		u[x], v[x] = pairs[2*x], pairs[2*x+1]
	}
}

// evenBytes gathers bytes 0, 2, 4 and 6 of a word into its low half.
func evenBytes(w uint64) uint64 {
	w &= 0x00ff00ff00ff00ff
	w = (w | w>>8) & 0x0000ffff0000ffff
	return (w | w>>16) & 0xffffffff
}

// ensureMapped waits for the frame, checks it, and maps its surface on stream if it is not mapped
// yet.
func (f *frame) ensureMapped(stream uintptr) (err error) {
	d := f.decoder
	if d.closed {
		return closedError()
	}
	if f.isChecked {
		return nil
	}
	d.awaitPending()
	if f.mapping.addr == 0 {
		if f.mapping, err = d.mapSurface(f.surface, stream); err == nil {
			d.mapped = append(d.mapped, mappedSurface{addr: f.mapping.addr})
		}
	}
	if err == nil {
		err = d.checkDecoded()
	}
	f.isChecked = err == nil
	d.broken = d.broken || err != nil
	return err
}

// fetchToHost copies the frame from the device.
func (f *frame) fetchToHost() error {
	if f.onHost {
		return nil
	}
	d := f.decoder
	err := f.ensureMapped(d.stream)
	if err == nil {
		n := f.mapping.pitch * int(d.format.height) * 3 / 2
		if len(f.hostBytes) != n {
			if f.hostBytes != nil {
				d.backend.driver.freeHost(f.hostBytes)
			}
			f.hostBytes, err = d.backend.driver.allocHost(n)
		}
	}
	if err == nil {
		err = d.backend.driver.copyToHost(f.hostBytes, f.mapping.addr, f.mapping.stream)
	}
	f.onHost, d.broken = err == nil, d.broken || err != nil
	return err
}
