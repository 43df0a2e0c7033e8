//go:build cgo && linux

package unzstd

/*
#cgo CFLAGS: -O2
#cgo LDFLAGS: -L${SRCDIR}/../../.build/native/lib -L${SRCDIR}/absent -lrczstd
#cgo noescape rc_unzstd
#cgo nocallback rc_unzstd
#include <stddef.h>
#include <stdint.h>

// Declaration of the function in scripts/native/zstd.c, if it is linked.
typedef int (*rc_unzstd_func)(
	const void *in, size_t in_size,
	void *out, size_t room, size_t need, int sums, size_t *written);
extern rc_unzstd_func rc_unzstd_native;

typedef struct { size_t written; int code; } rc_unzstded;

static inline int rc_unzstd_present(void) { return rc_unzstd_native != NULL; }
static inline rc_unzstded rc_unzstd(
	const void *in, size_t in_size,
	void *out, size_t room, size_t need, int sums) {
	rc_unzstded r = {0, 3};
	r.code = rc_unzstd_native(in, in_size, out, room, need, sums, &r.written);
	return r;
}
*/
import "C"

import (
	"unsafe"

	"github.com/goatnote-inc/robocache"
)

var nativeLinked = C.rc_unzstd_present() != 0

// Native reports whether libzstd is linked.
func Native() bool { return nativeLinked }

func unzstdFrames(dst, src []byte, need int, sums Sums) (int, error) {
	if !nativeLinked {
		return unzstdPure(dst, src, need, sums)
	}
	if len(src) == 0 {
		return 0, nil
	}
	want, verify := C.size_t(need), C.int(0)
	if need == needAll {
		want = C.SIZE_MAX
	}
	if sums == Verify {
		verify = 1
	}
	r := C.rc_unzstd(
		unsafe.Pointer(unsafe.SliceData(src)),
		C.size_t(len(src)),
		unsafe.Pointer(unsafe.SliceData(dst)),
		C.size_t(len(dst)),
		want,
		verify,
	)
	switch r.code {
	case 0:
		return int(r.written), nil
	case 1:
		return int(r.written), errDamaged
	case 2:
		return int(r.written), ErrRoom
	}
	return 0, robocache.ResourceLimit("zstd", nil, "no memory for a decompressor")
}
