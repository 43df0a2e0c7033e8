//go:build cgo

// Writes of results that are not read soon. A batch is larger than the caches. A normal store would
// first read the cache line that it replaces, and evict data that others need. A lane collects
// bytes in the first-level cache and writes whole lines that bypass the caches.

#include "internal.h"

#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>
#define X86 1
#endif

#ifdef X86
__attribute__((target("avx2"))) static void stream_avx2(uint8_t *dst, const uint8_t *src, size_t n)
{
	for (size_t i = 0; i < n; i += LINE) {
		__m256i a = _mm256_loadu_si256((const __m256i *)(src + i)),
				b = _mm256_loadu_si256((const __m256i *)(src + i + 32));

		_mm256_stream_si256((__m256i *)(dst + i), a);
		_mm256_stream_si256((__m256i *)(dst + i + 32), b);
	}
}
#endif

int rc_can_stream(void)
{
#ifdef X86
	return __builtin_cpu_supports("avx2");
#else
	return 0;
#endif
}

void rc_fence(void)
{
#ifdef X86
	_mm_sfence(); // stores that bypass the caches are ordered only by a fence
#endif
}

void rc_prefetch(const uint8_t *p, size_t n)
{
	for (size_t i = 0; i < n; i += LINE)
		__builtin_prefetch(p + i, 0, 0);
}

void rc_lane_open(rc_lane *l, uint8_t *dst)
{
	l->fill = l->skip = (uintptr_t)dst & (LINE - 1);
	l->dst = dst - l->fill;
}

void rc_lane_commit(rc_lane *l, size_t n)
{
	size_t whole, from = 0;

	l->fill += n;
	whole = l->fill & ~(size_t)(LINE - 1);
	if (!whole)
		return;
	if (l->skip) { // the first line also contains other data
		memcpy(l->dst + l->skip, l->stage + l->skip, LINE - l->skip);
		l->skip = 0;
		from = LINE;
	}
#ifdef X86
	stream_avx2(l->dst + from, l->stage + from, whole - from);
#else
	memcpy(l->dst + from, l->stage + from, whole - from);
#endif
	l->dst += whole;
	l->fill -= whole;
	if (l->fill)
		// may copy more bytes than are valid, but stays inside the stage
		memcpy(l->stage, l->stage + whole, LINE);
}

void rc_lane_close(rc_lane *l) { memcpy(l->dst + l->skip, l->stage + l->skip, l->fill - l->skip); }

void rc_copy(uint8_t *dst, const uint8_t *src, size_t n)
{
	size_t head = -(uintptr_t)dst & (LINE - 1), whole;

	if (n < COPY_FROM || !rc_can_stream()) {
		memcpy(dst, src, n);
		return;
	}
#ifdef X86
	memcpy(dst, src, head);
	whole = (n - head) & ~(size_t)(LINE - 1);
	stream_avx2(dst + head, src + head, whole);
	head += whole;
	memcpy(dst + head, src + head, n - head);
	rc_fence();
#endif
}
