//go:build cgo

package ffmpeg

/*
#include "shim.h"
*/
import "C"

import (
	"math"
	"runtime"
	"unsafe"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/video"
)

// decoder is one AVCodecContext. It is used by one thread at a time.
type decoder struct {
	native   *C.rc_decoder
	received *C.rc_frame // the frame of the last rc_receive; C memory
	codec    video.Codec
	rotation int
	canSkip  bool
	frame    decodedFrame
}

func (d *decoder) Send(packet []byte, pts int64) error { return d.sendPacket(packet, pts, 0) }

// SendUnwanted sends a packet whose frame the caller does not need. The decoder skips the frame if
// no other frame can refer to it.
func (d *decoder) SendUnwanted(packet []byte, pts int64) error {
	return d.sendPacket(packet, pts, boolToC(d.canSkip))
}

func (d *decoder) sendPacket(packet []byte, pts int64, skip C.int) error {
	if d.native == nil {
		return closedError()
	}
	if len(packet) == 0 {
		return checkResult("send a packet", C.RC_ERR_SIZE)
	}
	// The limit keeps a larger size from wrapping around. rc_send rejects it, like any size near
	// it.
	size := min(len(packet), math.MaxInt32)
	return checkResult(
		"send a packet",
		C.rc_send(
			d.native,
			(*C.uint8_t)(unsafe.SliceData(packet)),
			C.int(size),
			C.int64_t(pts),
			skip,
		),
	)
}

func (d *decoder) Receive() (video.Frame, int64, bool, error) {
	if d.native == nil {
		return nil, 0, false, closedError()
	}
	code := C.rc_receive(d.native)
	if code != C.RC_FRAME {
		return nil, 0, false, checkResult("receive a frame", code)
	}
	return &d.frame, int64(d.received.pts), true, nil
}

func (d *decoder) Drain() error {
	if d.native == nil {
		return closedError()
	}
	return checkResult("drain the decoder", C.rc_drain(d.native))
}

func (d *decoder) Flush() {
	if d.native != nil {
		C.rc_flush(d.native)
	}
}

// Reorder sets the reorder depth of an H.264 decoder. Without it, streams whose headers lack that
// field deliver their first frames in the wrong order.
func (d *decoder) Reorder(depth int) {
	if d.native != nil && d.codec == video.H264 {
		C.rc_reorder(d.native, C.int(depth))
	}
}

func (d *decoder) MemoryBytes() int64 {
	if d.native == nil {
		return 0
	}
	return int64(C.rc_memory(d.native))
}

func (d *decoder) Close() {
	if d.native != nil {
		C.rc_close(d.native)
		d.native, d.received = nil, nil
		runtime.KeepAlive(d)
	}
}

func closedError() error {
	return robocache.Misuse("decode video", nil, "the decoder is closed")
}
