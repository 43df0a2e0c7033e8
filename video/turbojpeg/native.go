//go:build cgo && linux

package turbojpeg

/*
#cgo CFLAGS: -O2
#cgo LDFLAGS: -L${SRCDIR}/../../.build/native/lib -L${SRCDIR}/absent -lrcjpeg
#cgo noescape rc_jpeg
#cgo nocallback rc_jpeg
#include <stddef.h>

// The function of scripts/native/jpeg.c. rc_jpeg_native is NULL if that is not linked.
typedef int (*rc_jpeg_func)(
	const unsigned char *in, size_t size, unsigned char *out,
	int width, int height, int channels, char *msg, size_t room);
extern rc_jpeg_func rc_jpeg_native;

typedef struct { int code; char msg[200]; } rc_jpeg_result;

static inline int rc_jpeg_present(void) { return rc_jpeg_native != NULL; }
static inline rc_jpeg_result rc_jpeg(
	const unsigned char *in, size_t size, unsigned char *out,
	int width, int height, int channels)
{
	rc_jpeg_result r;
	r.msg[0] = 0;
	r.code = rc_jpeg_native(in, size, out, width, height, channels, r.msg, sizeof r.msg);
	return r;
}
*/
import "C"

import (
	"unsafe"

	"github.com/goatnote-inc/robocache"
)

var hasNative = C.rc_jpeg_present() != 0

func isLinked() bool { return hasNative }

// decodeNative decodes with libjpeg-turbo. The caller has checked the sizes.
func decodeNative(dst, src []byte, width, height, channels int) error {
	if len(src) == 0 {
		return jpegError(robocache.ErrMalformed, "the image is empty")
	}
	r := C.rc_jpeg(
		(*C.uchar)(unsafe.SliceData(src)),
		C.size_t(len(src)),
		(*C.uchar)(unsafe.SliceData(dst)),
		C.int(width),
		C.int(height),
		C.int(channels),
	)
	if r.code == 0 {
		return nil
	}
	class := [...]error{
		1: robocache.ErrMalformed,
		2: robocache.ErrUnsupported,
		3: robocache.ErrResourceLimit,
	}[r.code]
	msg := r.msg // this copy escapes to the heap, instead of the result of every image
	return jpegError(class, C.GoString(&msg[0]))
}
