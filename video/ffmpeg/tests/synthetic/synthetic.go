//go:build cgo

// Package synthetic creates decoders of the shim that hold a frame of random bytes, for tests of
// package ffmpeg. It is a package because test files cannot use cgo.
package synthetic

/*
#cgo CFLAGS: -I${SRCDIR}/../.. -I${SRCDIR}/../../../../.build/native/include
#cgo LDFLAGS: -L${SRCDIR}/../../../../.build/native/lib -lavutil -lm -lpthread
#include <stdlib.h>
#include <libavutil/imgutils.h>
#include <libavutil/pixdesc.h>
#include "internal.h"

// make returns a decoder with a frame of random bytes.
static rc_decoder *make(int width, int height, const char *format, int matrix, int full_range, uint32_t seed)
{
	rc_decoder *d = calloc(1, sizeof(*d));
	const AVPixFmtDescriptor *desc;

	if (!d || !(d->frame = av_frame_alloc()))
		return NULL;
	d->frame->width = width;
	d->frame->height = height;
	d->frame->format = av_get_pix_fmt(format);
	d->frame->colorspace = matrix;
	d->frame->color_range = full_range ? AVCOL_RANGE_JPEG : AVCOL_RANGE_MPEG;
	if (av_frame_get_buffer(d->frame, 64) < 0)
		return NULL;
	for (int i = 0; i < AV_NUM_DATA_POINTERS && d->frame->buf[i]; i++)
		for (size_t k = 0; k < (size_t)d->frame->buf[i]->size; k++) {
			seed = seed * 1664525u + 1013904223u;
			d->frame->buf[i]->data[k] = seed >> 24;
		}
	desc = av_pix_fmt_desc_get(d->frame->format);
	// Clear the bits above a sample's depth. No decoder sets them, and swscale's vector code and
	// plain code treat them differently.
	for (int i = 0; desc->comp[0].depth > 8 && i < AV_NUM_DATA_POINTERS && d->frame->buf[i]; i++)
		for (size_t k = 0; k + 1 < (size_t)d->frame->buf[i]->size; k += 2)
			d->frame->buf[i]->data[k + 1] &= (1 << (desc->comp[0].depth - 8)) - 1;
	d->img.width = width;
	d->img.height = height;
	d->img.format = d->frame->format;
	d->img.format_name = desc->name;
	d->img.luma_bits = desc->flags & AV_PIX_FMT_FLAG_RGB ? 0 : desc->comp[0].depth;
	d->img.matrix = matrix;
	d->img.full_range = full_range || desc->name[3] == 'j';
	d->img.planes_bytes = av_image_get_buffer_size(d->frame->format, width, height, 1);
	return d;
}

static void stretch(rc_decoder *d)
{
	for (int i = 0; i < AV_NUM_DATA_POINTERS && d->frame->buf[i]; i++)
		for (size_t k = 0; k < (size_t)d->frame->buf[i]->size; k++) {
			uint8_t *p = d->frame->buf[i]->data + k;

			*p = k / 48 % 3 ? (k / 48 % 3 == 1 ? 0 : 255) ^ (*p > 250) : *p;
		}
}

static void *frame_of(rc_decoder *d) { return &d->img; }
static void rotate(rc_decoder *d, int degrees) { d->rotation = degrees; }
static int has_scaler(rc_decoder *d) { return d->scratch.scaler != NULL; }
*/
import "C"

import "unsafe"

// New returns a decoder of the shim with a frame of random bytes, and the description of the frame.
func New(
	width, height int,
	format string,
	matrix int,
	fullRange bool,
	seed uint32,
) (decoder, frame unsafe.Pointer) {
	name := C.CString(format)
	defer C.free(unsafe.Pointer(name))
	full := C.int(0)
	if fullRange {
		full = 1
	}
	d := C.make(C.int(width), C.int(height), name, C.int(matrix), full, C.uint32_t(seed))
	if d == nil {
		panic("out of memory")
	}
	return unsafe.Pointer(d), C.frame_of(d)
}

// Rotate sets the rotation of a decoder.
func Rotate(d unsafe.Pointer, degrees int) { C.rotate((*C.rc_decoder)(d), C.int(degrees)) }

// Stretch replaces most bytes of the frame by 0 or 255, so that sums reach their limits.
func Stretch(d unsafe.Pointer) { C.stretch((*C.rc_decoder)(d)) }

// HasScaler reports whether the last scaled conversion used this package's scaler.
func HasScaler(d unsafe.Pointer) bool { return C.has_scaler((*C.rc_decoder)(d)) != 0 }
