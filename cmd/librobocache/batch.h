/* A batch as it crosses the border: tensors as DLPack (https://dmlc.github.io/dlpack), which torch, NumPy, JAX and CuPy read without a copy.
 * For the sources of the library; robocache.h is what clients read. */
#ifndef ROBOCACHE_BATCH_H
#define ROBOCACHE_BATCH_H

#include <stdint.h>
#include "robocache.h"

struct robocache_tensor {
	DLManagedTensor dl; /* first: deleters get its address */
	robocache_batch *batch;
	int32_t group;
};

/* One allocation: this, refs, tensors, shapes, text. Freed with the last of: a group's memory, the engine's interest. */
struct robocache_batch {
	int64_t handle;
	int32_t pid; /* of the process whose Go runtime made it: a forked child must not call it */
	int32_t tensors, groups;
	int32_t arrived; /* atomic: 0 with the engine, 1 with the client, 2 taken back */
	int32_t left;    /* atomic: groups not given back, and the engine's interest */
	int32_t *refs;   /* atomic, a group each: its tensors that are alive, and 1 until it arrived */
	struct robocache_tensor *list;
	char *text;
};

/* Seen by the library's own sources only. */
#define OWN __attribute__((visibility("hidden")))
OWN robocache_batch *robocache_batch_new(int64_t handle, int32_t tensors, int32_t groups, int64_t dims, int64_t text, int64_t **shapes);
OWN int32_t robocache_batch_settle(robocache_batch *b, int32_t how);
OWN void robocache_batch_forget(robocache_batch *b);
OWN extern void (*const robocache_deleter)(DLManagedTensor *);

#endif
