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
	_ video.PlanarFrame    = (*img)(nil)
	_ video.PlaneConverter = backend{}
	_ video.PixelMover     = backend{}
	_ video.Formulas       = backend{}
)

// planeFormats gives libavutil's numbers of video's formats; -1 where this build has none.
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

// planeFormat gives video's number of a format of libavutil; 0 where its planes are not kept.
func planeFormat(format C.int) uint8 {
	for i, id := range planeFormats() {
		if id == format && id >= 0 {
			return uint8(i)
		}
	}
	return 0
}

func (p *img) PlaneInfo() (video.PlaneInfo, bool) {
	p.PixelFormat() // finds kept
	seen := p.d.seen
	if p.kept == 0 || seen.matrix < 0 || seen.matrix > 255 {
		return video.PlaneInfo{}, false
	}
	// To halve the chroma of gbrp, swscale reads the byte behind a row of odd width: it is not part
	// of the frame.
	if p.name == "gbrp" && seen.width%2 != 0 {
		return video.PlaneInfo{}, false
	}
	return video.PlaneInfo{
		Width: int32(
			seen.width,
		),
		Height:    int32(seen.height),
		Format:    p.kept,
		Matrix:    uint8(seen.matrix),
		FullRange: seen.full_range != 0,
		Rotation:  int16(p.d.rotation),
	}, true
}

func (p *img) CopyPlanes(dst []byte) error {
	if p.d.c == nil {
		return closed()
	}
	info, ok := p.PlaneInfo()
	if !ok {
		return robocache.Unsupported("keep planes", nil, "planes of pixel format %s are not kept", p.PixelFormat()).
			WithHint("decode the frame again")
	}
	if n := info.Bytes(); len(dst) != n {
		return robocache.Misuse("keep planes", nil, "").
			Expected(fmt.Sprintf("a destination of %d bytes", n), fmt.Sprint(len(dst)))
	}
	l := layoutOf(&info)
	return check("keep planes", C.rc_keep(p.d.c, &l, (*C.uint8_t)(unsafe.SliceData(dst))))
}

// layoutOf is info in the shim's words.
func layoutOf(info *video.PlaneInfo) C.rc_layout {
	planes, n := info.Planes()
	l := C.rc_layout{
		width: C.int(
			info.Width,
		),
		height:     C.int(info.Height),
		format:     planeFormats()[info.Format],
		matrix:     C.int(info.Matrix),
		rotation:   C.int(info.Rotation),
		luma_bits:  C.int(info.LumaBits()),
		count:      C.int(n),
		full_range: cbool(info.FullRange),
	}
	for k := range n {
		l.stride[k], l.row_bytes[k], l.rows[k], l.offset[k] = C.int(
			planes[k].Stride,
		), C.int(
			planes[k].RowBytes,
		), C.int(
			planes[k].Rows,
		), C.int64_t(
			planes[k].Offset,
		)
	}
	return l
}

// ConvertPlanes is called by video.ConvertPlanes, which has checked info and the planes' length.
func (backend) ConvertPlanes(
	info video.PlaneInfo,
	planes []byte,
	spec *video.Spec,
	dst []byte,
) error {
	return convertPlanes(&info, planes, spec, dst, true)
}

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
		pack(info, planes, dst)
		return nil
	}
	l := layoutOf(info)
	if l.format < 0 {
		return check("convert kept planes", C.RC_ERR_FORMAT)
	}
	from, to := (*C.uint8_t)(unsafe.SliceData(planes)), (*C.uint8_t)(unsafe.SliceData(dst))
	o, err := outputOf(&shape, spec, int(info.Rotation))
	if err != nil {
		return err
	}
	s, err := scratches.get(scratchKey{*info, int32(o.width), int32(o.height)})
	if err != nil {
		return err
	}
	defer scratches.put(s)
	return check(
		"convert kept planes",
		C.rc_convert(
			nil,
			&l,
			from,
			s.c,
			o.width,
			o.height,
			o.element,
			o.chw,
			cbool(fast),
			o.table,
			to,
		),
	)
}

// Formula is called by video.FormulaOf.
func (backend) Formula(info *video.PlaneInfo, width, height int) (f video.Formula, ok bool) {
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
	for k := range f.Taps {
		n := int(c.size[k])
		f.Taps[k] = int(c.taps[k])
		f.Position[k] = slices.Clone(unsafe.Slice((*int32)(unsafe.Pointer(c.position[k])), n))
		f.Weight[k] = slices.Clone(
			unsafe.Slice((*int16)(unsafe.Pointer(c.coefficient[k])), n*f.Taps[k]),
		)
	}
	return f, true
}

// cbool is a truth in the shim's words.
func cbool(b bool) C.int {
	if b {
		return 1
	}
	return 0
}

// CopyPixels is called by video.CopyPixels with slices of one length.
func (backend) CopyPixels(dst, src []byte) {
	C.rc_copy(
		(*C.uint8_t)(unsafe.SliceData(dst)),
		(*C.uint8_t)(unsafe.SliceData(src)),
		C.size_t(len(src)),
	)
}

// SplitPixels is called by the video package, with slices that fit.
func (backend) SplitPixels(r, g, b, rgb []byte) {
	p := func(b []byte) *C.uint8_t { return (*C.uint8_t)(unsafe.SliceData(b)) }
	C.rc_split(p(rgb), C.size_t(len(r)), p(r), p(g), p(b))
}

// pack gives the planes without what pads them.
func pack(info *video.PlaneInfo, planes, dst []byte) {
	layout, n := info.Planes()
	for _, p := range layout[:n] {
		for y := range p.Rows {
			dst = dst[copy(dst, planes[p.Offset+y*p.Stride:][:p.RowBytes]):]
		}
	}
}

// scratch is the room of one conversion: a context of swscale and rows. It is taken by one
// goroutine.
type scratch struct {
	c   *C.rc_scratch
	key scratchKey
}

// scratchKey is what a context of swscale is made for.
type scratchKey struct {
	info          video.PlaneInfo
	width, height int32 // of the result
}

// scratches are those that nobody uses, the last used at the end: at most maxIdle, of at most
// maxIdleBytes. (A context is not counted: a few hundred kB.)
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

func (p *scratchPool) get(key scratchKey) (*scratch, error) {
	p.mu.Lock()
	at := len(p.idle) - 1 // the last used first: its rows are in the caches
	for at >= 0 && p.idle[at].key != key {
		at--
	}
	if at < 0 && len(p.idle) >= maxIdle/2 {
		at = 0 // the one that rested longest takes another shape
	}
	if at >= 0 {
		s := p.idle[at]
		p.idle = slices.Delete(p.idle, at, at+1)
		p.bytes -= int64(C.rc_scratch_memory(s.c))
		p.mu.Unlock()
		s.key = key
		return s, nil
	}
	p.mu.Unlock()
	c := C.rc_scratch_new()
	if c == nil {
		return nil, check("convert kept planes", C.RC_ERR_MEMORY)
	}
	return &scratch{c: c, key: key}, nil
}

func (p *scratchPool) put(s *scratch) {
	var out []*scratch
	p.mu.Lock()
	p.idle = append(p.idle, s)
	p.bytes += int64(C.rc_scratch_memory(s.c))
	for len(p.idle) > maxIdle || p.bytes > maxIdleBytes {
		out = append(out, p.idle[0])
		p.bytes -= int64(C.rc_scratch_memory(p.idle[0].c))
		p.idle = append(p.idle[:0], p.idle[1:]...)
	}
	p.mu.Unlock()
	for _, s := range out {
		C.rc_scratch_free(s.c)
	}
}
