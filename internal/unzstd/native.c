//go:build cgo && linux

#include <stddef.h>

// Pointer to the decompressor, set before main by the object of scripts/native/zstd.c. It stays NULL if
// that object is not linked.
__attribute__((visibility("hidden"))) int (*rc_unzstd_native)(
	const void *in, size_t in_size,
	void *out, size_t room, size_t need, int sums, size_t *written);
