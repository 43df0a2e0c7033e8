// The door of internal/inflate to libdeflate. It announces itself to the program that links it (rc_inflate_native, shim.c there).
#include <stddef.h>
#include "libdeflate.h"

typedef int (*rc_inflate_func)(int kind, const void *in, size_t in_size, void *out, size_t room, size_t *read, size_t *written);
extern rc_inflate_func rc_inflate_native;

// kind: 0 raw deflate, 1 zlib, 2 one member of gzip. Gives 0; 1: bad data, or data that ends early; 2: out is too small; 3: no memory.
static int inflate(int kind, const void *in, size_t in_size, void *out, size_t room, size_t *read, size_t *written)
{
	struct libdeflate_decompressor *d = libdeflate_alloc_decompressor();
	if (!d)
		return 3;
	enum libdeflate_result r;
	switch (kind) {
	case 0: r = libdeflate_deflate_decompress_ex(d, in, in_size, out, room, read, written); break;
	case 1: r = libdeflate_zlib_decompress_ex(d, in, in_size, out, room, read, written); break;
	default: r = libdeflate_gzip_decompress_ex(d, in, in_size, out, room, read, written); break;
	}
	libdeflate_free_decompressor(d);
	switch (r) {
	case LIBDEFLATE_SUCCESS: return 0;
	case LIBDEFLATE_INSUFFICIENT_SPACE: return 2;
	default: return 1;
	}
}

__attribute__((constructor)) static void announce(void) { rc_inflate_native = inflate; }
