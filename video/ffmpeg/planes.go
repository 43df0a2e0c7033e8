//go:build cgo

package ffmpeg

/*
#include <stdlib.h>
#include "shim.h"
*/
import "C"

import (
	"fmt"
	"slices"
	"sync"
	"unsafe"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/video"
)

var (
	_ video.PlanarFrame    = (*decodedFrame)(nil)
	_ video.PlaneConverter = ffmpegBackend{}
	_ video.PixelMover     = ffmpegBackend{}
	_ video.Formulas       = ffmpegBackend{}
)

// planeFormats returns libavutil's number of each format of package video, or -1 if this build
// lacks it.
var planeFormats = sync.OnceValue(func() *[video.PlaneFormats]C.int {
	ids := new([video.PlaneFormats]C.int)
	for i := range ids {
		ids[i] = -1
		if i > 0 {
			name := C.CString(video.PlaneFormatName(uint8(i)))
			ids[i] = C.rc_pixel_format(name)
			C.free(unsafe.Pointer(name))
		}
	}
	return ids
})

// planeFormat returns the number in package video of a format of libavutil, or 0 if its planes
// cannot be stored.
func planeFormat(format C.int) uint8 {
	for i, id := range planeFormats() {
		if id == format && id >= 0 {
			return uint8(i)
		}
	}
	return 0
}

func (p *decodedFrame) PlaneInfo() (video.PlaneInfo, bool) {
	p.PixelFormat() // sets storedFormat
	seen := p.decoder.received
	if p.storedFormat == 0 || seen.matrix < 0 || seen.matrix > 255 {
		return video.PlaneInfo{}, false
	}
	// To halve the chroma of gbrp, swscale reads the byte after a row of odd width, which is not
	// part of the frame.
	if p.name == "gbrp" && seen.width%2 != 0 {
		return video.PlaneInfo{}, false
	}
	return video.PlaneInfo{
		Width:     int32(seen.width),
		Height:    int32(seen.height),
		Format:    p.storedFormat,
		Matrix:    uint8(seen.matrix),
		FullRange: seen.full_range != 0,
		Rotation:  int16(p.decoder.rotation),
	}, true
}

func (p *decodedFrame) CopyPlanes(dst []byte) error {
	if p.decoder.native == nil {
		return closedError()
	}
	info, ok := p.PlaneInfo()
	if !ok {
		return robocache.Unsupported(
			"keep planes",
			nil,
			"planes of pixel format %s cannot be stored",
			p.PixelFormat(),
		).
			WithHint("decode the frame again")
	}
	if n := info.Bytes(); len(dst) != n {
		return robocache.Misuse("keep planes", nil, "").
			Expected(fmt.Sprintf("a destination of %d bytes", n), fmt.Sprint(len(dst)))
	}
	l := layoutOf(&info)
	return checkResult(
		"keep planes",
		C.rc_keep(p.decoder.native, &l, (*C.uint8_t)(unsafe.SliceData(dst))),
	)
}

// layoutOf converts info to the shim's structure.
func layoutOf(info *video.PlaneInfo) C.rc_layout {
	planes, n := info.Planes()
	l := C.rc_layout{
		width:      C.int(info.Width),
		height:     C.int(info.Height),
		format:     planeFormats()[info.Format],
		matrix:     C.int(info.Matrix),
		rotation:   C.int(info.Rotation),
		luma_bits:  C.int(info.LumaBits()),
		count:      C.int(n),
		full_range: boolToC(info.FullRange),
	}
	for k := range n {
		l.stride[k] = C.int(planes[k].Stride)
		l.row_bytes[k] = C.int(planes[k].RowBytes)
		l.rows[k] = C.int(planes[k].Rows)
		l.offset[k] = C.int64_t(planes[k].Offset)
	}
	return l
}

// ConvertPlanes implements video.PlaneConverter. The caller has checked info and the length of
// planes.
func (ffmpegBackend) ConvertPlanes(
	info video.PlaneInfo,
	planes []byte,
	spec *video.Spec,
	dst []byte,
) error {
	return convertPlanes(&info, planes, spec, dst, true)
}

// convertPlanes converts stored planes. fast = false disables the vector kernels.
func convertPlanes(
	info *video.PlaneInfo,
	planes []byte,
	spec *video.Spec,
	dst []byte,
	fast bool,
) error {
	shape := info.Shape()
	if err := shape.Check(spec, dst); err != nil {
		return err
	}
	if spec.Pixel == video.YUVPlanes {
		packPlanes(info, planes, dst)
		return nil
	}
	l := layoutOf(info)
	if l.format < 0 {
		return checkResult("convert kept planes", C.RC_ERR_FORMAT)
	}
	from, to := (*C.uint8_t)(unsafe.SliceData(planes)), (*C.uint8_t)(unsafe.SliceData(dst))
	o, err := conversionArgsOf(&shape, spec, int(info.Rotation))
	if err != nil {
		return err
	}
	s, err := scratches.acquireScratch(scratchKey{*info, int32(o.width), int32(o.height)})
	if err != nil {
		return err
	}
	defer scratches.releaseScratch(s)
	return checkResult(
		"convert kept planes",
		C.rc_convert(
			nil,
			&l,
			from,
			s.native,
			o.width,
			o.height,
			o.element,
			o.chw,
			boolToC(fast),
			o.table,
			to,
		),
	)
}

