//go:build cgo

package ffmpeg

/*
#include <stdlib.h>
#include "shim.h"
*/
import "C"

import "unsafe"

// synthetic is a frame of random bytes, for tests (cgo cannot stand in test files).
func synthetic(width, height int, format string, matrix int, fullRange bool, seed uint32) *decoder {
	name := C.CString(format)
	defer C.free(unsafe.Pointer(name))
	full := C.int(0)
	if fullRange {
		full = 1
	}
	d := &decoder{c: C.rc_synthetic(C.int(width), C.int(height), name, C.int(matrix), full, C.uint32_t(seed))}
	if d.c == nil {
		panic("out of memory")
	}
	d.pic.d = d
	d.seen = C.rc_frame_of(d.c)
	return d
}

func setRotation(d *decoder, degrees int) { C.rc_set_rotation(d.c, C.int(degrees)) }

// stretch makes blacks and whites of most of the frame's bytes, so that limits are met.
func stretch(d *decoder) { C.rc_stretch(d.c) }

// hasScaler says whether the last scaled conversion went through our own scaler.
func hasScaler(d *decoder) bool { return C.rc_has_scaler(d.c) != 0 }
