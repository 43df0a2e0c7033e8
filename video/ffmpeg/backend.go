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

func init() { video.RegisterBackend(ffmpegBackend{}) }

type ffmpegBackend struct{}

// decoderNames maps codecs to libavcodec's decoders. AV1 needs libdav1d explicitly: libavcodec's
// own decoder needs hardware, and would be found first.
var decoderNames = map[video.Codec]string{
	video.AV1:   "libdav1d",
	video.H264:  "h264",
	video.HEVC:  "hevc",
	video.MPEG4: "mpeg4",
	video.VP9:   "vp9",
	video.MJPEG: "mjpeg",
}

func (ffmpegBackend) Name() string { return "ffmpeg" }

func (ffmpegBackend) Version() string { return C.GoString(C.rc_version()) }

func (ffmpegBackend) Supports(codec video.Codec) error {
	name, ok := decoderNames[codec]
	if !ok {
		return robocache.Unsupported(
			"decode video",
			robocache.Where{"codec": string(codec)},
			"no decoder for this codec",
		).
			Expected("av1, h264, hevc, mpeg4, vp9 or mjpeg", fmt.Sprintf("%q", string(codec))).
			WithHint(
				"re-encode the video, for instance with 'ffmpeg -i in.mp4 -c:v libx264 out.mp4'",
			)
	}
	c := C.CString(name)
	defer C.free(unsafe.Pointer(c))
	if C.rc_has_decoder(c) == 0 {
		return robocache.Unsupported(
			"decode video",
			robocache.Where{"codec": string(codec)},
			"this build's libavcodec has no %s",
			name,
		).
			WithHint("build with the libraries of 'make native'")
	}
	return nil
}

// maxPixels returns the maximum size of the frames of a stream. It may exceed the size in the
// sample entry, for streams that change their size, but not by much, as protection against huge
// frames.
func maxPixels(e *video.SampleEntry) int64 {
	return min(max(4*int64(e.Width)*int64(e.Height), 16<<20), 256<<20)
}

func (b ffmpegBackend) NewDecoder(e *video.SampleEntry) (video.Decoder, error) {
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
	cfg.codec = C.CString(decoderNames[e.Codec])
	defer C.free(unsafe.Pointer(cfg.codec))
	if len(e.Extradata) > 0 {
		p := C.CBytes(e.Extradata)
		defer C.free(p)
		cfg.extradata, cfg.extradata_size = (*C.uint8_t)(p), C.int(len(e.Extradata))
	}
	cfg.width, cfg.height = C.int(e.Width), C.int(e.Height)
	cfg.primaries = orUnspecified(e.Primaries)
	cfg.transfer = orUnspecified(e.Transfer)
	cfg.matrix = orUnspecified(e.Matrix)
	cfg.full_range, cfg.rotation = boolToC(e.FullRange), C.int(e.Rotation)
	cfg.max_pixels = C.int64_t(maxPixels(e))
	d := &decoder{codec: e.Codec, rotation: e.Rotation, canSkip: canSkip(e)}
	if err := checkResult("open the decoder", C.rc_open(cfg, &d.native)); err != nil {
		return nil, err
	}
	d.frame.decoder = d
	d.received = C.rc_frame_of(d.native)
	return d, nil
}

// orUnspecified returns v, or the code for "unspecified" if v is out of range or 0. A sample entry
// without colr has 0 in all three fields. Matrix 0 is RGB, which no YUV stream has.
func orUnspecified(v int) C.int {
	if v <= 0 || v > 255 {
		return 2
	}
	return C.int(v)
}

// canSkip reports whether the packets of a stream show which frames no other frame refers to. A
// decoder can skip these. In HEVC this holds only with one temporal layer, because a non-reference
// frame may be a reference of a higher layer.
func canSkip(e *video.SampleEntry) bool {
	switch e.Codec {
	case video.H264, video.MPEG4:
		return true
	case video.HEVC:
		if len(e.Extradata) <= 21 || e.Extradata[0] != 1 { // not an hvcC box of version 1
			return false
		}
		temporalLayers := e.Extradata[21] >> 3 & 7
		return temporalLayers == 1
	}
	return false
}

// checkResult converts a result code of the shim, which may be a code of libavcodec, to an error.
func checkResult(op string, code C.int) error { return resultError(op, int(code)) }

// resultError returns the error for a result code, or nil.
func resultError(op string, code int) error {
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
