//go:build cgo

// Conversions of pixels to the layouts of tensors. The arithmetic of yuv420 is that of swscale's
// vector code for unscaled yuv420p to rgb24 (16-bit products of which the high half is kept). The
// results are bit-identical: TestKernelEqualsSwscale compares them.

#include "internal.h"

#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>
#define X86 1
#elif defined(__aarch64__)
#include <arm_neon.h>
#define NEON 1
#endif

// mul_high returns the high half of a 16-bit product.
static inline int mul_high(int a, int b) { return (a * b) >> 16; }

static inline int sat16(int v) { return v < -32768 ? -32768 : v > 32767 ? 32767 : v; }

static inline uint8_t sat8(int v) { return v < 0 ? 0 : v > 255 ? 255 : v; }

// yuv420_plain converts pixels from to to of one row. It is the reference for the vector code.
static void yuv420_plain(
	const uint8_t *y, const uint8_t *u, const uint8_t *v, int from, int to, const rc_coeff *c,
	uint8_t *r, uint8_t *g, uint8_t *b)
{
	for (int x = from; x < to; x++) {
		int uu = u[x >> 1] * 8 - 1024, vv = v[x >> 1] * 8 - 1024;
		int yy = mul_high(y[x] * 8 - c->y_offset, c->y);

		r[x] = sat8(sat16(yy + mul_high(vv, c->rv)));
		g[x] = sat8(sat16(yy + sat16(mul_high(uu, c->gu) + mul_high(vv, c->gv))));
		b[x] = sat8(sat16(yy + mul_high(uu, c->bu)));
	}
}

#ifdef X86
typedef struct lanes {
	__m256i y, y_offset, rv, gu, gv, bu, chroma, low, zip;
} lanes;

// convert_row32 converts 32 pixels of one row. rv, guv and bu are the chroma terms of its 16 pairs.
__attribute__((target("avx2"))) static inline void convert_row32(
	const uint8_t *y, const lanes *k, __m256i rv, __m256i guv, __m256i bu, uint8_t *r, uint8_t *g,
	uint8_t *b)
{
	__m256i yy = _mm256_loadu_si256((const __m256i *)y);
	__m256i even = _mm256_and_si256(yy, k->low), odd = _mm256_srli_epi16(yy, 8);

	even = _mm256_mulhi_epi16(_mm256_sub_epi16(_mm256_slli_epi16(even, 3), k->y_offset), k->y);
	odd = _mm256_mulhi_epi16(_mm256_sub_epi16(_mm256_slli_epi16(odd, 3), k->y_offset), k->y);
	_mm256_storeu_si256(
		(__m256i *)r,
		_mm256_shuffle_epi8(
			_mm256_packus_epi16(_mm256_adds_epi16(even, rv), _mm256_adds_epi16(odd, rv)), k->zip));
	_mm256_storeu_si256(
		(__m256i *)g,
		_mm256_shuffle_epi8(
			_mm256_packus_epi16(_mm256_adds_epi16(even, guv), _mm256_adds_epi16(odd, guv)),
			k->zip));
	_mm256_storeu_si256(
		(__m256i *)b,
		_mm256_shuffle_epi8(
			_mm256_packus_epi16(_mm256_adds_epi16(even, bu), _mm256_adds_epi16(odd, bu)), k->zip));
}

