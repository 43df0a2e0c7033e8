//go:build cgo

// Converts decoded frames to tensors. It uses swscale's plain bilinear arithmetic, like PyAV and
// torchcodec. SWS_ACCURATE_RND and SWS_FULL_CHR_* give numbers that differ from those of training.

#include "internal.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include <libavutil/pixdesc.h>

// ensure_size makes *p at least need bytes large. Its contents are lost if it grows.
static int ensure_size(uint8_t **p, size_t *have, size_t need)
{
	void *q;

	if (need <= *have)
		return RC_OK;
	free(*p);
	*p = NULL;
	*have = 0;
	// Whole cache lines, so that rows padded to 64 bytes stay aligned.
	if (posix_memalign(&q, 64, need))
		return RC_ERR_MEMORY;
	*p = q;
	*have = need;
	return RC_OK;
}

// interpolation returns swscale's flag. Above 8 bits torchcodec interpolates chroma cubically. At 8
// bits and the same size both flags give the same numbers.
static int interpolation(const rc_view *v, int width, int height)
{
	const AVPixFmtDescriptor *desc = av_pix_fmt_desc_get(v->format);

	return desc && desc->comp[0].depth > 8 && width == v->width && height == v->height
			   ? SWS_BICUBIC
			   : SWS_BILINEAR;
}

// shape_key fills key with the properties that a swscale context or a scaler depends on.
static void shape_key(int key[7], const rc_view *v, int width, int height)
{
	int all[7] = { v->width, v->height, v->format, v->matrix, v->full, width, height };

	memcpy(key, all, sizeof(all));
}

// ensure_context sets up the swscale context of a scratch for this shape.
static int ensure_context(const rc_view *v, rc_scratch *s, int width, int height)
{
	int key[7];
	int *have, *table, range_in, range_out, brightness, contrast, saturation;

	shape_key(key, v, width, height);
	if (s->sws && !memcmp(key, s->sws_key, sizeof(key)))
		return RC_OK;
	sws_freeContext(s->sws);
	s->sws = sws_getContext(
		v->width, v->height, v->format, width, height, AV_PIX_FMT_RGB24,
		interpolation(v, width, height), NULL, NULL, NULL);
	if (!s->sws)
		return RC_ERR_FORMAT;
	if (sws_getColorspaceDetails(
			s->sws, &have, &range_in, &table, &range_out, &brightness, &contrast, &saturation)
		>= 0)
		// Formats without a matrix (gray, RGB) return an error, and need no setting.
		sws_setColorspaceDetails(
			s->sws, sws_getCoefficients(v->matrix), v->full, table, range_out, brightness, contrast,
			saturation);
	memcpy(s->sws_key, key, sizeof(key));
	return RC_OK;
}

// convert_with_swscale converts the frame to padded rows of RGB24. With tight rows swscale leaves
// the last columns unwritten at widths such as 84 or 322.
static int convert_with_swscale(
	const rc_view *v, rc_scratch *s, int width, int height, ptrdiff_t *stride)
{
	int err = ensure_context(v, s, width, height), n;
	uint8_t *planes[4] = { 0 };
	int strides[4] = { 0 };

	if (err)
		return err;
	*stride = (ptrdiff_t)((width + 31) & ~31) * 3;
	if ((err = ensure_size(&s->rows, &s->rows_size, (size_t)*stride * height + 64)))
		return err;
	planes[0] = s->rows;
	strides[0] = (int)*stride;
	n = sws_scale(s->sws, v->data, v->stride, 0, v->height, planes, strides);
	return n < 0 ? n : n != height ? RC_ERR_FORMAT : RC_OK;
}

// round16 converts a fixed-point number to 16 bits, rounded and saturated.
static int16_t round16(int64_t v)
{
	v = (v + (1 << 15)) >> 16;
	return v < -0x7FFF ? -0x8000 : v > 0x7FFF ? 0x7FFF : (int16_t)v;
}