// Formula implements video.Formulas.
func (ffmpegBackend) Formula(info *video.PlaneInfo, width, height int) (f video.Formula, ok bool) {
	l := layoutOf(info)
	c := (*C.rc_formula)(C.calloc(1, C.sizeof_rc_formula))
	defer C.free(unsafe.Pointer(c))
	defer C.rc_formula_free(c)
	if C.rc_formula_of(&l, C.int(width), C.int(height), c) == 0 {
		return f, false
	}
	f.Width, f.Height, f.Scaled = width, height, c.scaled != 0
	for i, n := range c.numbers {
		f.Numbers[i] = int32(n)
	}
	for k := range f.Taps { // copy the filters out of C memory
		n := int(c.size[k]) // number of results
		f.Taps[k] = int(c.taps[k])
		f.Position[k] = slices.Clone(unsafe.Slice((*int32)(unsafe.Pointer(c.position[k])), n))
		f.Weight[k] = slices.Clone(
			unsafe.Slice((*int16)(unsafe.Pointer(c.coefficient[k])), n*f.Taps[k]),
		)
	}
	return f, true
}

// boolToC returns 1 for true and 0 for false.
func boolToC(b bool) C.int {
	if b {
		return 1
	}
	return 0
}

// CopyPixels implements video.PixelMover. Both slices have the same length.
func (ffmpegBackend) CopyPixels(dst, src []byte) {
	C.rc_copy(
		(*C.uint8_t)(unsafe.SliceData(dst)),
		(*C.uint8_t)(unsafe.SliceData(src)),
		C.size_t(len(src)),
	)
}

// SplitPixels implements video.PixelMover. The slices have matching lengths.
func (ffmpegBackend) SplitPixels(r, g, b, rgb []byte) {
	p := func(b []byte) *C.uint8_t { return (*C.uint8_t)(unsafe.SliceData(b)) }
	C.rc_split(p(rgb), C.size_t(len(r)), p(r), p(g), p(b))
}

// packPlanes copies the planes to dst without their padding.
func packPlanes(info *video.PlaneInfo, planes, dst []byte) {
	layout, planeCount := info.Planes()
	for _, p := range layout[:planeCount] {
		for y := range p.Rows {
			row := planes[p.Offset+y*p.Stride:][:p.RowBytes]
			n := copy(dst, row)
			dst = dst[n:]
		}
	}
}

// scratch is the memory of one conversion: a context of swscale and rows. It is used by one
// goroutine at a time.
type scratch struct {
	native *C.rc_scratch
	key    scratchKey
}

// scratchKey identifies the conversions that a context of swscale supports.
type scratchKey struct {
	info          video.PlaneInfo
	width, height int32 // size of the result
}

// scratches holds the idle scratches, in the order of their last use: at most maxIdle, with at most
// maxIdleBytes. The size of a context (a few hundred kB) is not counted.
var scratches scratchPool

type scratchPool struct {
	mu    sync.Mutex
	idle  []*scratch
	bytes int64
}

const (
	maxIdle      = 64
	maxIdleBytes = 64 << 20
)

// acquireScratch returns an idle scratch for key, or another one to be set up.
func (p *scratchPool) acquireScratch(key scratchKey) (*scratch, error) {
	p.mu.Lock()
	at := len(p.idle) - 1 // the last used one first, because its rows are in the caches
	for at >= 0 && p.idle[at].key != key {
		at--
	}
	if at < 0 && len(p.idle) >= maxIdle/2 {
		at = 0 // the least recently used one is set up for another shape
	}
	if at >= 0 {
		s := p.idle[at]
		p.idle = slices.Delete(p.idle, at, at+1)
		p.bytes -= int64(C.rc_scratch_memory(s.native))
		p.mu.Unlock()
		s.key = key
		return s, nil
	}
	p.mu.Unlock()
	c := C.rc_scratch_new()
	if c == nil {
		return nil, checkResult("convert kept planes", C.RC_ERR_MEMORY)
	}
	return &scratch{native: c, key: key}, nil
}

// releaseScratch makes a scratch idle and frees those beyond the limits.
func (p *scratchPool) releaseScratch(s *scratch) {
	var out []*scratch
	p.mu.Lock()
	p.idle = append(p.idle, s)
	p.bytes += int64(C.rc_scratch_memory(s.native))
	for len(p.idle) > maxIdle || p.bytes > maxIdleBytes {
		out = append(out, p.idle[0])
		p.bytes -= int64(C.rc_scratch_memory(p.idle[0].native))
		p.idle = append(p.idle[:0], p.idle[1:]...)
	}
	p.mu.Unlock()
	for _, s := range out {
		C.rc_scratch_free(s.native)
	}
}