__attribute__((target("avx2"))) static void yuv420_avx2(
	const uint8_t *y, int ys, const uint8_t *u, const uint8_t *v, int width, int rows,
	const rc_coeff *c, int ahead, uint8_t *r, uint8_t *g, uint8_t *b, ptrdiff_t stride)
{
	lanes k = {
		.y = _mm256_set1_epi16(c->y),
		.y_offset = _mm256_set1_epi16(c->y_offset),
		.rv = _mm256_set1_epi16(c->rv),
		.gu = _mm256_set1_epi16(c->gu),
		.gv = _mm256_set1_epi16(c->gv),
		.bu = _mm256_set1_epi16(c->bu),
		.chroma = _mm256_set1_epi16(1024),
		.low = _mm256_set1_epi16(255),
		.zip = _mm256_setr_epi8(
			0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15, 0, 8, 1, 9, 2, 10, 3, 11, 4, 12,
			5, 13, 6, 14, 7, 15),
	};
	int even = width & ~1;

	for (int x = 0; x < even; x += 32) {
		// The last block overlaps the previous one: the same bytes are written twice, and none
		// outside.
		if (x > even - 32)
			x = even - 32;
		if (ahead) {
			_mm_prefetch((const char *)(y + ahead + x), _MM_HINT_NTA);
			_mm_prefetch((const char *)(y + ys + ahead + x), _MM_HINT_NTA);
			_mm_prefetch((const char *)(u + (ahead >> 2) + x / 2), _MM_HINT_NTA);
			_mm_prefetch((const char *)(v + (ahead >> 2) + x / 2), _MM_HINT_NTA);
		}
		__m256i uu = _mm256_cvtepu8_epi16(_mm_loadu_si128((const __m128i *)(u + x / 2)));
		__m256i vv = _mm256_cvtepu8_epi16(_mm_loadu_si128((const __m128i *)(v + x / 2)));
		uu = _mm256_subs_epi16(_mm256_slli_epi16(uu, 3), k.chroma);
		vv = _mm256_subs_epi16(_mm256_slli_epi16(vv, 3), k.chroma);
		__m256i rv = _mm256_mulhi_epi16(vv, k.rv), bu = _mm256_mulhi_epi16(uu, k.bu);
		__m256i guv = _mm256_adds_epi16(_mm256_mulhi_epi16(uu, k.gu), _mm256_mulhi_epi16(vv, k.gv));
		convert_row32(y + x, &k, rv, guv, bu, r + x, g + x, b + x);
		if (rows > 1)
			convert_row32(
				y + ys + x, &k, rv, guv, bu, r + stride + x, g + stride + x, b + stride + x);
	}
}

__attribute__((target("ssse3"))) static size_t deinterleave_ssse3(
	const uint8_t *p, size_t n, uint8_t *r, uint8_t *g, uint8_t *b)
{
	const char o = -128;
	const __m128i r0 = _mm_setr_epi8(0, 3, 6, 9, 12, 15, o, o, o, o, o, o, o, o, o, o),
				  r1 = _mm_setr_epi8(o, o, o, o, o, o, 2, 5, 8, 11, 14, o, o, o, o, o),
				  r2 = _mm_setr_epi8(o, o, o, o, o, o, o, o, o, o, o, 1, 4, 7, 10, 13);
	const __m128i g0 = _mm_setr_epi8(1, 4, 7, 10, 13, o, o, o, o, o, o, o, o, o, o, o),
				  g1 = _mm_setr_epi8(o, o, o, o, o, 0, 3, 6, 9, 12, 15, o, o, o, o, o),
				  g2 = _mm_setr_epi8(o, o, o, o, o, o, o, o, o, o, o, 2, 5, 8, 11, 14);
	const __m128i b0 = _mm_setr_epi8(2, 5, 8, 11, 14, o, o, o, o, o, o, o, o, o, o, o),
				  b1 = _mm_setr_epi8(o, o, o, o, o, 1, 4, 7, 10, 13, o, o, o, o, o, o),
				  b2 = _mm_setr_epi8(o, o, o, o, o, o, o, o, o, o, 0, 3, 6, 9, 12, 15);
	size_t x = 0;

	for (; x + 16 <= n; x += 16) {
		__m128i a = _mm_loadu_si128((const __m128i *)(p + 3 * x)),
				m = _mm_loadu_si128((const __m128i *)(p + 3 * x + 16)),
				z = _mm_loadu_si128((const __m128i *)(p + 3 * x + 32));
		_mm_storeu_si128(
			(__m128i *)(r + x), _mm_or_si128(
									_mm_or_si128(_mm_shuffle_epi8(a, r0), _mm_shuffle_epi8(m, r1)),
									_mm_shuffle_epi8(z, r2)));
		_mm_storeu_si128(
			(__m128i *)(g + x), _mm_or_si128(
									_mm_or_si128(_mm_shuffle_epi8(a, g0), _mm_shuffle_epi8(m, g1)),
									_mm_shuffle_epi8(z, g2)));
		_mm_storeu_si128(
			(__m128i *)(b + x), _mm_or_si128(
									_mm_or_si128(_mm_shuffle_epi8(a, b0), _mm_shuffle_epi8(m, b1)),
									_mm_shuffle_epi8(z, b2)));
	}
	return x;
}

