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

// A frame that is to be converted: a decoder's, or one of kept planes.
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

	struct rc_scaler *scaler; // NULL where swscale has to scale
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
	AVBufferRef *input; // padded copy of the packet in work
	rc_frame img;
	int rotation;
	int lacks_memory; // a frame could not be allocated: libavcodec calls the packet invalid then
	rc_scratch scratch;
};

// Calls go down this list: shim.c (decoders, and what Go calls), convert.c, scale.c, taps.c, sink.c, planar.c, stream.c.

// convert.c: a view → RGB or codes
void rc_scratch_clear(rc_scratch *s);

// swscale's numbers of a matrix and range, 16 bits behind the point, at neutral brightness, contrast and saturation.
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

// planar.c: rows of pixels, from layout to layout
// One or two rows that share one of chroma, which is half as wide; r + stride is the second. ahead is how many bytes of luma further the next rows lie,
// to fetch them early; 0 fetches nothing.
void rc_yuv420_rows(const uint8_t *y, int ys, const uint8_t *u, const uint8_t *v, int width, int rows, const rc_coeff *c, int ahead, uint8_t *r, uint8_t *g, uint8_t *b,
	ptrdiff_t stride);
void rc_interleave(const uint8_t *r, const uint8_t *g, const uint8_t *b, size_t n, uint8_t *rgb);
void rc_unit_floats(const uint8_t *src, float *dst, size_t n);
void rc_look_up(const uint16_t *codes, const float *table, int n, float *dst); // table has 4096; what lies beyond is the last
void rc_rotate(const uint8_t *src, uint8_t *dst, int width, int height, int element, int degrees);

// stream.c: writing past the caches
enum {
	LINE = 64,
	STREAM_FROM = 128 << 10, // bytes of a result, from which on it is written past the caches
	MAX_ROW = 8192,          // the widest frame of the kernels
};

typedef struct rc_lane {
	uint8_t *dst; // where stage[0] goes: at a line's beginning
	size_t fill;
	size_t skip; // bytes of the first line that are not ours
	uint8_t stage[2 * MAX_ROW + 2 * LINE] __attribute__((aligned(64)));
} rc_lane;

int rc_can_stream(void);
void rc_fence(void);
void rc_prefetch(const uint8_t *p, size_t n);
void rc_lane_open(rc_lane *l, uint8_t *dst);
void rc_lane_commit(rc_lane *l, size_t n); // n bytes stand at stage + fill
void rc_lane_close(rc_lane *l);            // rc_fence comes behind the last one

// sink.c: rows of R, G and B → the layout that was asked for
typedef struct rc_sink {
	uint8_t *dst;
	size_t plane, at; // pixels
	int element, chw, stream;
	uint8_t rows[3][2 * MAX_ROW + LINE];
	rc_lane lane[3];
} rc_sink;

void rc_sink_open(rc_sink *s, uint8_t *dst, size_t pixels, int element, int chw);
void rc_sink_room(rc_sink *s, uint8_t *to[3]); // for up to 2 * MAX_ROW pixels
void rc_sink_commit(rc_sink *s, size_t n);     // n pixels stand there
void rc_sink_packed(rc_sink *s, const uint8_t *rgb, size_t n);
void rc_sink_close(rc_sink *s);

// taps.c: swscale's bilinear filters
typedef struct rc_taps {
	int taps;
	int *position;        // of the first tap
	int16_t *coefficient; // taps a result
} rc_taps;

// rc_taps_make makes the filter of one direction; the sum of a result's taps is one.
int rc_taps_make(rc_taps *t, int from, int to, int align, int one);
void rc_taps_free(rc_taps *t);

// scale.c: 4:2:0 and 4:2:2 → RGB of another size
typedef struct rc_scaler rc_scaler;

rc_scaler *rc_scaler_make(const rc_view *v, int width, int height); // NULL where there is none for it
void rc_scaler_run(const rc_scaler *s, const rc_view *v, rc_sink *sink);
void rc_scaler_free(rc_scaler *s);
int64_t rc_scaler_memory(const rc_scaler *s);
int rc_scaler_formula(const rc_scaler *s, rc_formula *f);

#endif
