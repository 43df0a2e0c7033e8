//go:build cgo

// Scales 4:2:0 and 4:2:2 to planes of RGB, row by row, with swscale's bilinear arithmetic in vector
// code. swscale's own code is scalar, and took two thirds of its time. Rows are scaled horizontally
// to 15 bits and kept as long as they are needed. Then they are weighted vertically and converted
// to RGB in one pass. The scaler replaces swscale only for shapes for which convert.c found equal
// results.

#include "internal.h"

#include <stdlib.h>
#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>

#define AVX2 __attribute__((target("avx2")))

// The horizontal filter of rows, in groups of eight results.
typedef struct row_filter {
	int from, to; // samples of a row
	int pairs;    // pairs of taps; 0 if four neighboring results are too far apart for one load
	int loads;    // loads per group: 1, or one per pair
	int steps;    // steps of 16 taps, if pairs is 0
	// offsets to load from: two per load with pairs, for four results each; otherwise one per
	// result
	int *base;
	uint8_t *pick;   // 32 bytes per pair and group: indexes into the two loads
	int16_t *weight; // 16 per pair and group, or 16 per step and result
} row_filter;

struct rc_scaler {
	// shift: log2 of luma rows per chroma row
	int width, height, chroma_height, shift;
	int to_width, to_height;
	row_filter luma, chroma;
	rc_taps down, chroma_down;
	int rounding; // added before the sums of rows are shifted down

	int rows; // of each ring: a power of two
	int16_t *ring[3];
	size_t ring_stride;

	int cy, c0, crv, cgu, cgv, cbu, r0, g0, b0; // see set_color_constants
};

// row_filter_free frees the tables of a filter.
static void row_filter_free(row_filter *a)
{
	free(a->base);
	free(a->pick);
	free(a->weight);
	memset(a, 0, sizeof(*a));
}

// load_at returns the offset of the load of tap pair j, for four results from first on. A load is
// 16 samples, and does not exceed the row.
static int load_at(const row_filter *a, const int *position, int first, int j)
{
	int base = position[first < a->to ? first : a->to - 1] + (a->loads > 1 ? 2 * j : 0);

	return base < a->from - 16 ? base : a->from - 16;
}

// taps_in_reach reports whether every tap is inside its load.
static int taps_in_reach(const row_filter *a, const rc_taps *t, int used)
{
	for (int i = 0; i < a->to; i++)
		for (int j = 0; j < used; j++) {
			int at = t->position[i] + j - load_at(a, t->position, i & ~3, j / 2);

			if (at < 0 || at > 15)
				return 0;
		}
	return 1;
}