__attribute__((target("ssse3"))) static size_t interleave_ssse3(
	const uint8_t *r, const uint8_t *g, const uint8_t *b, size_t n, uint8_t *rgb)
{
	const char o = -128;
	const __m128i r0 = _mm_setr_epi8(0, o, o, 1, o, o, 2, o, o, 3, o, o, 4, o, o, 5),
				  g0 = _mm_setr_epi8(o, 0, o, o, 1, o, o, 2, o, o, 3, o, o, 4, o, o),
				  b0 = _mm_setr_epi8(o, o, 0, o, o, 1, o, o, 2, o, o, 3, o, o, 4, o);
	const __m128i r1 = _mm_setr_epi8(o, o, 6, o, o, 7, o, o, 8, o, o, 9, o, o, 10, o),
				  g1 = _mm_setr_epi8(5, o, o, 6, o, o, 7, o, o, 8, o, o, 9, o, o, 10),
				  b1 = _mm_setr_epi8(o, 5, o, o, 6, o, o, 7, o, o, 8, o, o, 9, o, o);
	const __m128i r2 = _mm_setr_epi8(o, 11, o, o, 12, o, o, 13, o, o, 14, o, o, 15, o, o),
				  g2 = _mm_setr_epi8(o, o, 11, o, o, 12, o, o, 13, o, o, 14, o, o, 15, o),
				  b2 = _mm_setr_epi8(10, o, o, 11, o, o, 12, o, o, 13, o, o, 14, o, o, 15);
	size_t x = 0;

	for (; x + 16 <= n; x += 16) {
		__m128i rr = _mm_loadu_si128((const __m128i *)(r + x)),
				gg = _mm_loadu_si128((const __m128i *)(g + x)),
				bb = _mm_loadu_si128((const __m128i *)(b + x));
		_mm_storeu_si128(
			(__m128i *)(rgb + 3 * x),
			_mm_or_si128(
				_mm_or_si128(_mm_shuffle_epi8(rr, r0), _mm_shuffle_epi8(gg, g0)),
				_mm_shuffle_epi8(bb, b0)));
		_mm_storeu_si128(
			(__m128i *)(rgb + 3 * x + 16),
			_mm_or_si128(
				_mm_or_si128(_mm_shuffle_epi8(rr, r1), _mm_shuffle_epi8(gg, g1)),
				_mm_shuffle_epi8(bb, b1)));
		_mm_storeu_si128(
			(__m128i *)(rgb + 3 * x + 32),
			_mm_or_si128(
				_mm_or_si128(_mm_shuffle_epi8(rr, r2), _mm_shuffle_epi8(gg, g2)),
				_mm_shuffle_epi8(bb, b2)));
	}
	return x;
}

// Computes v / 255 with one rounding: the product with the second part of the quotient is added
// before rounding. The result equals the division for all 256 values.
__attribute__((target("avx2,fma"))) static size_t unit_floats_fma(
	const uint8_t *src, float *dst, size_t n)
{
	const float first = 1.0f / 255, rest = (float)(1.0 / 255 - (double)(1.0f / 255));
	const __m256 one = _mm256_set1_ps(first), two = _mm256_set1_ps(rest);
	size_t i = 0;

	for (; i + 8 <= n; i += 8) {
		__m256 v =
			_mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(src + i))));

		_mm256_storeu_ps(dst + i, _mm256_fmadd_ps(v, one, _mm256_mul_ps(v, two)));
	}
	return i;
}
#endif

#ifdef NEON
// mul_high8 returns (a * b) >> 16 of eight values.
static inline int16x8_t mul_high8(int16x8_t a, int16_t b)
{
	return vuzp2q_s16(
		vreinterpretq_s16_s32(vmull_n_s16(vget_low_s16(a), b)),
		vreinterpretq_s16_s32(vmull_high_n_s16(a, b)));
}

static inline void put16(uint8_t *to, int16x8_t even, int16x8_t odd, int16x8_t chroma)
{
	vst2_u8(
		to, ((uint8x8x2_t){
				{ vqmovun_s16(vqaddq_s16(even, chroma)), vqmovun_s16(vqaddq_s16(odd, chroma)) } }));
}

static inline int16x8_t scale_by_8(uint8x8_t v, int16_t offset)
{
	return vsubq_s16(vreinterpretq_s16_u16(vshll_n_u8(v, 3)), vdupq_n_s16(offset));
}

