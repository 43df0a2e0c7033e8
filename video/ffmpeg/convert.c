//go:build cgo

// Decoded pictures → tensors. swscale's plain bilinear arithmetic is what PyAV and torchcodec use: SWS_ACCURATE_RND and
// SWS_FULL_CHR_* give other numbers than training saw.

#include "internal.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include <libavutil/pixdesc.h>

static int full_range(const AVFrame *f)
{
	return f->color_range == AVCOL_RANGE_JPEG || f->format == AV_PIX_FMT_YUVJ420P || f->format == AV_PIX_FMT_YUVJ422P
		|| f->format == AV_PIX_FMT_YUVJ444P || f->format == AV_PIX_FMT_YUVJ440P;
}

// interpolation: above 8 bits torchcodec's chroma is cubic. At 8 bits and the same size both give the same numbers.
static int interpolation(const AVFrame *f, int width, int height)
{
	const AVPixFmtDescriptor *desc = av_pix_fmt_desc_get(f->format);

	return desc && desc->comp[0].depth > 8 && width == f->width && height == f->height ? SWS_BICUBIC : SWS_BILINEAR;
}

static int scaler(rc_decoder *d, int width, int height)
{
	const AVFrame *f = d->frame;
	int key[7] = { f->width, f->height, f->format, f->colorspace, full_range(f), width, height };
	int *have, *table, range_in, range_out, brightness, contrast, saturation;

	if (d->sws && !memcmp(key, d->sws_key, sizeof(key)))
		return RC_OK;
	sws_freeContext(d->sws);
	d->sws = sws_getContext(f->width, f->height, f->format, width, height, AV_PIX_FMT_RGB24, interpolation(f, width, height), NULL, NULL, NULL);
	if (!d->sws)
		return RC_ERR_FORMAT;
	if (sws_getColorspaceDetails(d->sws, &have, &range_in, &table, &range_out, &brightness, &contrast, &saturation) >= 0)
		// Formats without a matrix (gray, RGB) refuse: there is nothing to set.
		sws_setColorspaceDetails(d->sws, sws_getCoefficients(f->colorspace), key[4], table, range_out, brightness, contrast, saturation);
	memcpy(d->sws_key, key, sizeof(key));
	return RC_OK;
}

// interleaved gives the picture as RGB24 rows, padded: with tight rows swscale leaves the last columns unwritten at widths such as 84 or 322.
static int interleaved(rc_decoder *d, int width, int height, ptrdiff_t *stride)
{
	int err = scaler(d, width, height), n;
	uint8_t *planes[4] = { 0 };
	int strides[4] = { 0 };

	if (err)
		return err;
	*stride = (ptrdiff_t)((width + 31) & ~31) * 3;
	if ((err = rc_grow(&d->rows, &d->rows_size, (size_t)*stride * height + 64)))
		return err;
	planes[0] = d->rows;
	strides[0] = (int)*stride;
	n = sws_scale(d->sws, (const uint8_t *const *)d->frame->data, d->frame->linesize, 0, d->frame->height, planes, strides);
	return n < 0 ? n : n != height ? RC_ERR_FORMAT : RC_OK;
}

static int16_t round16(int64_t v)
{
	v = (v + (1 << 15)) >> 16;
	return v < -0x7FFF ? -0x8000 : v > 0x7FFF ? 0x7FFF : (int16_t)v;
}

// coefficients are swscale's for a matrix and range, at neutral brightness, contrast and saturation.
static rc_coeff coefficients(int matrix, int full)
{
	const int *t = sws_getCoefficients(matrix);
	int64_t rv = t[0], bu = t[1], gu = -t[2], gv = -t[3], y = 1 << 16, offset = 0;
	rc_coeff c;

	if (full) {
		rv = rv * 224 / 255;
		bu = bu * 224 / 255;
		gu = gu * 224 / 255;
		gv = gv * 224 / 255;
	} else {
		y = y * 255 / 219;
		offset = 16 << 16;
	}
	c.y = round16(y * (1 << 13));
	c.y_offset = round16(offset * 8);
	c.rv = round16(rv * (1 << 13));
	c.bu = round16(bu * (1 << 13));
	c.gu = round16(gu * (1 << 13));
	c.gv = round16(gv * (1 << 13));
	return c;
}

static int equal_to_swscale(int matrix, int full)
{
	enum { W = 256, H = 64 };
	rc_decoder *d = rc_synthetic(W, H, "yuv420p", matrix, full, 1);
	int equal = 0;

	if (d) {
		uint8_t *ours = malloc(3 * W * H), *theirs = malloc(3 * W * H);
		rc_coeff c = coefficients(matrix, full);
		AVFrame *f = d->frame;

		if (ours && theirs && !rc_rgb(d, W, H, RC_U8, 1, 0, theirs)) {
			rc_yuv420_planar(f->data[0], f->linesize[0], f->data[1], f->linesize[1], f->data[2], f->linesize[2], W, H, &c,
				ours, ours + W * H, ours + 2 * W * H, W);
			equal = !memcmp(ours, theirs, 3 * W * H);
		}
		free(ours);
		free(theirs);
		rc_close(d);
	}
	return equal;
}

// same_as_swscale says whether the kernel may stand for swscale. Its arithmetic depends on the processor and on the release (a machine without SSSE3
// goes through tables): the peers then differ too, so the first use of a matrix and range asks swscale itself.
static int same_as_swscale(int matrix, int full)
{
	static _Atomic int known[32]; // 0 not asked, 1 equal, 2 different
	int at = (matrix & 15) * 2 + full, is;

	if (matrix < 0 || matrix > 15)
		return 0;
	is = atomic_load_explicit(&known[at], memory_order_relaxed);
	if (!is) {
		is = equal_to_swscale(matrix, full) ? 1 : 2;
		atomic_store_explicit(&known[at], is, memory_order_relaxed);
	}
	return is == 1;
}