// row_filter_make computes the tables that filter rows of from samples to rows of to samples.
static int row_filter_make(row_filter *a, int from, int to)
{
	rc_taps t;
	int groups = (to + 7) / 8, err, used = 0;
	size_t blocks;

	memset(a, 0, sizeof(*a));
	if ((err = rc_taps_make(&t, from, to, 4, 1 << 14)))
		return err;
	a->from = from;
	a->to = to;
	for (int i = 0; i < to; i++)
		for (int j = 0; j < t.taps; j++)
			if (t.coefficient[(size_t)i * t.taps + j] && j >= used)
				used = j + 1;
	a->pairs = (used + 1) / 2;
	a->loads = 1;
	if (!taps_in_reach(a, &t, used)) {
		a->loads = a->pairs;
		if (!taps_in_reach(a, &t, used)) {
			a->pairs = 0;
			a->steps = (used + 15) / 16;
		}
	}
	err = RC_ERR_FORMAT;
	if (from < 16 || from < 16 * a->steps)
		goto end;
	err = RC_ERR_MEMORY;
	blocks = (size_t)groups * (a->pairs ? a->pairs : 8 * a->steps);
	a->base = calloc((size_t)groups * (a->pairs ? 2 * a->loads : 8), sizeof(int));
	a->pick = aligned_alloc(32, blocks * 32);
	a->weight = aligned_alloc(32, blocks * 32);
	if (!a->base || !a->pick || !a->weight)
		goto end;
	memset(a->weight, 0, blocks * 32);
	memset(a->pick, 0x80, blocks * 32);
	if (a->pairs) {
		for (int h = 0; h < 2 * groups; h++)
			for (int j = 0; j < 2 * a->pairs; j++) {
				size_t block = (size_t)(h / 2) * a->pairs + j / 2;
				int base = load_at(a, t.position, 4 * h, j / 2);

				a->base[2 * ((h / 2) * a->loads + (a->loads > 1 ? j / 2 : 0)) + h % 2] = base;
				for (int i = 4 * h; i < 4 * h + 4 && i < to && j < used; i++) {
					size_t word = (h % 2) * 8 + 2 * (i % 4) + j % 2;

					a->pick[32 * block + 2 * word] = (uint8_t)(t.position[i] + j - base);
					a->weight[16 * block + word] = t.coefficient[(size_t)i * t.taps + j];
				}
			}
	} else
		for (int i = 0; i < to; i++) {
			int base = t.position[i] < from - 16 * a->steps ? t.position[i] : from - 16 * a->steps;

			a->base[i] = base;
			for (int j = 0; j < used; j++)
				a->weight[(size_t)16 * a->steps * i + t.position[i] - base + j] =
					t.coefficient[(size_t)i * t.taps + j];
		}
	err = RC_OK;
end:
	rc_taps_free(&t);
	if (err)
		row_filter_free(a);
	return err;
}

AVX2 static inline __m256i pack16(__m256i a, __m256i b)
{
	// Converts two vectors of sums to 16 results of 15 bits, in order.
	return _mm256_permute4x64_epi64(
		_mm256_packs_epi32(_mm256_srai_epi32(a, 7), _mm256_srai_epi32(b, 7)), 0xd8);
}

// load_pair loads 16 samples at each of two offsets.
AVX2 static inline __m256i load_pair(const uint8_t *row, const int *base)
{
	return _mm256_inserti128_si256(
		_mm256_castsi128_si256(_mm_loadu_si128((const __m128i *)(row + base[0]))),
		_mm_loadu_si128((const __m128i *)(row + base[1])), 1);
}

AVX2 static inline __attribute__((always_inline)) __m256i
sum_picked(const row_filter *a, const uint8_t *row, int group, int pairs, int one)
{
	const int *base = a->base + 2 * (size_t)group * (one ? 1 : pairs);
	const __m256i *pick = (const __m256i *)a->pick + (size_t)group * pairs,
				  *weight = (const __m256i *)a->weight + (size_t)group * pairs;
	__m256i in = load_pair(row, base), sum = _mm256_setzero_si256();

	for (int j = 0; j < pairs; j++) {
		if (!one)
			in = load_pair(row, base + 2 * j);
		sum = _mm256_add_epi32(sum, _mm256_madd_epi16(_mm256_shuffle_epi8(in, pick[j]), weight[j]));
	}
	return sum;
}

AVX2 static inline __attribute__((always_inline)) void filter_picked(
	const row_filter *a, const uint8_t *row, int ahead, int16_t *to, int pairs, int one)
{
	int groups = (a->to + 7) / 8;

	for (int g = 0; g < groups; g += 2) {
		_mm_prefetch(
			(const char *)(row + ahead + a->base[2 * (size_t)g * (one ? 1 : pairs)]), _MM_HINT_NTA);
		__m256i first = sum_picked(a, row, g, pairs, one),
				second =
					g + 1 < groups ? sum_picked(a, row, g + 1, pairs, one) : _mm256_setzero_si256();
		_mm256_store_si256((__m256i *)(to + 8 * g), pack16(first, second));
	}
}

