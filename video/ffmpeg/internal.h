// Declarations that the C files of this folder share.
#ifndef ROBOCACHE_INTERNAL_H
#define ROBOCACHE_INTERNAL_H

#include <libavcodec/avcodec.h>
#include <libswscale/swscale.h>

#include "shim.h"

// The coefficients of swscale's 16-bit YUV → RGB arithmetic for one matrix and range.
typedef struct rc_coeff {
	int16_t y, y_offset, rv, gu, gv, bu;
} rc_coeff;

// A frame to convert: of a decoder, or of stored planes.
typedef struct rc_view {
	const uint8_t *data[4];
	int stride[4];
	int width, height, format; // coded size
	int matrix, full;
	int rotation, luma_bits;
} rc_view;

// Working memory of a conversion. It is used by one thread at a time.
struct rc_scratch {
	struct SwsContext *sws;
	int sws_key[7]; // source width, height, format, matrix, range; target width, height

	struct rc_scaler *scaler; // NULL if swscale scales
	int scaler_key[7];

	uint8_t *rows; // converted frames
	size_t rows_size;
	uint8_t *turned; // a frame before rotation
	size_t turned_size;
};

struct rc_decoder {
	AVCodecContext *ctx;
	AVFrame *frame;
	AVPacket *packet;
	AVBufferRef *input; // padded copy of the current packet
	rc_frame img;
	int rotation;
	// a frame could not be allocated; libavcodec reports an invalid packet in that case
	int lacks_memory;
	rc_scratch scratch;
};

// Each file calls only those after it in this list: shim.c (decoders, and the functions that Go
// calls), convert.c, scale.c, taps.c, sink.c, planar.c, stream.c.

// convert.c: converts a view to RGB or codes.
void rc_scratch_clear(rc_scratch *s);

// swscale's numbers of a matrix and range, as fixed point with 16 fractional bits, for neutral
// brightness, contrast and saturation.
typedef struct rc_matrix {
	union {
		struct {
			int64_t rv, bu, gu, gv;
		};
		int64_t chroma[4];
	};
	int64_t y, offset;
} rc_matrix;

rc_matrix rc_matrix_of(int matrix, int full);

// planar.c: converts rows of pixels from layout to layout.
//
// rc_yuv420_rows converts one or two rows that share a row of chroma of half the width. r + stride
// is the second result row. ahead is the distance in bytes to the luma rows to prefetch; 0: none.
void rc_yuv420_rows(
	const uint8_t *y, int ys, const uint8_t *u, const uint8_t *v, int width, int rows,
	const rc_coeff *c, int ahead, uint8_t *r, uint8_t *g, uint8_t *b, ptrdiff_t stride);
void rc_interleave(const uint8_t *r, const uint8_t *g, const uint8_t *b, size_t n, uint8_t *rgb);
void rc_unit_floats(const uint8_t *src, float *dst, size_t n);
// table has 4096 entries; larger codes use the last one.
void rc_look_up(const uint16_t *codes, const float *table, int n, float *dst);
void rc_rotate(const uint8_t *src, uint8_t *dst, int width, int height, int element, int degrees);

// stream.c: writes that bypass the caches.
enum {
	LINE = 64,
	COPY_FROM = 64 << 10,    // minimum size of a copy that does (video.streamFrom)
	STREAM_FROM = 128 << 10, // minimum size in bytes of a result that bypasses the caches
	MAX_ROW = 8192,          // the widest frame of the kernels
};

typedef struct rc_lane {
	uint8_t *dst; // destination of stage[0], at the beginning of a cache line
	size_t fill;
	size_t skip; // bytes of the first line that belong to other data
	uint8_t stage[2 * MAX_ROW + 2 * LINE] __attribute__((aligned(64)));
} rc_lane;

int rc_can_stream(void);
void rc_fence(void);
void rc_prefetch(const uint8_t *p, size_t n);
void rc_lane_open(rc_lane *l, uint8_t *dst);
// adds n bytes that were written at stage + fill
void rc_lane_commit(rc_lane *l, size_t n);
// the caller must call rc_fence after closing the last lane
void rc_lane_close(rc_lane *l);

// sink.c: writes rows of R, G and B in the requested layout.
typedef struct rc_sink {
	uint8_t *dst;
	size_t plane, at; // in pixels
	int element, chw, stream;
	uint8_t rows[3][2 * MAX_ROW + LINE];
	rc_lane lane[3];
} rc_sink;

void rc_sink_open(rc_sink *s, uint8_t *dst, size_t pixels, int element, int chw);
// returns memory for up to 2 * MAX_ROW pixels
void rc_sink_room(rc_sink *s, uint8_t *to[3]);
// adds n pixels that were written there
void rc_sink_commit(rc_sink *s, size_t n);
void rc_sink_packed(rc_sink *s, const uint8_t *rgb, size_t n);
void rc_sink_close(rc_sink *s);

// taps.c: swscale's bilinear filters.
typedef struct rc_taps {
	int taps;
	int *position;        // of the first tap
	int16_t *coefficient; // taps per result
} rc_taps;

// rc_taps_make computes the filter of one direction. The taps of a result add up to one.
int rc_taps_make(rc_taps *t, int from, int to, int align, int one);
void rc_taps_free(rc_taps *t);

// scale.c: scales 4:2:0 and 4:2:2 to RGB of another size.
typedef struct rc_scaler rc_scaler;

// returns NULL if this size or format is not supported
rc_scaler *rc_scaler_make(const rc_view *v, int width, int height);
void rc_scaler_run(const rc_scaler *s, const rc_view *v, rc_sink *sink);
void rc_scaler_free(rc_scaler *s);
int64_t rc_scaler_memory(const rc_scaler *s);
int rc_scaler_formula(const rc_scaler *s, rc_formula *f);

#endif
