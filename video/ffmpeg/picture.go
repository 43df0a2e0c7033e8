//go:build cgo

package ffmpeg

/*
#include "shim.h"
*/
import "C"

import (
	"fmt"
	"unsafe"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/video"
)

// picture is the one that a decoder gave last.
type picture struct {
	d *decoder

	format  C.int // that name was made for
	name    string
	depth   robocache.Depth // that table was made for
	metres  bool            // and its unit
	table   *[4096]float32
	swscale bool // never the vector kernel: for tests that compare
}

func (p *picture) Size() (width, height int) {
	if p.d.rotation%180 != 0 {
		return int(p.d.seen.height), int(p.d.seen.width)
	}
	return int(p.d.seen.width), int(p.d.seen.height)
}

func (p *picture) PixelFormat() string {
	if p.name == "" || p.format != p.d.seen.format {
		p.name, p.format = C.GoString(p.d.seen.format_name), p.d.seen.format
	}
	return p.name
}

// size gives the result's size, or the reason why there is none.
func (p *picture) size(spec *video.Spec) (width, height int, err error) {
	width, height = p.Size()
	if spec.Width == 0 && spec.Height == 0 || spec.Width == width && spec.Height == height {
		return width, height, nil
	}
	if spec.Width <= 0 || spec.Height <= 0 || int64(spec.Width)*int64(spec.Height) > 256<<20 {
		return 0, 0, &robocache.Error{Class: robocache.ErrMisuse, Op: "convert a picture", Want: "a width and a height above 0, at most 256 Mpixel", Got: fmt.Sprintf("%d×%d", spec.Width, spec.Height)}
	}
	if spec.Pixel != video.RGB8 && spec.Pixel != video.RGBFloat32 {
		return 0, 0, &robocache.Error{Class: robocache.ErrUnsupported, Op: "convert a picture", Msg: "depth codes and raw planes are not scaled: a mean of codes is no depth", Hint: "ask for the stored size"}
	}
	return spec.Width, spec.Height, nil
}

func (p *picture) Bytes(spec *video.Spec) (int, error) {
	w, h, err := p.size(spec)
	if err != nil {
		return 0, err
	}
	n := w * h
	switch spec.Pixel {
	case video.RGB8:
		return 3 * n, nil
	case video.RGBFloat32:
		return 12 * n, nil
	case video.Gray16, video.DepthMM, video.DepthM:
		if p.d.seen.luma_bits == 0 {
			return 0, &robocache.Error{Class: robocache.ErrUnsupported, Op: "convert a picture", Msg: "pixel format " + p.PixelFormat() + " has no luma plane to read codes from"}
		}
		if spec.Pixel == video.Gray16 {
			return 2 * n, nil
		}
		if spec.Depth == nil {
			return 0, &robocache.Error{Class: robocache.ErrMisuse, Op: "convert a picture", Msg: "depth needs the stream's depth code"}
		}
		return 4 * n, nil
	case video.YUVPlanes:
		if p.d.seen.planes_bytes <= 0 {
			return 0, &robocache.Error{Class: robocache.ErrUnsupported, Op: "convert a picture", Msg: "pixel format " + p.PixelFormat() + " has no plain planes"}
		}
		return int(p.d.seen.planes_bytes), nil
	}
	return 0, &robocache.Error{Class: robocache.ErrMisuse, Op: "convert a picture", Msg: fmt.Sprintf("unknown pixel kind %d", spec.Pixel)}
}

func (p *picture) Convert(spec *video.Spec, dst []byte) error {
	if p.d.c == nil {
		return closed()
	}
	need, err := p.Bytes(spec)
	if err != nil {
		return err
	}
	if len(dst) != need {
		return &robocache.Error{Class: robocache.ErrMisuse, Op: "convert a picture", Want: fmt.Sprintf("a destination of %d bytes", need), Got: fmt.Sprint(len(dst))}
	}
	to := (*C.uint8_t)(unsafe.SliceData(dst))
	switch spec.Pixel {
	case video.Gray16:
		return check("copy depth codes", C.rc_luma(p.d.c, nil, to))
	case video.DepthMM, video.DepthM:
		table, err := p.distances(spec.Depth, spec.Pixel == video.DepthM)
		if err != nil {
			return err
		}
		return check("dequantise depth", C.rc_luma(p.d.c, (*C.float)(unsafe.Pointer(table)), to))
	case video.YUVPlanes:
		return check("copy planes", C.rc_planes(p.d.c, to, C.int(len(dst))))
	}
	w, h, err := p.size(spec)
	if err != nil {
		return err
	}
	if p.d.rotation%180 != 0 {
		w, h = h, w
	}
	element, chw, fast := C.int(C.RC_U8), C.int(0), C.int(1)
	if spec.Pixel == video.RGBFloat32 {
		element = C.RC_F32
	}
	if spec.ChannelsFirst {
		chw = 1
	}
	if p.swscale {
		fast = 0
	}
	return check("convert to RGB", C.rc_rgb(p.d.c, C.int(w), C.int(h), element, chw, fast, to))
}

// distances gives the table for a depth code; it is made once a decoder, code and unit.
func (p *picture) distances(depth *robocache.Depth, metres bool) (*[4096]float32, error) {
	if p.table == nil || p.depth != *depth || p.metres != metres {
		t, err := depthTable(depth, metres)
		if err != nil {
			return nil, err
		}
		p.table, p.depth, p.metres = t, *depth, metres
	}
	return p.table, nil
}