AVX2 static inline __m256i sum_loaded(const row_filter *a, const uint8_t *row, int i)
{
	__m256i sum = _mm256_setzero_si256();
	const __m256i *weight = (const __m256i *)a->weight + (size_t)i * a->steps;

	for (int j = 0; j < a->steps; j++)
		sum = _mm256_add_epi32(
			sum,
			_mm256_madd_epi16(
				_mm256_cvtepu8_epi16(_mm_loadu_si128((const __m128i *)(row + a->base[i] + 16 * j))),
				weight[j]));
	return sum;
}

AVX2 static inline __m256i sum_loaded8(const row_filter *a, const uint8_t *row, int i)
{
	__m256i p = _mm256_hadd_epi32(
		_mm256_hadd_epi32(sum_loaded(a, row, i), sum_loaded(a, row, i + 1)),
		_mm256_hadd_epi32(sum_loaded(a, row, i + 2), sum_loaded(a, row, i + 3)));
	__m256i q = _mm256_hadd_epi32(
		_mm256_hadd_epi32(sum_loaded(a, row, i + 4), sum_loaded(a, row, i + 5)),
		_mm256_hadd_epi32(sum_loaded(a, row, i + 6), sum_loaded(a, row, i + 7)));

	return _mm256_add_epi32(
		_mm256_permute2x128_si256(p, q, 0x20), _mm256_permute2x128_si256(p, q, 0x31));
}

// row_filter_apply filters one row to 15-bit values and prefetches the row at distance ahead.
AVX2 static void row_filter_apply(const row_filter *a, const uint8_t *row, int ahead, int16_t *to)
{
	int groups = (a->to + 7) / 8;

	if (!a->pairs) {
		for (int g = 0; g < groups; g += 2) {
			__m256i first = sum_loaded8(a, row, 8 * g),
					second =
						g + 1 < groups ? sum_loaded8(a, row, 8 * g + 8) : _mm256_setzero_si256();

			_mm256_store_si256((__m256i *)(to + 8 * g), pack16(first, second));
		}
	} else if (a->loads > 1) {
		switch (a->pairs) {
		case 4:
			filter_picked(a, row, ahead, to, 4, 0);
			break;
		default:
			filter_picked(a, row, ahead, to, a->pairs, 0);
		}
	} else {
		switch (a->pairs) {
		case 1:
			filter_picked(a, row, ahead, to, 1, 1);
			break;
		case 2:
			filter_picked(a, row, ahead, to, 2, 1);
			break;
		case 3:
			filter_picked(a, row, ahead, to, 3, 1);
			break;
		default:
			filter_picked(a, row, ahead, to, a->pairs, 1);
		}
	}
}

// chroma8 returns eight sums of chroma as values of 0 to 255.
AVX2 static inline __m256i chroma8(
	const int16_t *const *rows, const int *weight, int pairs, int x, __m256i rounding)
{
	__m256i sum = rounding;

	for (int j = 0; j < pairs; j++) {
		__m128i a = _mm_loadu_si128((const __m128i *)(rows[2 * j] + x)),
				b = _mm_loadu_si128((const __m128i *)(rows[2 * j + 1] + x));
		__m256i ab = _mm256_inserti128_si256(
			_mm256_castsi128_si256(_mm_unpacklo_epi16(a, b)), _mm_unpackhi_epi16(a, b), 1);

		sum = _mm256_add_epi32(sum, _mm256_madd_epi16(ab, _mm256_set1_epi32(weight[j])));
	}
	sum = _mm256_srai_epi32(sum, 19);
	return _mm256_min_epi32(_mm256_max_epi32(sum, _mm256_setzero_si256()), _mm256_set1_epi32(255));
}

