//go:build cgo && linux

#include <stddef.h>

// Pointer to the decompressor, set before main by the object of scripts/native/deflate.c. It stays NULL if
// that object is not linked.
__attribute__((visibility("hidden"))) int (*rc_inflate_native)(
	int kind, const void *in, size_t in_size,
	void *out, size_t room, size_t *read, size_t *written);
