// The door of internal/unzstd to libzstd's decoder. It announces itself to the program that links it (rc_unzstd_native, native.c there).
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <unistd.h>
#define ZSTD_STATIC_LINKING_ONLY
#include "zstd.h"
#include "zstd_errors.h"

typedef int (*rc_unzstd_func)(const void *in, size_t in_size, void *out, size_t room, size_t need, int sums, size_t *written);
extern rc_unzstd_func rc_unzstd_native;

// Contexts that nobody uses, at most one a core: 160 KB each, all that this file ever allocates.
enum { MOST = 256 };
static _Atomic(ZSTD_DCtx *) idle[MOST];
static int places = 1;

static ZSTD_DCtx *take(void)
{
	for (int i = 0; i < places; i++) {
		ZSTD_DCtx *d = atomic_load_explicit(&idle[i], memory_order_relaxed);
		if (d && (d = atomic_exchange(&idle[i], NULL)))
			return d;
	}
	return ZSTD_createDCtx();
}

static void give(ZSTD_DCtx *d)
{
	for (int i = 0; i < places; i++) {
		ZSTD_DCtx *none = NULL;
		if (atomic_compare_exchange_strong(&idle[i], &none, d))
			return;
	}
	ZSTD_freeDCtx(d);
}

static int code(size_t r)
{
	switch (ZSTD_getErrorCode(r)) {
	case ZSTD_error_no_error: return 0;
	case ZSTD_error_dstSize_tooSmall: return 2;
	case ZSTD_error_memory_allocation: return 3;
	default: return 1;
	}
}

// part decodes block by block, until need bytes are there. What was written before a failure is right.
static int part(ZSTD_DCtx *d, const uint8_t *in, size_t in_size, uint8_t *out, size_t room, size_t need, size_t *written)
{
	while (in_size > 0) {
		size_t r = ZSTD_decompressBegin(d);
		for (size_t n; !ZSTD_isError(r) && (n = ZSTD_nextSrcSizeToDecompress(d)) > 0;) {
			if (*written >= need)
				return 0;
			if (n > in_size)
				return 1;
			r = ZSTD_decompressContinue(d, out + *written, room - *written, in, n);
			if (ZSTD_isError(r))
				break;
			*written += r;
			in += n;
			in_size -= n;
		}
		if (ZSTD_isError(r))
			return code(r);
	}
	return 0;
}

// All frames where need is SIZE_MAX, else the first need bytes or a little more. The output is its own window: nothing else is allocated for it.
// Gives 0; 1: bad data, or data that ends early; 2: out is too small; 3: no memory.
static int decode(const void *in, size_t in_size, void *out, size_t room, size_t need, int sums, size_t *written)
{
	*written = 0;
	unsigned long long size = ZSTD_getFrameContentSize(in, in_size);
	if (size != ZSTD_CONTENTSIZE_UNKNOWN && size != ZSTD_CONTENTSIZE_ERROR && size > room)
		return 2;
	ZSTD_DCtx *d = take();
	if (!d)
		return 3;
	int c = code(ZSTD_DCtx_setParameter(d, ZSTD_d_forceIgnoreChecksum, sums ? ZSTD_d_validateChecksum : ZSTD_d_ignoreChecksum));
	if (c == 0 && need == SIZE_MAX) {
		size_t r = ZSTD_decompressDCtx(d, out, room, in, in_size);
		c = code(r);
		*written = c == 0 ? r : 0;
	} else if (c == 0) {
		c = part(d, in, in_size, out, room, need, written);
	}
	give(d);
	return c;
}

__attribute__((constructor)) static void announce(void)
{
	long n = sysconf(_SC_NPROCESSORS_ONLN);
	places = n < 1 ? 1 : n > MOST ? MOST : (int)n;
	rc_unzstd_native = decode;
}