// put16 writes 16 results: sums of luma plus the chroma term of each pair.
AVX2 static inline void put16(uint8_t *to, __m256i low, __m256i high, __m256i chroma)
{
	__m256i a = _mm256_srai_epi32(_mm256_add_epi32(low, _mm256_unpacklo_epi32(chroma, chroma)), 16);
	__m256i b =
		_mm256_srai_epi32(_mm256_add_epi32(high, _mm256_unpackhi_epi32(chroma, chroma)), 16);
	__m256i words = _mm256_packs_epi32(a, b);

	_mm_storeu_si128(
		(__m128i *)to,
		_mm256_castsi256_si128(_mm256_permute4x64_epi64(_mm256_packus_epi16(words, words), 0x08)));
}

// blend_rows writes one row of RGB from the gathered rows and their weights.
AVX2 static void blend_rows(
	const rc_scaler *s, const int16_t *const *y, const int *wy, int py, const int16_t *const *u,
	const int16_t *const *v, const int *wc, int pc, uint8_t *r, uint8_t *g, uint8_t *b)
{
	const __m256i rounding = _mm256_set1_epi32(s->rounding), cy = _mm256_set1_epi32(s->cy),
				  c0 = _mm256_set1_epi32(s->c0);
	const __m256i crv = _mm256_set1_epi32(s->crv), cgu = _mm256_set1_epi32(s->cgu),
				  cgv = _mm256_set1_epi32(s->cgv), cbu = _mm256_set1_epi32(s->cbu);
	const __m256i r0 = _mm256_set1_epi32(s->r0), g0 = _mm256_set1_epi32(s->g0),
				  b0 = _mm256_set1_epi32(s->b0);

	for (int x = 0; x < s->to_width; x += 16) {
		__m256i low = rounding, high = rounding;

		// The last block overlaps the previous one: the same bytes are written twice, and none
		// outside.
		if (x > s->to_width - 16)
			x = s->to_width - 16;

		for (int j = 0; j < py; j++) {
			__m256i a = _mm256_loadu_si256((const __m256i *)(y[2 * j] + x)),
					c = _mm256_loadu_si256((const __m256i *)(y[2 * j + 1] + x)),
					w = _mm256_set1_epi32(wy[j]);

			low = _mm256_add_epi32(low, _mm256_madd_epi16(_mm256_unpacklo_epi16(a, c), w));
			high = _mm256_add_epi32(high, _mm256_madd_epi16(_mm256_unpackhi_epi16(a, c), w));
		}
		low = _mm256_add_epi32(_mm256_mullo_epi32(_mm256_srai_epi32(low, 19), cy), c0);
		high = _mm256_add_epi32(_mm256_mullo_epi32(_mm256_srai_epi32(high, 19), cy), c0);

		__m256i uu = chroma8(u, wc, pc, x / 2, rounding), vv = chroma8(v, wc, pc, x / 2, rounding);
		__m256i dr = _mm256_add_epi32(_mm256_srai_epi32(_mm256_mullo_epi32(vv, crv), 16), r0);
		__m256i dg = _mm256_add_epi32(
			_mm256_add_epi32(
				_mm256_srai_epi32(_mm256_mullo_epi32(uu, cgu), 16),
				_mm256_srai_epi32(_mm256_mullo_epi32(vv, cgv), 16)),
			g0);
		__m256i db = _mm256_add_epi32(_mm256_srai_epi32(_mm256_mullo_epi32(uu, cbu), 16), b0);

		put16(r + x, low, high, _mm256_mullo_epi32(dr, cy));
		put16(g + x, low, high, _mm256_mullo_epi32(dg, cy));
		put16(b + x, low, high, _mm256_mullo_epi32(db, cy));
	}
}

// set_color_constants expresses swscale's tables as formulas. swscale's result is clip((yb + cy ·
// (Y + place)) >> 16), where chroma determines place, an offset in a table of luma.
static void set_color_constants(rc_scaler *s, int matrix, int full)
{
	rc_matrix m = rc_matrix_of(matrix, full);
	enum { HEADROOM = 512 };
	int place = (full ? 384 : 326) + HEADROOM;

	for (int k = 0; k < 4; k++)
		m.chroma[k] = (m.chroma[k] * (1 << 16) + 0x8000) / m.y;
	s->cy = (int)m.y;
	s->c0 = (int)(-((int64_t)384 << 16) - HEADROOM * m.y - m.offset + 0x8000);
	s->crv = (int)m.rv;
	s->cbu = (int)m.bu;
	s->cgu = (int)m.gu;
	s->cgv = (int)m.gv;
	s->r0 = place - (int)(m.rv >> 9);
	s->b0 = place - (int)(m.bu >> 9);
	s->g0 = place - (int)(m.gu >> 9) - (int)(m.gv >> 9);
}

