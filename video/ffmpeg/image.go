//go:build cgo

package ffmpeg

/*
#include "shim.h"
*/
import "C"

import (
	"unsafe"

	"github.com/goatnote-inc/robocache/video"
)

// frame is the one that a decoder gave last.
type img struct {
	d *decoder

	format  C.int // that name and kept were made for
	name    string
	kept    uint8 // the format's number in video.PlaneInfo; 0 where its planes are not kept
	swscale bool  // never the vector kernel: for tests that compare
}

func (p *img) Size() (width, height int) {
	if p.d.rotation%180 != 0 {
		return int(p.d.seen.height), int(p.d.seen.width)
	}
	return int(p.d.seen.width), int(p.d.seen.height)
}

func (p *img) PixelFormat() string {
	if p.name == "" || p.format != p.d.seen.format {
		p.name, p.format = C.GoString(p.d.seen.format_name), p.d.seen.format
		p.kept = planeFormat(p.format)
	}
	return p.name
}

func (p *img) shape() video.Shape {
	w, h := p.Size()
	return video.Shape{
		Width:       w,
		Height:      h,
		Format:      p.PixelFormat(),
		LumaBits:    int(p.d.seen.luma_bits),
		PlanesBytes: int(p.d.seen.planes_bytes),
	}
}

func (p *img) Bytes(spec *video.Spec) (int, error) {
	s := p.shape()
	return s.Bytes(spec)
}

func (p *img) Convert(spec *video.Spec, dst []byte) error {
	if p.d.c == nil {
		return closed()
	}
	s := p.shape()
	if err := s.Check(spec, dst); err != nil {
		return err
	}
	to := (*C.uint8_t)(unsafe.SliceData(dst))
	if spec.Pixel == video.YUVPlanes {
		return check("copy planes", C.rc_planes(p.d.c, to, C.int(len(dst))))
	}
	o, err := outputOf(&s, spec, p.d.rotation)
	if err != nil {
		return err
	}
	return check(
		"convert a frame",
		C.rc_convert(
			p.d.c,
			nil,
			nil,
			nil,
			o.width,
			o.height,
			o.element,
			o.chw,
			cbool(!p.swscale),
			o.table,
			to,
		),
	)
}

// output is what the shim is asked for.
type output struct {
	width, height C.int // before rotation
	element, chw  C.int
	table         *C.float // of depth
}

func outputOf(s *video.Shape, spec *video.Spec, rotation int) (o output, err error) {
	switch spec.Pixel {
	case video.DepthMM, video.DepthM:
		t, err := tables.get(*spec.Depth, spec.Pixel == video.DepthM)
		return output{element: C.RC_CODES, table: (*C.float)(unsafe.Pointer(t))}, err
	case video.Gray16:
		return output{element: C.RC_CODES}, nil
	}
	w, h, err := s.Size(spec)
	if rotation%180 != 0 {
		w, h = h, w
	}
	return output{
		width:   C.int(w),
		height:  C.int(h),
		element: cbool(spec.Pixel == video.RGBFloat32),
		chw:     cbool(spec.ChannelsFirst),
	}, err
}
