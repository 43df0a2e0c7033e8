//go:build cgo

package ffmpeg

/*
#cgo CFLAGS: -I${SRCDIR}/../../.build/native/include -O3
#cgo LDFLAGS: -L${SRCDIR}/../../.build/native/lib -lavcodec -lswscale -lavutil -lm -lpthread
#cgo noescape rc_send
#cgo nocallback rc_send
#cgo noescape rc_receive
#cgo nocallback rc_receive
#cgo noescape rc_convert
#cgo nocallback rc_convert
#cgo noescape rc_planes
#cgo nocallback rc_planes
#cgo noescape rc_copy
#cgo nocallback rc_copy
#cgo noescape rc_split
#cgo nocallback rc_split
#cgo noescape rc_keep
#cgo nocallback rc_keep
#include <stdlib.h>
#include "shim.h"
*/
import "C"

import (
	"fmt"
	"syscall"
	"unsafe"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/video"
)

func init() { video.RegisterBackend(backend{}) }

type backend struct{}

// names are libavcodec's. AV1 by name: its native decoder needs hardware, and would be found first.
var names = map[video.Codec]string{
	video.AV1:   "libdav1d",
	video.H264:  "h264",
	video.HEVC:  "hevc",
	video.MPEG4: "mpeg4",
	video.VP9:   "vp9",
	video.MJPEG: "mjpeg",
}

func (backend) Name() string { return "ffmpeg" }

func (backend) Version() string { return C.GoString(C.rc_version()) }

func (backend) Supports(codec video.Codec) error {
	name, ok := names[codec]
	if !ok {
		return robocache.Unsupported("decode video", robocache.Where{"codec": string(codec)}, "no decoder for this codec").
			Expected("av1, h264, hevc, mpeg4, vp9 or mjpeg", fmt.Sprintf("%q", string(codec))).
			WithHint("re-encode the video, for instance with 'ffmpeg -i in.mp4 -c:v libx264 out.mp4'")
	}
	c := C.CString(name)
	defer C.free(unsafe.Pointer(c))
	if C.rc_has_decoder(c) == 0 {
		return robocache.Unsupported("decode video", robocache.Where{"codec": string(codec)}, "this build's libavcodec has no %s", name).
			WithHint("build with the libraries of 'make native'")
	}
	return nil
}

// maxPixels bounds a frame that a stream declares larger than its sample entry: room for streams
// that change size, none for bombs.
func maxPixels(e *video.SampleEntry) int64 {
	return min(max(4*int64(e.Width)*int64(e.Height), 16<<20), 256<<20)
}

func (b backend) NewDecoder(e *video.SampleEntry) (video.Decoder, error) {
	if err := b.Supports(e.Codec); err != nil {
		return nil, err
	}
	if e.Width < 0 || e.Height < 0 || int64(e.Width)*int64(e.Height) > 256<<20 {
		return nil, robocache.ResourceLimit("decode video", nil, "").
			Expected("at most 256 Mpixel", fmt.Sprintf("%d×%d", e.Width, e.Height))
	}
	switch e.Rotation {
	case 0, 90, 180, 270:
	default:
		return nil, robocache.Unsupported("decode video", nil, "").
			Expected("a rotation of 0, 90, 180 or 270 degrees", fmt.Sprint(e.Rotation))
	}
	cfg := (*C.rc_config)(C.calloc(1, C.sizeof_rc_config))
	defer C.free(unsafe.Pointer(cfg))
	cfg.codec = C.CString(names[e.Codec])
	defer C.free(unsafe.Pointer(cfg.codec))
	if len(e.Extradata) > 0 {
		p := C.CBytes(e.Extradata)
		defer C.free(p)
		cfg.extradata, cfg.extradata_size = (*C.uint8_t)(p), C.int(len(e.Extradata))
	}
	cfg.width, cfg.height = C.int(e.Width), C.int(e.Height)
	cfg.primaries, cfg.transfer, cfg.matrix = unspecified(
		e.Primaries,
	), unspecified(
		e.Transfer,
	), unspecified(
		e.Matrix,
	)
	cfg.full_range, cfg.rotation = cbool(e.FullRange), C.int(e.Rotation)
	cfg.max_pixels = C.int64_t(maxPixels(e))
	d := &decoder{codec: e.Codec, rotation: e.Rotation, skips: skips(e)}
	if err := check("open the decoder", C.rc_open(cfg, &d.c)); err != nil {
		return nil, err
	}
	d.pic.d = d
	d.seen = C.rc_frame_of(d.c)
	return d, nil
}

// unspecified maps a sample entry without colr, 0 in all three, to the code for "unspecified".
// Matrix 0 is RGB, which no YUV stream has.
func unspecified(v int) C.int {
	if v <= 0 || v > 255 {
		return 2
	}
	return C.int(v)
}

// skips says whether a packet that nothing refers to is known from itself. HEVC's non-reference
// frames may be references of a higher temporal layer.
func skips(e *video.SampleEntry) bool {
	switch e.Codec {
	case video.H264, video.MPEG4:
		return true
	case video.HEVC:
		return len(e.Extradata) > 21 && e.Extradata[0] == 1 && e.Extradata[21]>>3&7 == 1
	}
	return false
}

// check returns the error of a code of the shim, which may be one of libavcodec.
func check(op string, code C.int) error { return errorOf(op, int(code)) }

func errorOf(op string, code int) error {
	if code >= 0 {
		return nil
	}
	switch code {
	case C.RC_ERR_NO_DECODER:
		return robocache.Unsupported(op, nil, "libavcodec has no such decoder")
	case C.RC_ERR_MEMORY, -int(syscall.ENOMEM):
		return robocache.ResourceLimit(op, nil, "no memory for a decoder or an encoder").
			WithCause(syscall.ENOMEM).
			WithHint("Raise the limit of the process (ulimit -v), or use fewer threads.")
	case C.RC_ERR_TOO_LARGE:
		return robocache.ResourceLimit(op, nil, "the frame is larger than the sample entry allows")
	case C.RC_ERR_FORMAT:
		return robocache.Unsupported(op, nil, "the pixel format cannot be converted")
	case C.RC_ERR_SIZE:
		return robocache.Malformed(op, nil, "the packet is empty or too large")
	}
	var text [128]C.char
	C.rc_error_text(C.int(code), &text[0], C.int(len(text)))
	return robocache.Malformed(op, nil, "libavcodec: %s", C.GoString(&text[0]))
}