void rc_scaler_free(rc_scaler *s)
{
	if (!s)
		return;
	row_filter_free(&s->luma);
	row_filter_free(&s->chroma);
	rc_taps_free(&s->down);
	rc_taps_free(&s->chroma_down);
	free(s->ring[0]);
	free(s);
}

int64_t rc_scaler_memory(const rc_scaler *s)
{
	return s ? (int64_t)(s->ring_stride * s->rows * 6)
				   + (int64_t)s->to_width * (s->luma.pairs * 12 + s->luma.steps * 32)
			 : 0;
}

// pairs_add_up reports whether all pairs of weights add up to one. swscale then uses another
// function, without rounding.
static int pairs_add_up(const rc_taps *t, int n)
{
	for (int i = 0; i < n; i++)
		if (t->coefficient[2 * i] + t->coefficient[2 * i + 1] != 4096 || t->coefficient[2 * i] < 0
			|| t->coefficient[2 * i + 1] < 0)
			return 0;
	return 1;
}

rc_scaler *rc_scaler_make(const rc_view *v, int width, int height)
{
	rc_scaler *s;
	int shift = v->format == AV_PIX_FMT_YUV420P || v->format == AV_PIX_FMT_YUVJ420P, taps;

	if (!rc_can_stream()
		|| (!shift && v->format != AV_PIX_FMT_YUV422P && v->format != AV_PIX_FMT_YUVJ422P)
		|| width & 1 || width < 16 || width > MAX_ROW || height < 2 || v->width < 34
		|| v->height < 8 || !(s = calloc(1, sizeof(*s))))
		return NULL;
	s->width = v->width;
	s->height = v->height;
	s->shift = shift;
	s->chroma_height = (v->height + (1 << shift) - 1) >> shift;
	s->to_width = width;
	s->to_height = height;
	if (row_filter_make(&s->luma, v->width, width)
		|| row_filter_make(&s->chroma, (v->width + 1) / 2, width / 2)
		|| rc_taps_make(&s->down, v->height, height, 2, 1 << 12)
		|| rc_taps_make(&s->chroma_down, s->chroma_height, height, 2, 1 << 12))
		goto fail;
	// swscale does not sum a single row of luma.
	if (s->down.taps < 2)
		goto fail;
	s->rounding = 1 << 18;
	if (s->down.taps == 2 && s->chroma_down.taps == 2) {
		if (!pairs_add_up(&s->down, height) || !pairs_add_up(&s->chroma_down, height))
			goto fail;
		s->rounding = 0;
	}
	taps = s->down.taps > s->chroma_down.taps ? s->down.taps : s->chroma_down.taps;
	for (s->rows = 4; s->rows < taps + 1; s->rows *= 2)
		;
	s->ring_stride = ((size_t)width + 63) & ~(size_t)31;
	if (!(s->ring[0] = aligned_alloc(
			  64, (s->ring_stride * s->rows * 3 * sizeof(int16_t) + 63) & ~(size_t)63)))
		goto fail;
	s->ring[1] = s->ring[0] + s->ring_stride * s->rows;
	s->ring[2] = s->ring[1] + s->ring_stride * s->rows;
	memset(s->ring[0], 0, s->ring_stride * s->rows * 3 * sizeof(int16_t));
	set_color_constants(s, v->matrix, v->full);
	return s;
fail:
	rc_scaler_free(s);
	return NULL;
}

