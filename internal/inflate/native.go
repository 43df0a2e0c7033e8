//go:build cgo && linux

package inflate

/*
#cgo CFLAGS: -O2
#cgo LDFLAGS: -L${SRCDIR}/../../.build/native/lib -L${SRCDIR}/absent -lrcdeflate
#cgo noescape rc_inflate
#cgo nocallback rc_inflate
#include <stddef.h>

// Declaration of the function in scripts/native/deflate.c, if it is linked.
typedef int (*rc_inflate_func)(
	int kind, const void *in, size_t in_size,
	void *out, size_t room, size_t *read, size_t *written);
extern rc_inflate_func rc_inflate_native;

typedef struct { size_t read, written; int code; } rc_inflated;

static inline int rc_inflate_present(void) { return rc_inflate_native != NULL; }
static inline rc_inflated rc_inflate(
	int kind, const void *in, size_t in_size,
	void *out, size_t room) {
	rc_inflated r = {0, 0, 3};
	r.code = rc_inflate_native(kind, in, in_size, out, room, &r.read, &r.written);
	return r;
}
*/
import "C"

import (
	"unsafe"

	"github.com/goatnote-inc/robocache"
)

var nativeLinked = C.rc_inflate_present() != 0

// Native reports whether libdeflate is linked.
func Native() bool { return nativeLinked }

func inflateStream(kind Kind, dst, src []byte) (written, read int, err error) {
	if !nativeLinked {
		return inflatePure(kind, dst, src)
	}
	if len(src) == 0 {
		return 0, 0, errDamaged
	}
	r := C.rc_inflate(
		C.int(kind),
		unsafe.Pointer(unsafe.SliceData(src)),
		C.size_t(len(src)),
		unsafe.Pointer(unsafe.SliceData(dst)),
		C.size_t(len(dst)),
	)
	switch r.code {
	case 0:
		return int(r.written), int(r.read), nil
	case 1:
		return 0, 0, errDamaged
	case 2:
		return 0, 0, ErrRoom
	}
	return 0, 0, robocache.ResourceLimit("inflate", nil, "no memory for a decompressor")
}
