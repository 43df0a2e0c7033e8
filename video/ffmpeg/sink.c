//go:build cgo

// Writes pixels, received as rows of R, G and B, in the requested layout, in order, once.

#include "internal.h"

#include <string.h>

enum { PART = 1024 }; // pixels that are converted to their final form at once

void rc_sink_open(rc_sink *s, uint8_t *dst, size_t pixels, int element, int chw)
{
	size_t size = element == RC_F32 ? 4 : 1;

	s->dst = dst;
	s->plane = pixels;
	s->at = 0;
	s->element = element;
	s->chw = chw;
	s->stream = 3 * size * pixels >= STREAM_FROM && rc_can_stream();
	if (s->stream)
		for (int k = 0; k < (chw ? 3 : 1); k++)
			rc_lane_open(&s->lane[k], dst + k * size * pixels);
}

void rc_sink_room(rc_sink *s, uint8_t *to[3])
{
	for (int k = 0; k < 3; k++)
		if (!s->chw || s->element != RC_U8)
			to[k] = s->rows[k];
		else if (s->stream)
			to[k] = s->lane[k].stage + s->lane[k].fill;
		else
			to[k] = s->dst + k * s->plane + s->at;
}

// output_at returns the destination of the next bytes of lane k. at is the offset in bytes from the
// start of the channel.
static uint8_t *output_at(rc_sink *s, int k, size_t at)
{
	if (s->stream)
		return s->lane[k].stage + s->lane[k].fill;
	return s->dst + (s->chw ? k * s->plane * (s->element == RC_F32 ? 4 : 1) : 0) + at;
}

// commit_output adds n bytes that were written to lane k.
static void commit_output(rc_sink *s, int k, size_t n)
{
	if (s->stream)
		rc_lane_commit(&s->lane[k], n);
}

// put_packed writes n pixels of packed RGB, at most PART.
static void put_packed(rc_sink *s, const uint8_t *rgb, size_t at, size_t n)
{
	if (s->element == RC_U8) {
		memcpy(output_at(s, 0, 3 * at), rgb, 3 * n);
		commit_output(s, 0, 3 * n);
	} else {
		rc_unit_floats(rgb, (float *)output_at(s, 0, 12 * at), 3 * n);
		commit_output(s, 0, 12 * n);
	}
}

void rc_sink_commit(rc_sink *s, size_t n)
{
	if (s->chw && s->element == RC_U8) {
		if (s->stream)
			for (int k = 0; k < 3; k++)
				rc_lane_commit(&s->lane[k], n);
	} else if (s->chw) {
		for (int k = 0; k < 3; k++)
			for (size_t x = 0; x < n; x += PART) {
				size_t m = n - x < PART ? n - x : PART;

				rc_unit_floats(s->rows[k] + x, (float *)output_at(s, k, 4 * (s->at + x)), m);
				commit_output(s, k, 4 * m);
			}
	} else {
		for (size_t x = 0; x < n; x += PART) {
			size_t m = n - x < PART ? n - x : PART;
			uint8_t part[3 * PART + LINE],
				*to = s->element == RC_U8 ? output_at(s, 0, 3 * (s->at + x)) : part;

			rc_interleave(s->rows[0] + x, s->rows[1] + x, s->rows[2] + x, m, to);
			if (s->element == RC_U8)
				commit_output(s, 0, 3 * m);
			else
				put_packed(s, part, s->at + x, m);
		}
	}
	s->at += n;
}

void rc_sink_packed(rc_sink *s, const uint8_t *rgb, size_t n)
{
	for (size_t x = 0; x < n; x += PART) {
		size_t m = n - x < PART ? n - x : PART;

		if (s->chw) {
			uint8_t *to[3];

			rc_sink_room(s, to);
			rc_split(rgb + 3 * x, m, to[0], to[1], to[2]);
			rc_sink_commit(s, m);
		} else {
			put_packed(s, rgb + 3 * x, s->at, m);
			s->at += m;
		}
	}
}

void rc_sink_close(rc_sink *s)
{
	if (!s->stream)
		return;
	for (int k = 0; k < (s->chw ? 3 : 1); k++)
		rc_lane_close(&s->lane[k]);
	rc_fence();
}
