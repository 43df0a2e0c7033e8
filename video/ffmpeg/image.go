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

// decodedFrame is the last frame of a decoder.
type decodedFrame struct {
	decoder *decoder

	format C.int // the format that name and storedFormat belong to
	name   string
	// number of the format in video.PlaneInfo; 0 if its planes cannot be stored
	storedFormat uint8
	swscale      bool // disables the vector kernels, for tests that compare
}

func (p *decodedFrame) Size() (width, height int) {
	if p.decoder.rotation%180 != 0 {
		return int(p.decoder.received.height), int(p.decoder.received.width)
	}
	return int(p.decoder.received.width), int(p.decoder.received.height)
}

func (p *decodedFrame) PixelFormat() string {
	if p.name == "" || p.format != p.decoder.received.format {
		p.name, p.format = C.GoString(p.decoder.received.format_name), p.decoder.received.format
		p.storedFormat = planeFormat(p.format)
	}
	return p.name
}

func (p *decodedFrame) frameShape() video.Shape {
	w, h := p.Size()
	return video.Shape{
		Width:       w,
		Height:      h,
		Format:      p.PixelFormat(),
		LumaBits:    int(p.decoder.received.luma_bits),
		PlanesBytes: int(p.decoder.received.planes_bytes),
	}
}

func (p *decodedFrame) Bytes(spec *video.Spec) (int, error) {
	s := p.frameShape()
	return s.Bytes(spec)
}

func (p *decodedFrame) Convert(spec *video.Spec, dst []byte) error {
	if p.decoder.native == nil {
		return closedError()
	}
	s := p.frameShape()
	if err := s.Check(spec, dst); err != nil {
		return err
	}
	to := (*C.uint8_t)(unsafe.SliceData(dst))
	if spec.Pixel == video.YUVPlanes {
		return checkResult("copy planes", C.rc_planes(p.decoder.native, to, C.int(len(dst))))
	}
	o, err := conversionArgsOf(&s, spec, p.decoder.rotation)
	if err != nil {
		return err
	}
	return checkResult(
		"convert a frame",
		C.rc_convert(
			p.decoder.native,
			nil,
			nil,
			nil,
			o.width,
			o.height,
			o.element,
			o.chw,
			boolToC(!p.swscale),
			o.table,
			to,
		),
	)
}

// conversionArgs holds the arguments of a conversion by the shim.
type conversionArgs struct {
	width, height C.int // before rotation
	element, chw  C.int
	table         *C.float // depth by code
}

// conversionArgsOf returns the arguments that convert a frame to spec.
func conversionArgsOf(
	s *video.Shape,
	spec *video.Spec,
	rotation int,
) (o conversionArgs, err error) {
	switch spec.Pixel {
	case video.DepthMM, video.DepthM:
		t, err := depthCache.tableFor(*spec.Depth, spec.Pixel == video.DepthM)
		return conversionArgs{element: C.RC_CODES, table: (*C.float)(unsafe.Pointer(t))}, err
	case video.Gray16:
		return conversionArgs{element: C.RC_CODES}, nil
	}
	w, h, err := s.Size(spec)
	if rotation%180 != 0 {
		w, h = h, w
	}
	return conversionArgs{
		width:   C.int(w),
		height:  C.int(h),
		element: boolToC(spec.Pixel == video.RGBFloat32),
		chw:     boolToC(spec.ChannelsFirst),
	}, err
}
