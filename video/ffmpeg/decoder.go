//go:build cgo

package ffmpeg

/*
#include "shim.h"
*/
import "C"

import (
	"runtime"
	"unsafe"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/video"
)

// decoder is one AVCodecContext on one thread.
type decoder struct {
	c        *C.rc_decoder
	seen     *C.rc_frame // what rc_receive gave last; C memory
	codec    video.Codec
	rotation int
	skips    bool
	pic      img
}

func (d *decoder) Send(packet []byte, pts int64) error { return d.send(packet, pts, 0) }

// SendUnwanted sends a packet whose frame is not wanted: where nothing can refer to it, its
// decoding is saved.
func (d *decoder) SendUnwanted(packet []byte, pts int64) error {
	return d.send(packet, pts, cbool(d.skips))
}

func (d *decoder) send(packet []byte, pts int64, skip C.int) error {
	if d.c == nil {
		return closed()
	}
	if len(packet) == 0 {
		return check("send a packet", C.RC_ERR_SIZE)
	}
	return check(
		"send a packet",
		C.rc_send(
			d.c,
			(*C.uint8_t)(unsafe.SliceData(packet)),
			C.int(min(len(packet), 1<<31-1)),
			C.int64_t(pts),
			skip,
		),
	)
}

func (d *decoder) Receive() (video.Frame, int64, bool, error) {
	if d.c == nil {
		return nil, 0, false, closed()
	}
	code := C.rc_receive(d.c)
	if code != C.RC_FRAME {
		return nil, 0, false, check("receive a frame", code)
	}
	return &d.pic, int64(d.seen.pts), true, nil
}

func (d *decoder) Drain() error {
	if d.c == nil {
		return closed()
	}
	return check("drain the decoder", C.rc_drain(d.c))
}

func (d *decoder) Flush() {
	if d.c != nil {
		C.rc_flush(d.c)
	}
}

// Reorder tells H.264 how far frames are reordered: streams without that field in their headers
// come out wrong at the start otherwise.
func (d *decoder) Reorder(images int) {
	if d.c != nil && d.codec == video.H264 {
		C.rc_reorder(d.c, C.int(images))
	}
}

func (d *decoder) MemoryBytes() int64 {
	if d.c == nil {
		return 0
	}
	return int64(C.rc_memory(d.c))
}

func (d *decoder) Close() {
	if d.c != nil {
		C.rc_close(d.c)
		d.c, d.seen = nil, nil
		runtime.KeepAlive(d)
	}
}

func closed() error {
	return robocache.Misuse("decode video", nil, "the decoder is closed")
}
