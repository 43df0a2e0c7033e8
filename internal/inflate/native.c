//go:build cgo && linux

#include <stddef.h>

// Set before main by the object of scripts/native/deflate.c; stays empty where that is not linked.
__attribute__((visibility("hidden"))) int (*rc_inflate_native)(int kind, const void *in, size_t in_size, void *out, size_t room, size_t *read, size_t *written);