rc_matrix rc_matrix_of(int matrix, int full)
{
	const int *t = sws_getCoefficients(matrix);
	rc_matrix m = { .rv = t[0],
					.bu = t[1],
					.gu = -t[2],
					.gv = -t[3],
					.y = full ? 1 << 16 : (1 << 16) * 255LL / 219,
					.offset = full ? 0 : 16 << 16 };

	for (int64_t *p = full ? m.chroma : NULL; p && p < m.chroma + 4; p++)
		*p = *p * 224 / 255;
	return m;
}

// coefficients returns swscale's coefficients for a matrix and range, at neutral brightness,
// contrast and saturation.
static rc_coeff coefficients(int matrix, int full)
{
	rc_matrix m = rc_matrix_of(matrix, full);

	return (rc_coeff){ .y = round16(m.y * (1 << 13)),
					   .y_offset = round16(m.offset * 8),
					   .rv = round16(m.rv * (1 << 13)),
					   .gu = round16(m.gu * (1 << 13)),
					   .gv = round16(m.gv * (1 << 13)),
					   .bu = round16(m.bu * (1 << 13)) };
}

// is_420 reports whether the format is 8-bit 4:2:0.
static int is_420(const rc_view *v)
{
	return v->format == AV_PIX_FMT_YUV420P || v->format == AV_PIX_FMT_YUVJ420P;
}

// convert_with_kernel converts rows that share a row of chroma: two rows of 4:2:0, or one of 4:2:2.
// The rows stay in the cache until they have their final form.
static void convert_with_kernel(const rc_view *v, rc_sink *s)
{
	rc_coeff c = coefficients(v->matrix, v->full);
	int rows = 1 + is_420(v);
	// Prefetch two pairs of rows ahead.
	int ahead = is_420(v) ? 4 * v->stride[0] : 0;

	for (int y = 0; y < v->height; y += rows) {
		uint8_t *to[3];

		rc_sink_room(s, to);
		rc_yuv420_rows(
			v->data[0] + (ptrdiff_t)y * v->stride[0], v->stride[0],
			v->data[1] + (ptrdiff_t)(y / rows) * v->stride[1],
			v->data[2] + (ptrdiff_t)(y / rows) * v->stride[2], v->width, rows, &c, ahead, to[0],
			to[1], to[2], v->width);
		rc_sink_commit(s, rows * (size_t)v->width);
	}
}

// fill_test_plane writes noise, flat blocks and edges between extremes, so that every sum reaches
// its limits.
static void fill_test_plane(uint8_t *p, int stride, int width, int height, uint32_t seed)
{
	for (int y = 0; y < height; y++)
		for (int x = 0; x < width; x++) {
			uint32_t block = (x / 16 * 2654435761u ^ y / 16 * 2246822519u ^ seed) * 3266489917u;

			seed = seed * 1664525u + 1013904223u;
			p[(size_t)y * stride + x] = block >> 30 == 0   ? 0
										: block >> 30 == 1 ? 255
										: block >> 30 == 2 ? block >> 16
														   : seed >> 24;
		}
}

