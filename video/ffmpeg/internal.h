// What the C files of this folder share.
#ifndef ROBOCACHE_INTERNAL_H
#define ROBOCACHE_INTERNAL_H

#include <libavcodec/avcodec.h>
#include <libswscale/swscale.h>

#include "shim.h"

// The coefficients of swscale's 16-bit YUV → RGB arithmetic for one matrix and range.
typedef struct rc_coeff {
	int16_t y, y_offset, rv, gu, gv, bu;
} rc_coeff;

// A picture that is to be converted: a decoder's, or one of kept planes.
typedef struct rc_view {
	const uint8_t *data[4];
	int stride[4];
	int width, height, format; // as coded
	int matrix, full;
	int rotation, luma_bits;
} rc_view;

// What a conversion needs beside its source and destination; used by one thread at a time.
struct rc_scratch {
	struct SwsContext *sws;
	int sws_key[7]; // source width, height, format, matrix, range; target width, height

	uint8_t *rows; // converted pictures or row blocks
	size_t rows_size;
	uint8_t *turned; // a picture before rotation
	size_t turned_size;
};

struct rc_decoder {
	AVCodecContext *ctx;
	AVFrame *frame;
	AVPacket *packet;
	AVBufferRef *input; // padded copy of the packet in work
	rc_picture picture;
	int rotation;
	rc_scratch scratch;
};

int rc_grow(uint8_t **p, size_t *have, size_t need);
void rc_quiet(void);
int rc_full_range(const AVFrame *f);

// convert.c
int rc_view_rgb(const rc_view *v, rc_scratch *s, int width, int height, int element, int chw, int fast, uint8_t *dst);
int rc_view_luma(const rc_view *v, rc_scratch *s, const float *table, uint8_t *dst);
void rc_scratch_clear(rc_scratch *s);

// planar.c
void rc_yuv420_planar(const uint8_t *y, int ys, const uint8_t *u, int us, const uint8_t *v, int vs, int width, int rows,
	const rc_coeff *c, uint8_t *r, uint8_t *g, uint8_t *b, ptrdiff_t stride);
void rc_deinterleave(const uint8_t *rgb, int width, uint8_t *r, uint8_t *g, uint8_t *b);
void rc_unit_floats(const uint8_t *src, float *dst, size_t n);
void rc_rotate(const uint8_t *src, uint8_t *dst, int width, int height, int element, int degrees);

#endif