static void yuv420_neon(
	const uint8_t *y, int ys, const uint8_t *u, const uint8_t *v, int width, int rows,
	const rc_coeff *c, uint8_t *r, uint8_t *g, uint8_t *b, ptrdiff_t stride)
{
	int even = width & ~1;

	for (int x = 0; x < even; x += 16) {
		// The last block overlaps the previous one: the same bytes are written twice, and none
		// outside.
		if (x > even - 16)
			x = even - 16;
		int16x8_t uu = scale_by_8(vld1_u8(u + x / 2), 1024),
				  vv = scale_by_8(vld1_u8(v + x / 2), 1024);
		int16x8_t rv = mul_high8(vv, c->rv), bu = mul_high8(uu, c->bu),
				  guv = vqaddq_s16(mul_high8(uu, c->gu), mul_high8(vv, c->gv));

		for (int i = 0; i < rows; i++) {
			uint8x8x2_t yy = vld2_u8(y + i * ys + x);
			int16x8_t one = mul_high8(scale_by_8(yy.val[0], c->y_offset), c->y),
					  two = mul_high8(scale_by_8(yy.val[1], c->y_offset), c->y);

			put16(r + i * stride + x, one, two, rv);
			put16(g + i * stride + x, one, two, guv);
			put16(b + i * stride + x, one, two, bu);
		}
	}
}
#endif

void rc_yuv420_rows(
	const uint8_t *y, int ys, const uint8_t *u, const uint8_t *v, int width, int rows,
	const rc_coeff *c, int ahead, uint8_t *r, uint8_t *g, uint8_t *b, ptrdiff_t stride)
{
	int done = 0;

#ifdef X86
	if (width >= 32 && __builtin_cpu_supports("avx2")) {
		yuv420_avx2(y, ys, u, v, width, rows, c, ahead, r, g, b, stride);
		done = width & ~1;
	}
#elif defined(NEON)
	if (width >= 16) {
		yuv420_neon(y, ys, u, v, width, rows, c, r, g, b, stride);
		done = width & ~1;
	}
#endif
	for (int i = 0; i < rows; i++)
		yuv420_plain(
			y + i * ys, u, v, done, width, c, r + i * stride, g + i * stride, b + i * stride);
}

void rc_split(const uint8_t *rgb, size_t n, uint8_t *r, uint8_t *g, uint8_t *b)
{
	size_t x = 0;

#ifdef X86
	if (__builtin_cpu_supports("ssse3"))
		x = deinterleave_ssse3(rgb, n, r, g, b);
#elif defined(NEON)
	for (; x + 16 <= n; x += 16) {
		uint8x16x3_t p = vld3q_u8(rgb + 3 * x);

		vst1q_u8(r + x, p.val[0]);
		vst1q_u8(g + x, p.val[1]);
		vst1q_u8(b + x, p.val[2]);
	}
#endif
	for (; x < n; x++) {
		r[x] = rgb[3 * x];
		g[x] = rgb[3 * x + 1];
		b[x] = rgb[3 * x + 2];
	}
}

void rc_interleave(const uint8_t *r, const uint8_t *g, const uint8_t *b, size_t n, uint8_t *rgb)
{
	size_t x = 0;

#ifdef X86
	if (__builtin_cpu_supports("ssse3"))
		x = interleave_ssse3(r, g, b, n, rgb);
#elif defined(NEON)
	for (; x + 16 <= n; x += 16)
		vst3q_u8(
			rgb + 3 * x, ((uint8x16x3_t){ { vld1q_u8(r + x), vld1q_u8(g + x), vld1q_u8(b + x) } }));
#endif
	for (; x < n; x++) {
		rgb[3 * x] = r[x];
		rgb[3 * x + 1] = g[x];
		rgb[3 * x + 2] = b[x];
	}
}

void rc_unit_floats(const uint8_t *src, float *dst, size_t n)
{
	size_t i = 0;

#ifdef X86
	if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
		i = unit_floats_fma(src, dst, n);
#endif
	for (; i < n; i++)
		dst[i] = src[i] / 255.0f;
}

void rc_look_up(const uint16_t *codes, const float *table, int n, float *dst)
{
	for (int x = 0; x < n; x++)
		dst[x] = table[codes[x] > 4095 ? 4095 : codes[x]];
}

// rc_rotate rotates a plane of elements clockwise. dst is height × width for 90 and 270 degrees.
void rc_rotate(const uint8_t *src, uint8_t *dst, int width, int height, int element, int degrees)
{
	for (int y = 0; y < height; y++)
		for (int x = 0; x < width; x++) {
			size_t at = degrees == 90    ? (size_t)x * height + (height - 1 - y)
						: degrees == 180 ? (size_t)(height - 1 - y) * width + (width - 1 - x)
										 : (size_t)(width - 1 - x) * height + y;
			memcpy(dst + at * element, src + ((size_t)y * width + x) * element, element);
		}
}