// result_equals_swscale reports whether swscale and this library convert a test frame to the same
// bytes. If scaler is NULL, it tests the kernel for the same size.
static int result_equals_swscale(
	const rc_view *like, const rc_scaler *scaler, int width, int height)
{
	rc_view v = *like;
	rc_scratch theirs = { 0 };
	rc_sink *sink = malloc(sizeof(*sink));
	int half = is_420(&v), alike = 0;
	int rows[3] = { v.height, (v.height + half) >> half, (v.height + half) >> half },
		columns[3] = { v.width, (v.width + 1) / 2, (v.width + 1) / 2 };
	uint8_t *ours = malloc((size_t)width * height * 3), *planes[3];
	ptrdiff_t stride;

	for (int k = 0; k < 3; k++) {
		v.stride[k] = (columns[k] + 63) & ~63;
		v.data[k] = planes[k] = malloc((size_t)v.stride[k] * rows[k]);
		if (planes[k])
			fill_test_plane(planes[k], v.stride[k], columns[k], rows[k], 11 + k);
	}
	if (sink && ours && planes[0] && planes[1] && planes[2]
		&& !convert_with_swscale(&v, &theirs, width, height, &stride)) {
		rc_sink_open(sink, ours, (size_t)width * height, RC_U8, 0);
		if (scaler)
			rc_scaler_run(scaler, &v, sink);
		else
			convert_with_kernel(&v, sink);
		rc_sink_close(sink);
		alike = 1;
		for (int y = 0; y < height && alike; y++)
			alike =
				!memcmp(ours + (size_t)y * width * 3, theirs.rows + y * stride, (size_t)width * 3);
	}
	for (int k = 0; k < 3; k++)
		free(planes[k]);
	rc_scratch_clear(&theirs);
	free(ours);
	free(sink);
	return alike;
}

// kernel_equals_swscale reports whether the kernel can replace swscale. On x86-64 swscale's
// arithmetic depends on the processor and the release (a machine without SSSE3 uses tables). The
// peers then also differ, so the first use of a matrix and range compares with swscale. On other
// processors swscale always uses tables, and the kernel gives the numbers of training on x86-64.
static int kernel_equals_swscale(const rc_view *like)
{
#if defined(__x86_64__)
	static _Atomic int known[64]; // 0: not tested, 1: equal, 2: different
	int at = (like->matrix & 15) * 4 + like->full * 2 + is_420(like), is;

	if (like->matrix < 0 || like->matrix > 15)
		return 0;
	is = atomic_load_explicit(&known[at], memory_order_relaxed);
	if (!is) {
		rc_view v = { .width = 256,
					  .height = 64,
					  .format = is_420(like) ? AV_PIX_FMT_YUV420P : AV_PIX_FMT_YUV422P,
					  .matrix = like->matrix,
					  .full = like->full };

		is = result_equals_swscale(&v, NULL, v.width, v.height) ? 1 : 2;
		atomic_store_explicit(&known[at], is, memory_order_relaxed);
	}
	return is == 1;
#else
	return 1;
#endif
}

// kernel_applies reports whether the vector kernel converts this view to its own size.
static int kernel_applies(const rc_view *v, int width, int height)
{
	return (is_420(v) || v->format == AV_PIX_FMT_YUV422P || v->format == AV_PIX_FMT_YUVJ422P)
		   && width == v->width && height == v->height && !(height & 1) && width <= MAX_ROW
		   && kernel_equals_swscale(v);
}

// scaler_for returns the scaler of a scratch, or NULL if swscale must scale. The comparison with
// swscale is made once per process and shape: the first context of a shape takes as long as two or
// three frames.
static rc_scaler *scaler_for(const rc_view *v, rc_scratch *s, int width, int height)
{
	enum { SHAPES = 256 };
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	static struct {
		int key[7], alike;
	} known[SHAPES];
	static int next;
	int key[7], is = -1;

	shape_key(key, v, width, height);
	if (!memcmp(key, s->scaler_key, sizeof(key)))
		return s->scaler;
	rc_scaler_free(s->scaler);
	memcpy(s->scaler_key, key, sizeof(key));
	if (!(s->scaler = rc_scaler_make(v, width, height)))
		return NULL;
	pthread_mutex_lock(&lock);
	for (int i = 0; i < SHAPES && is < 0; i++)
		if (!memcmp(key, known[i].key, sizeof(key)))
			is = known[i].alike;
	if (is < 0) {
		is = result_equals_swscale(v, s->scaler, width, height);
		memcpy(known[next].key, key, sizeof(key));
		known[next].alike = is;
		next = (next + 1) % SHAPES;
	}
	pthread_mutex_unlock(&lock);
	if (!is) {
		rc_scaler_free(s->scaler);
		s->scaler = NULL;
	}
	return s->scaler;
}