static void floats_planar(const uint8_t *r, const uint8_t *g, const uint8_t *b, size_t at, size_t n, size_t plane, float *dst)
{
	rc_unit_floats(r, dst + at, n);
	rc_unit_floats(g, dst + plane + at, n);
	rc_unit_floats(b, dst + 2 * plane + at, n);
}

// planar converts 4:2:0 straight into CHW, in blocks of rows that stay in the cache where floats follow.
static int planar(rc_decoder *d, int element, uint8_t *dst)
{
	const AVFrame *f = d->frame;
	int w = f->width, h = f->height, full = full_range(f), err;
	size_t plane = (size_t)w * h;
	rc_coeff c = coefficients(f->colorspace, full);
	enum { BLOCK = 8 };

	if (element == RC_U8) {
		rc_yuv420_planar(f->data[0], f->linesize[0], f->data[1], f->linesize[1], f->data[2], f->linesize[2], w, h, &c, dst, dst + plane, dst + 2 * plane, w);
		return RC_OK;
	}
	if ((err = rc_grow(&d->rows, &d->rows_size, (size_t)w * BLOCK * 3)))
		return err;
	for (int y = 0; y < h; y += BLOCK) {
		int n = h - y < BLOCK ? h - y : BLOCK;
		uint8_t *r = d->rows, *g = r + (size_t)w * n, *b = g + (size_t)w * n;

		rc_yuv420_planar(f->data[0] + (ptrdiff_t)y * f->linesize[0], f->linesize[0], f->data[1] + (ptrdiff_t)(y / 2) * f->linesize[1], f->linesize[1],
			f->data[2] + (ptrdiff_t)(y / 2) * f->linesize[2], f->linesize[2], w, n, &c, r, g, b, w);
		floats_planar(r, g, b, (size_t)y * w, (size_t)n * w, plane, (float *)dst);
	}
	return RC_OK;
}

static int upright(rc_decoder *d, int width, int height, int element, int chw, int fast, uint8_t *dst)
{
	const AVFrame *f = d->frame;
	size_t plane = (size_t)width * height;
	ptrdiff_t stride;
	int err;

	if (fast && chw && (f->format == AV_PIX_FMT_YUV420P || f->format == AV_PIX_FMT_YUVJ420P) && width == f->width && height == f->height && !(height & 1)
		&& same_as_swscale(f->colorspace, full_range(f)))
		return planar(d, element, dst);
	if ((err = interleaved(d, width, height, &stride)))
		return err;
	for (int y = 0; y < height; y++) {
		const uint8_t *row = d->rows + y * stride;
		size_t at = (size_t)y * width;

		if (!chw && element == RC_U8)
			memcpy(dst + 3 * at, row, 3 * (size_t)width);
		else if (!chw)
			rc_unit_floats(row, (float *)dst + 3 * at, 3 * (size_t)width);
		else if (element == RC_U8)
			rc_deinterleave(row, width, dst + at, dst + plane + at, dst + 2 * plane + at);
		else
			for (int x = 0; x < width; x += 256) {
				uint8_t part[3][256];
				int n = width - x < 256 ? width - x : 256;

				rc_deinterleave(row + 3 * (size_t)x, n, part[0], part[1], part[2]);
				floats_planar(part[0], part[1], part[2], at + x, n, plane, (float *)dst);
			}
	}
	return RC_OK;
}

int rc_rgb(rc_decoder *d, int width, int height, int element, int chw, int fast, uint8_t *dst)
{
	size_t size = element == RC_F32 ? 4 : 1, plane = (size_t)width * height * size;
	int err;

	if (!d->rotation)
		return upright(d, width, height, element, chw, fast, dst);
	if ((err = rc_grow(&d->turned, &d->turned_size, 3 * plane)))
		return err;
	if ((err = upright(d, width, height, element, chw, fast, d->turned)))
		return err;
	if (!chw)
		rc_rotate(d->turned, dst, width, height, 3 * (int)size, d->rotation);
	else
		for (int k = 0; k < 3; k++)
			rc_rotate(d->turned + k * plane, dst + k * plane, width, height, (int)size, d->rotation);
	return RC_OK;
}

int rc_luma(rc_decoder *d, const float *table, uint8_t *dst)
{
	const AVFrame *f = d->frame;
	int w = f->width, h = f->height, wide = d->picture.luma_bits > 8, err;
	size_t size = table ? 4 : 2;
	uint8_t *out = dst;

	if (!d->picture.luma_bits)
		return RC_ERR_FORMAT;
	if (d->rotation) {
		if ((err = rc_grow(&d->turned, &d->turned_size, (size_t)w * h * size)))
			return err;
		out = d->turned;
	}
	for (int y = 0; y < h; y++) {
		const uint8_t *row = f->data[0] + (ptrdiff_t)y * f->linesize[0];
		uint8_t *to = out + (size_t)y * w * size;

		if (wide && !table) {
			memcpy(to, row, (size_t)w * 2);
			continue;
		}
		for (int x = 0; x < w; x++) {
			uint16_t q = wide ? ((const uint16_t *)row)[x] : row[x];

			if (table)
				((float *)to)[x] = table[q > 4095 ? 4095 : q];
			else
				((uint16_t *)to)[x] = q;
		}
	}
	if (d->rotation)
		rc_rotate(d->turned, dst, w, h, (int)size, d->rotation);
	return RC_OK;
}