int rc_scaler_formula(const rc_scaler *s, rc_formula *f)
{
	const int numbers[10] = { s->rounding, s->cy,  s->c0, s->crv, s->cgu,
							  s->cgv,      s->cbu, s->r0, s->g0,  s->b0 };
	const struct {
		int from, to, align, one;
	} all[4] = { { s->width, s->to_width, 4, 1 << 14 },
				 { (s->width + 1) / 2, s->to_width / 2, 4, 1 << 14 },
				 { s->height, s->to_height, 2, 1 << 12 },
				 { s->chroma_height, s->to_height, 2, 1 << 12 } };

	f->scaled = 1;
	memcpy(f->numbers, numbers, sizeof(numbers));
	for (int k = 0; k < 4; k++) {
		rc_taps t;

		if (rc_taps_make(&t, all[k].from, all[k].to, all[k].align, all[k].one))
			return 0;
		f->taps[k] = t.taps;
		f->size[k] = all[k].to;
		f->position[k] = t.position;
		f->coefficient[k] = t.coefficient;
	}
	return 1;
}

enum { MOST = 64 };

// gather_rows scales the rows that a filter needs into the ring. It returns pointers to them, and
// their weights in pairs.
static int gather_rows(
	const rc_scaler *s, const rc_taps *t, int i, int height, const row_filter *a,
	const uint8_t *const *from, const int *stride, int planes, int *next,
	const int16_t *rows[2][MOST + 1], int *weight)
{
	int first = t->position[i], pairs = (t->taps + 1) / 2;
	const int16_t *c = t->coefficient + (size_t)i * t->taps;

	if (*next < first)
		*next = first;
	for (; *next < first + t->taps && *next < height; ++*next)
		for (int k = 0; k < planes; k++)
			row_filter_apply(
				a, from[k] + (ptrdiff_t)*next * stride[k], *next + 2 < height ? 2 * stride[k] : 0,
				s->ring[planes == 1 ? 0 : k + 1] + s->ring_stride * (*next & (s->rows - 1)));
	for (int j = 0; j < 2 * pairs; j++) {
		int row = first + (j < t->taps ? j : 0);

		for (int k = 0; k < planes; k++)
			rows[k][j] = s->ring[planes == 1 ? 0 : k + 1] + s->ring_stride * (row & (s->rows - 1));
	}
	for (int j = 0; j < pairs; j++)
		weight[j] = (uint16_t)c[2 * j]
					| (int)((unsigned)(2 * j + 1 < t->taps ? (uint16_t)c[2 * j + 1] : 0) << 16);
	return pairs;
}

void rc_scaler_run(const rc_scaler *s, const rc_view *v, rc_sink *sink)
{
	const int16_t *luma[2][MOST + 1], *chroma[2][MOST + 1];
	int wy[MOST], wc[MOST], next = 0, chroma_next = 0;

	for (int i = 0; i < s->to_height; i++) {
		int py = gather_rows(
			s, &s->down, i, s->height, &s->luma, v->data, v->stride, 1, &next, luma, wy);
		int pc = gather_rows(
			s, &s->chroma_down, i, s->chroma_height, &s->chroma, v->data + 1, v->stride + 1, 2,
			&chroma_next, chroma, wc);
		uint8_t *to[3];

		rc_sink_room(sink, to);
		blend_rows(s, luma[0], wy, py, chroma[0], chroma[1], wc, pc, to[0], to[1], to[2]);
		rc_sink_commit(sink, s->to_width);
	}
}
#else
rc_scaler *rc_scaler_make(const rc_view *v, int width, int height) { return NULL; }

void rc_scaler_run(const rc_scaler *s, const rc_view *v, rc_sink *sink) {}

void rc_scaler_free(rc_scaler *s) {}

int64_t rc_scaler_memory(const rc_scaler *s) { return 0; }

int rc_scaler_formula(const rc_scaler *s, rc_formula *f) { return 0; }
#endif
