//go:build cgo

/* Defines the calls of robocache.h. Each one passes its name to Go, which has a table of them. */
#include <stdint.h>
extern int32_t robocacheServe(char *name, int64_t handle, char *json_in, int32_t timeout_ms,
			      int64_t *ticket, char **json_out);
#define ROBOCACHE_CALL(name) \
	int32_t name(int64_t handle, char *json_in, int32_t timeout_ms, int64_t *ticket, \
		     char **json_out) \
	{ \
		return robocacheServe(#name, handle, json_in, timeout_ms, ticket, json_out); \
	} \
	_Static_assert(1, "")

#include "batch.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Frees the memory of a group; implemented in Go. */
extern void robocache_release_group(int64_t handle, int32_t group);

/* release_batch frees b if its last group, or the engine, has released it. */
static void release_batch(robocache_batch *b) {
	if (__atomic_sub_fetch(&b->left, 1, __ATOMIC_ACQ_REL) == 0)
		free(b);
}

/* release_tensor drops a reference to a group, and frees the group with the last one. */
static void release_tensor(robocache_batch *b, int32_t group) {
	if (__atomic_sub_fetch(&b->refs[group], 1, __ATOMIC_ACQ_REL) != 0)
		return;
	if (b->pid == (int32_t)getpid())
		robocache_release_group(b->handle, group);
	release_batch(b);
}

static void deleter(DLManagedTensor *t) {
	struct robocache_tensor *own = (struct robocache_tensor *)t;
	release_tensor(own->batch, own->group);
}

void (*const robocache_deleter)(DLManagedTensor *) = deleter;

/* add_reference adds a reference to a group. It returns 0 if the group was freed already. */
static int add_reference(robocache_batch *b, int32_t group) {
	int32_t n = __atomic_load_n(&b->refs[group], __ATOMIC_ACQUIRE);
	while (n > 0)
		if (__atomic_compare_exchange_n(&b->refs[group], &n, n + 1, 0, __ATOMIC_ACQ_REL,
						__ATOMIC_ACQUIRE))
			return 1;
	return 0;
}

/* robocache_batch_new allocates a batch. *shapes gets space for dims extents. It returns NULL if
 * there is no memory. */
robocache_batch *robocache_batch_new(int64_t handle, int32_t tensors, int32_t groups, int64_t dims,
				     int64_t text, int64_t **shapes) {
	size_t list = sizeof(robocache_batch);
	size_t shape = list + (size_t)tensors * sizeof(struct robocache_tensor);
	size_t refs = shape + (size_t)dims * sizeof(int64_t);
	size_t words = refs + (size_t)groups * sizeof(int32_t);
	char *p = malloc(words + (size_t)text);
	if (p == NULL)
		return NULL;
	robocache_batch *b = (robocache_batch *)p;
	memset(b, 0, sizeof *b);
	b->handle = handle;
	b->pid = (int32_t)getpid();
	b->tensors = tensors;
	b->groups = groups;
	b->left = groups + 1;
	b->list = (struct robocache_tensor *)(p + list);
	b->refs = (int32_t *)(p + refs);
	for (int32_t g = 0; g < groups; g++)
		b->refs[g] = 1;
	b->text = p + words;
	*shapes = (int64_t *)(p + shape);
	return b;
}

/* robocache_batch_settle marks a delivered batch as acknowledged (1) or taken back (2). Only the
 * first call has an effect; it returns 1, later calls return 0. */
int32_t robocache_batch_settle(robocache_batch *b, int32_t how) {
	int32_t pending = 0;
	if (!__atomic_compare_exchange_n(&b->arrived, &pending, how, 0, __ATOMIC_ACQ_REL,
					 __ATOMIC_ACQUIRE))
		return 0;
	for (int32_t g = 0, n = b->groups; g < n; g++)
		release_tensor(b, g);
	return 1;
}

/* robocache_batch_forget releases the engine's reference. The engine must not use b afterwards. */
void robocache_batch_forget(robocache_batch *b) { release_batch(b); }

void robocache_arrived(robocache_batch *b) { robocache_batch_settle(b, 1); }

DLManagedTensor *robocache_tensor(robocache_batch *b, int32_t i) {
	if (i < 0 || i >= b->tensors || !add_reference(b, b->list[i].group))
		return NULL;
	return &b->list[i].dl;
}

/* Functions of CPython, set by the client: the library is not linked to a version of Python. */
static struct {
	void *(*capsule_new)(void *, const char *, void (*)(void *));
	int (*capsule_is)(void *, const char *);
	void *(*capsule_pointer)(void *, const char *);
	void *(*list_new)(ptrdiff_t);
	int (*list_set)(void *, ptrdiff_t, void *);
	void (*decref)(void *);
} py;

void robocache_python(void **functions) { memcpy(&py, functions, sizeof py); }

/* uncapsule releases the tensor of a capsule that was not consumed. */
static void uncapsule(void *c) {
	if (py.capsule_is(c, "dltensor"))
		deleter(py.capsule_pointer(c, "dltensor"));
}

/* robocache_capsules creates all capsules in one call, so that no Python signal handler runs in
 * between. Each tensor is then either with the engine or in a capsule. */
void *robocache_capsules(robocache_batch *b) {
	void *list = py.list_new(b->tensors);
	for (int32_t i = 0; list != NULL && i < b->tensors; i++) {
		DLManagedTensor *t = robocache_tensor(b, i);
		void *c = t == NULL ? NULL : py.capsule_new(t, "dltensor", uncapsule);
		if (c == NULL) {
			if (t != NULL)
				t->deleter(t);
			py.decref(list);
			return t == NULL ? py.list_new(0) : NULL; /* taken back, or a Python error */
		}
		py.list_set(list, i, c);
	}
	return list;
}
