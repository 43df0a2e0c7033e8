// The interface between Go and libavcodec/libswscale. It uses plain structs and integers, but no
// types of FFmpeg. Its implementation uses only API that FFmpeg 5.1 to 8 share.
#ifndef ROBOCACHE_SHIM_H
#define ROBOCACHE_SHIM_H

#include <stddef.h>
#include <stdint.h>

typedef struct rc_config {
	const char *codec; // libavcodec's name of the decoder
	const uint8_t *extradata;
	int extradata_size;
	int width, height;
	int primaries, transfer, matrix; // 2 = unspecified
	int full_range;
	int rotation;
	int64_t max_pixels;
} rc_config;

// The frame of the last rc_receive. Go reads it without another call.
typedef struct rc_frame {
	int width, height; // coded size, before rotation
	int format;
	const char *format_name;
	int64_t pts;
	int luma_bits;    // of the first plane; 0 if it is not luma
	int planes_bytes; // of all planes, tightly packed
	int matrix, full_range;
} rc_frame;

typedef struct rc_decoder rc_decoder;

enum { RC_OK = 0, RC_FRAME = 1, RC_NONE = 0 };

// Errors are FFmpeg's negative codes and the codes below.
enum {
	RC_ERR_NO_DECODER = -1000001,
	RC_ERR_MEMORY = -1000002,
	RC_ERR_TOO_LARGE = -1000003,
	RC_ERR_FORMAT = -1000004,
	RC_ERR_SIZE = -1000005,
};

const char *rc_version(void);
int rc_has_decoder(const char *name);
void rc_error_text(int code, char *buf, int n);

int rc_open(const rc_config *cfg, rc_decoder **out);
void rc_close(rc_decoder *d);
const rc_frame *rc_frame_of(rc_decoder *d);

// rc_send copies the packet into a padded buffer of the decoder. If skip is set, the decoder skips
// the frame, provided that no other frame can refer to it.
int rc_send(rc_decoder *d, const uint8_t *data, int size, int64_t pts, int skip);
int rc_drain(rc_decoder *d);
void rc_flush(rc_decoder *d);
int rc_receive(rc_decoder *d); // RC_FRAME, RC_NONE, or an error
void rc_reorder(rc_decoder *d, int images);

int rc_planes(rc_decoder *d, uint8_t *dst, int size);
int64_t rc_memory(rc_decoder *d);

// The layout of stored planes, as in video.PlaneInfo and video.PlaneInfo.Planes.
typedef struct rc_layout {
	int width, height, format; // coded size; libavutil's number
	int matrix, full_range, rotation, luma_bits;
	int count;
	int stride[3], row_bytes[3], rows[3];
	int64_t offset[3];
} rc_layout;

// rc_pixel_format returns libavutil's number of a format, or -1 if this build lacks it.
int rc_pixel_format(const char *name);
// rc_keep copies the planes of the received frame. Padding between rows and planes is zeroed.
int rc_keep(rc_decoder *d, const rc_layout *l, uint8_t *dst);

// A scratch is used by one thread at a time.
typedef struct rc_scratch rc_scratch;
rc_scratch *rc_scratch_new(void);
void rc_scratch_free(rc_scratch *s);
int64_t rc_scratch_memory(const rc_scratch *s);

// Elements of a result: R, G and B as bytes (RC_U8) or floats (RC_F32), or the codes of the luma
// plane (RC_CODES). Codes are uint16, or converted by a table of 4096 floats if there is one.
enum { RC_U8 = 0, RC_F32 = 1, RC_CODES = 2 };

// rc_convert converts the received frame of d, or stored planes if d is NULL. width and height are
// those of the result before rotation. fast = 0 disables the vector kernels, for tests that
// compare.
int rc_convert(
	rc_decoder *d, const rc_layout *l, const uint8_t *planes, rc_scratch *s, int width, int height,
	int element, int chw, int fast, const float *table, uint8_t *dst);

// The arithmetic with which this library converts 4:2:0 to 8-bit RGB, for a device that must
// produce the same bytes.
typedef struct rc_formula {
	int scaled, numbers[10];
	// If scaled: the filters across luma and chroma, and down luma and chroma.
	int taps[4], size[4];
	int *position[4];
	int16_t *coefficient[4];
} rc_formula;

// rc_formula_of returns 0 if this library does not convert such planes itself. The caller must call
// rc_formula_free.
int rc_formula_of(const rc_layout *l, int width, int height, rc_formula *f);
void rc_formula_free(rc_formula *f);

// rc_copy is like memcpy, but large copies bypass the caches.
void rc_copy(uint8_t *dst, const uint8_t *src, size_t n);
// rc_split splits n packed pixels into planes.
void rc_split(const uint8_t *rgb, size_t n, uint8_t *r, uint8_t *g, uint8_t *b);

#endif