// convert_upright converts to RGB without rotation, by the kernel, the scaler or swscale.
static int convert_upright(
	const rc_view *v, rc_scratch *s, int width, int height, int element, int chw, int fast,
	uint8_t *dst)
{
	rc_scaler *scaler;
	rc_sink sink;
	ptrdiff_t stride;
	int err;

	if (fast && kernel_applies(v, width, height)) {
		rc_sink_open(&sink, dst, (size_t)width * height, element, chw);
		convert_with_kernel(v, &sink);
	} else if (
		fast && (width != v->width || height != v->height)
		&& (scaler = scaler_for(v, s, width, height))) {
		rc_sink_open(&sink, dst, (size_t)width * height, element, chw);
		rc_scaler_run(scaler, v, &sink);
	} else {
		if ((err = convert_with_swscale(v, s, width, height, &stride)))
			return err;
		rc_sink_open(&sink, dst, (size_t)width * height, element, chw);
		for (int y = 0; y < height; y++)
			rc_sink_packed(&sink, s->rows + y * stride, width);
	}
	rc_sink_close(&sink);
	return RC_OK;
}

// convert_rgb converts to RGB and applies the rotation.
static int convert_rgb(
	const rc_view *v, rc_scratch *s, int width, int height, int element, int chw, int fast,
	uint8_t *dst)
{
	size_t size = element == RC_F32 ? 4 : 1, plane = (size_t)width * height * size;
	int err;

	if (!v->rotation)
		return convert_upright(v, s, width, height, element, chw, fast, dst);
	if ((err = ensure_size(&s->turned, &s->turned_size, 3 * plane)))
		return err;
	if ((err = convert_upright(v, s, width, height, element, chw, fast, s->turned)))
		return err;
	if (!chw)
		rc_rotate(s->turned, dst, width, height, 3 * (int)size, v->rotation);
	else
		for (int k = 0; k < 3; k++)
			rc_rotate(
				s->turned + k * plane, dst + k * plane, width, height, (int)size, v->rotation);
	return RC_OK;
}

// convert_codes converts n codes of a row to their final form.
static void convert_codes(const uint8_t *row, int wide, const float *table, int n, uint8_t *to)
{
	if (!table && wide)
		memcpy(to, row, (size_t)n * 2);
	else if (!table)
		for (int x = 0; x < n; x++)
			((uint16_t *)to)[x] = row[x];
	else if (wide)
		rc_look_up((const uint16_t *)row, table, n, (float *)to);
	else
		for (int x = 0; x < n; x++)
			((float *)to)[x] = table[row[x]];
}

// convert_luma writes the codes of the luma plane, or their depth, and applies the rotation.
static int convert_luma(const rc_view *v, rc_scratch *s, const float *table, uint8_t *dst)
{
	int w = v->width, h = v->height, wide = v->luma_bits > 8, err;
	size_t size = table ? 4 : 2, total = (size_t)w * h * size;
	enum { PART = 1024 };

	if (!v->luma_bits)
		return RC_ERR_FORMAT;
	if (v->rotation) {
		if ((err = ensure_size(&s->turned, &s->turned_size, total)))
			return err;
		for (int y = 0; y < h; y++)
			convert_codes(
				v->data[0] + (ptrdiff_t)y * v->stride[0], wide, table, w,
				s->turned + (size_t)y * w * size);
		rc_rotate(s->turned, dst, w, h, (int)size, v->rotation);
	} else if (wide && !table && v->stride[0] == 2 * w) {
		rc_copy(dst, v->data[0], total);
	} else if (total < STREAM_FROM || !rc_can_stream()) {
		for (int y = 0; y < h; y++)
			convert_codes(
				v->data[0] + (ptrdiff_t)y * v->stride[0], wide, table, w,
				dst + (size_t)y * w * size);
	} else {
		rc_lane lane;

		rc_lane_open(&lane, dst);
		for (int y = 0; y < h; y++)
			for (int x = 0; x < w; x += PART) {
				int n = w - x < PART ? w - x : PART;
				const uint8_t *row =
					v->data[0] + (ptrdiff_t)y * v->stride[0] + (size_t)x * (1 + wide);

				if (y + 2 < h)
					rc_prefetch(row + 2 * (ptrdiff_t)v->stride[0], (size_t)n * (1 + wide));
				convert_codes(row, wide, table, n, lane.stage + lane.fill);
				rc_lane_commit(&lane, n * size);
			}
		rc_lane_close(&lane);
		rc_fence();
	}
	return RC_OK;
}

