//go:build cgo

/* What CPython's client takes batches with: one call a batch, made of CPython's own functions, which the client found; the library is linked
 * to no version of it. */

#include "batch.h"

#include <stddef.h>
#include <string.h>

typedef void object;

static struct {
	object *(*capsule_new)(void *, const char *, void (*)(object *));
	int (*capsule_is)(object *, const char *);
	void *(*capsule_pointer)(object *, const char *);
	object *(*list_new)(ptrdiff_t);
	int (*list_set)(object *, ptrdiff_t, object *);
	void (*decref)(object *);
	object *(*tuple_new)(ptrdiff_t);
	int (*tuple_set)(object *, ptrdiff_t, object *);
	object *(*integer)(long long);
	long long (*number)(object *);
	object *(*bytes)(const char *, ptrdiff_t);
	void *(*save)(void);
	void (*restore)(void *);
	object *(*function_new)(void *, object *, object *);
} py;

/* DLPack's exchange table, as far as it is used: torch has one from 2.10 on. It makes a tensor in half the time that a capsule takes. */
static const struct {
	uint32_t major, minor;
	void *before, *allocate, *from_tensor;
	int (*to_tensor)(struct robocache_versioned *, object **);
} * exchange;

/* A capsule that nobody consumed gives its tensor back. */
static void uncapsule(object *c) {
	if (py.capsule_is(c, "dltensor")) {
		DLManagedTensor *t = py.capsule_pointer(c, "dltensor");
		t->deleter(t);
	}
}

static object *capsule(robocache_batch *b, int32_t i, int *gone) {
	DLManagedTensor *t = robocache_tensor(b, i);
	if ((*gone = t == NULL))
		return NULL;
	object *c = py.capsule_new(t, "dltensor", uncapsule);
	if (c == NULL)
		t->deleter(t);
	return c;
}

static object *tensor(robocache_batch *b, int32_t i, int *gone) {
	struct robocache_versioned *t = robocache_batch_versioned(b, i);
	if ((*gone = t == NULL))
		return NULL;
	object *made = NULL;
	/* What it steals before it fails, it gives back itself; what not, stays: rather that than twice. */
	return exchange->to_tensor(t, &made) == 0 ? made : NULL;
}

/* All at once: no signal handler of Python runs in between, so each tensor is either with the engine or an object of Python.
 * An empty list where the batch was taken back; NULL where Python has set its exception. */
static object *all(robocache_batch *b, object *(*one)(robocache_batch *, int32_t, int *)) {
	object *list = py.list_new(b->tensors);
	for (int32_t i = 0; list != NULL && i < b->tensors; i++) {
		int gone;
		object *o = one(b, i, &gone);
		if (o == NULL) {
			py.decref(list);
			return gone ? py.list_new(0) : NULL;
		}
		py.list_set(list, i, o);
	}
	return list;
}

void *robocache_capsules(robocache_batch *b) { return all(b, capsule); }

/* Go: the next batch. */
extern int32_t robocache_loader_take(int64_t loader, int64_t epoch, int32_t timeout_ms, robocache_taken *taken, char **json_out);

enum { DONE = 0, PENDING = -1 };

static object *tuple(const long long *numbers, int n, int size) {
	object *t = py.tuple_new(size);
	for (int i = 0; t != NULL && i < n; i++) {
		object *v = py.integer(numbers[i]);
		if (v == NULL) {
			py.decref(t);
			return NULL;
		}
		py.tuple_set(t, i, v);
	}
	return t;
}

/* take(loader, epoch, timeout_ms) → (rows, epoch, seq, batch, how many tensors, these, texts), or (status, json_out). A batch that is finished is given at
 * once, with the GIL held; the wait for another is without it. */
static object *take(object *self, object *const *args, ptrdiff_t n) {
	(void)self;
	if (n != 3)
		return NULL; /* SystemError */
	int64_t loader = py.number(args[0]), epoch = py.number(args[1]);
	int32_t timeout = (int32_t)py.number(args[2]);
	robocache_taken t;
	char *out = NULL;
	int32_t status = robocache_loader_take(loader, epoch, 0, &t, &out);
	if (status == PENDING && timeout != 0) {
		void *thread = py.save();
		status = robocache_loader_take(loader, epoch, timeout, &t, &out);
		py.restore(thread);
	}
	if (status != DONE)
		return tuple((long long[]){status, (intptr_t)out}, 2, 2);
	object *list = all(t.batch, exchange == NULL ? capsule : tensor);
	object *text = list == NULL ? NULL : py.bytes(t.text, t.text_bytes);
	object *got = text == NULL ? NULL : tuple((long long[]){t.rows, t.epoch, t.seq, (intptr_t)t.batch, t.tensors}, 5, 7);
	if (got == NULL) {
		if (text != NULL)
			py.decref(text);
		if (list != NULL)
			py.decref(list);
		return NULL;
	}
	py.tuple_set(got, 5, list);
	py.tuple_set(got, 6, text);
	return got;
}

/* arrived(batch). */
static object *arrived(object *self, object *batch) {
	(void)self;
	robocache_arrived((robocache_batch *)(intptr_t)py.number(batch));
	return py.integer(0);
}

static struct method { /* PyMethodDef, of the stable ABI */
	const char *name;
	void *call;
	int flags;
	const char *doc;
} methods[] = {
	{"take", (void *)take, 0x80 /* METH_FASTCALL */, "The next batch of a loader."},
	{"arrived", (void *)arrived, 0x08 /* METH_O */, "Says that a batch arrived."},
};

void robocache_python(void **functions) { memcpy(&py, functions, sizeof py); }

int32_t robocache_exchange(void *table) {
	exchange = table;
	if (table != NULL && exchange->major != 1)
		exchange = NULL;
	return exchange != NULL;
}

void *robocache_function(int32_t i) {
	return i < 0 || i >= (int32_t)(sizeof methods / sizeof *methods) ? NULL : py.function_new(&methods[i], NULL, NULL);
}
