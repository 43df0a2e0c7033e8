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

struct rc_decoder {
	AVCodecContext *ctx;
	AVFrame *frame;
	AVPacket *packet;
	AVBufferRef *input; // padded copy of the packet in work
	rc_picture picture;
	int rotation;

	struct SwsContext *sws;
	int sws_key[7]; // source width, height, format, matrix, range; target width, height

	uint8_t *rows; // converted pictures or row blocks
	size_t rows_size;
	uint8_t *turned; // a picture before rotation
	size_t turned_size;
};

int rc_grow(uint8_t **p, size_t *have, size_t need);

// planar.c
void rc_yuv420_planar(const uint8_t *y, int ys, const uint8_t *u, int us, const uint8_t *v, int vs, int width, int rows,
	const rc_coeff *c, uint8_t *r, uint8_t *g, uint8_t *b, ptrdiff_t stride);
void rc_deinterleave(const uint8_t *rgb, int width, uint8_t *r, uint8_t *g, uint8_t *b);
void rc_unit_floats(const uint8_t *src, float *dst, size_t n);
void rc_rotate(const uint8_t *src, uint8_t *dst, int width, int height, int element, int degrees);

#endif
