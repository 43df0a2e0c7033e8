//go:build cgo && linux

#include <stddef.h>

// Set before main by the object of scripts/native/zstd.c; stays empty where that is not linked.
__attribute__((visibility("hidden"))) int (*rc_unzstd_native)(const void *in, size_t in_size, void *out, size_t room, size_t need, int sums, size_t *written);
