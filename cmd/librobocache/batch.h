/* A batch as the client receives it. Its tensors are DLPack (https://dmlc.github.io/dlpack), which
 * torch, NumPy, JAX and CuPy read without a copy. This header is for the sources of the library;
 * clients read robocache.h. */
#ifndef ROBOCACHE_BATCH_H
#define ROBOCACHE_BATCH_H

#include <stdint.h>
#include "robocache.h"

struct robocache_tensor {
	DLManagedTensor dl; /* first: deleters get its address */
	robocache_batch *batch;
	int32_t group;
};

/* One allocation holds this struct, tensors, shapes, refs and text. It is freed when all groups are
 * released and the engine has called robocache_batch_forget. */
struct robocache_batch {
	int64_t handle;
	int32_t pid; /* of the process whose Go runtime made it: a forked child must not call it */
	int32_t tensors, groups;
	int32_t arrived; /* atomic: 0 not acknowledged, 1 acknowledged, 2 taken back */
	int32_t left;    /* atomic: number of groups not released, plus 1 for the engine */
	int32_t *refs;   /* atomic, per group: number of live tensors, plus 1 until acknowledged */
	struct robocache_tensor *list;
	char *text;
};

/* These functions are visible only in the library's own sources. */
#define OWN __attribute__((visibility("hidden")))
OWN robocache_batch *robocache_batch_new(int64_t handle, int32_t tensors, int32_t groups,
					 int64_t dims, int64_t text, int64_t **shapes);
OWN int32_t robocache_batch_settle(robocache_batch *b, int32_t how);
OWN void robocache_batch_forget(robocache_batch *b);
OWN extern void (*const robocache_deleter)(DLManagedTensor *);

#endif