// view_of returns a view of the received frame of a decoder.
static rc_view view_of(const rc_decoder *d)
{
	const AVFrame *f = d->frame;
	rc_view v = { .width = f->width,
				  .height = f->height,
				  .format = f->format,
				  .matrix = d->img.matrix,
				  .full = d->img.full_range,
				  .rotation = d->rotation,
				  .luma_bits = d->img.luma_bits };

	for (int k = 0; k < 4; k++) {
		v.data[k] = f->data[k];
		v.stride[k] = f->linesize[k];
	}
	return v;
}

// view_of_kept returns a view of stored planes.
static rc_view view_of_kept(const rc_layout *l, const uint8_t *planes)
{
	rc_view v = { .width = l->width,
				  .height = l->height,
				  .format = l->format,
				  .matrix = l->matrix,
				  .full = l->full_range,
				  .rotation = l->rotation,
				  .luma_bits = l->luma_bits };

	for (int k = 0; k < l->count; k++) {
		v.data[k] = planes + l->offset[k];
		v.stride[k] = l->stride[k];
	}
	return v;
}

int rc_convert(
	rc_decoder *d, const rc_layout *l, const uint8_t *planes, rc_scratch *s, int width, int height,
	int element, int chw, int fast, const float *table, uint8_t *dst)
{
	rc_view v = d ? view_of(d) : view_of_kept(l, planes);

	if (d)
		s = &d->scratch;
	return element == RC_CODES ? convert_luma(&v, s, table, dst)
							   : convert_rgb(&v, s, width, height, element, chw, fast, dst);
}

int rc_formula_of(const rc_layout *l, int width, int height, rc_formula *f)
{
	rc_view v = view_of_kept(l, NULL);
	rc_scratch s = { 0 };
	rc_scaler *scaler;
	int is = 0;

	memset(f, 0, sizeof(*f));
	if (v.rotation || !is_420(&v))
		return 0;
	if (kernel_applies(&v, width, height)) {
		rc_coeff c = coefficients(v.matrix, v.full);
		int numbers[6] = { c.y, c.y_offset, c.rv, c.gu, c.gv, c.bu };

		memcpy(f->numbers, numbers, sizeof(numbers));
		is = 1;
	} else if (
		(width != v.width || height != v.height) && (scaler = scaler_for(&v, &s, width, height)))
		is = rc_scaler_formula(scaler, f);
	rc_scratch_clear(&s);
	return is;
}

void rc_formula_free(rc_formula *f)
{
	for (int k = 0; k < 4; k++) {
		free(f->position[k]);
		free(f->coefficient[k]);
	}
}

rc_scratch *rc_scratch_new(void) { return calloc(1, sizeof(rc_scratch)); }

void rc_scratch_clear(rc_scratch *s)
{
	sws_freeContext(s->sws);
	rc_scaler_free(s->scaler);
	free(s->rows);
	free(s->turned);
	memset(s, 0, sizeof(*s));
}

void rc_scratch_free(rc_scratch *s)
{
	if (s)
		rc_scratch_clear(s);
	free(s);
}

int64_t rc_scratch_memory(const rc_scratch *s)
{
	return (int64_t)s->rows_size + (int64_t)s->turned_size + rc_scaler_memory(s->scaler);
}
