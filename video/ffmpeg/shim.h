// The border between Go and libavcodec/libswscale: plain structs and integers, nothing of FFmpeg's own types.
// Everything behind it uses only API that FFmpeg 5.1 to 8 share.
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

// The frame that rc_receive gave last; Go reads it without another call.
typedef struct rc_frame {
	int width, height; // as coded, before rotation
	int format;
	const char *format_name;
	int64_t pts;
	int luma_bits;      // of the first plane; 0 where it is no luma
	int planes_bytes;   // of all planes, tightly packed
	int matrix, full_range;
} rc_frame;

typedef struct rc_decoder rc_decoder;

enum { RC_OK = 0, RC_FRAME = 1, RC_NONE = 0 };

// Errors are FFmpeg's negative codes, and these.
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

// rc_send copies the packet into a padded buffer of the decoder. skip says that the frame is not wanted: where nothing
// can refer to it, the decoder passes over it.
int rc_send(rc_decoder *d, const uint8_t *data, int size, int64_t pts, int skip);
int rc_drain(rc_decoder *d);
void rc_flush(rc_decoder *d);
int rc_receive(rc_decoder *d); // RC_FRAME, RC_NONE, or an error
void rc_reorder(rc_decoder *d, int images);

int rc_planes(rc_decoder *d, uint8_t *dst, int size);
int64_t rc_memory(rc_decoder *d);

// Kept planes: what video.PlaneInfo says, and where video.PlaneInfo.Planes puts them.
typedef struct rc_layout {
	int width, height, format; // as coded; libavutil's number
	int matrix, full_range, rotation, luma_bits;
	int count;
	int stride[3], row_bytes[3], rows[3];
	int64_t offset[3];
} rc_layout;

// rc_pixel_format gives libavutil's number of a format by its name; -1 where this build has none.
int rc_pixel_format(const char *name);
// rc_keep copies the received frame's planes; the bytes between rows and planes become zero.
int rc_keep(rc_decoder *d, const rc_layout *l, uint8_t *dst);

// A scratch is used by one thread at a time.
typedef struct rc_scratch rc_scratch;
rc_scratch *rc_scratch_new(void);
void rc_scratch_free(rc_scratch *s);
int64_t rc_scratch_memory(const rc_scratch *s);

// Elements of a result: R, G and B as bytes or floats, or the luma plane's codes: as uint16, or through a table of 4096 floats where one is given.
enum { RC_U8 = 0, RC_F32 = 1, RC_CODES = 2 };

// rc_convert converts the received frame of d, or kept planes where d is NULL. width and height are those of the result before rotation.
// fast = 0 forbids the vector kernels (for tests that compare).
int rc_convert(rc_decoder *d, const rc_layout *l, const uint8_t *planes, rc_scratch *s, int width, int height, int element, int chw, int fast,
	const float *table, uint8_t *dst);

// How this library's own code makes 8-bit RGB of 4:2:0, for a device that must give the same.
typedef struct rc_formula {
	int scaled, numbers[10];
	// across luma and chroma, down luma and chroma; where it scales
	int taps[4], size[4];
	int *position[4];
	int16_t *coefficient[4];
} rc_formula;

// rc_formula_of is 0 where another's code, or none, makes the result. What it gives is taken back by rc_formula_free.
int rc_formula_of(const rc_layout *l, int width, int height, rc_formula *f);
void rc_formula_free(rc_formula *f);

// rc_copy is memcpy; large copies go past the caches.
void rc_copy(uint8_t *dst, const uint8_t *src, size_t n);
// rc_split takes n packed pixels apart.
void rc_split(const uint8_t *rgb, size_t n, uint8_t *r, uint8_t *g, uint8_t *b);

#endif
