//go:build cgo && linux

#include <stddef.h>

// Set before main by the object file of scripts/native/jpeg.c. It stays NULL if that is not linked.
__attribute__((visibility("hidden"))) int (*rc_jpeg_native)(
	const unsigned char *in, size_t size, unsigned char *out, int width, int height, int channels,
	char *msg, size_t room);
