/* librobocache: the C interface of RoboCache, ABI 5. The contract (C1 to C10) is in doc.go beside this file.
 *
 * Calls that are declared by ROBOCACHE_CALL have one shape:
 *
 *     int32_t robocache_x(int64_t handle, char *json_in, int32_t timeout_ms, int64_t *ticket, char **json_out);
 *
 * It returns 0 (done; *json_out holds the answer, or NULL), -1 (still running: *ticket is for robocache_wait; *json_out may hold {"log": lines} to show), -2 (the epoch is over),
 * or the CLI's exit code of an error's class: 1 internal, 2 misuse, 10 not found, 11 malformed, 12 unsupported, 13 resource limit,
 * 75 temporary, 130 interrupted; *json_out then holds {"class", "message", "where", "hint"}. *json_out is given back by robocache_free.
 * timeout_ms below 0 waits for ever. Text is UTF-8. All calls may be made from many threads; none in a forked child of a process that has
 * called the library (open a private copy there, as python/robocache/_engine.py does).
 */
#ifndef ROBOCACHE_H
#define ROBOCACHE_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

int32_t robocache_abi_version(void);
void robocache_free(char *json_out);
void robocache_cancel(int64_t ticket);                  /* gives up a call that is still running */
void robocache_interrupt(int64_t ticket);               /* cancels it too, but robocache_wait still tells its end: of work that cleans up behind itself */

#ifndef ROBOCACHE_CALL
#define ROBOCACHE_CALL(name) int32_t name(int64_t handle, char *json_in, int32_t timeout_ms, int64_t *ticket, char **json_out)
#endif

ROBOCACHE_CALL(robocache_wait);      /* goes on waiting for *ticket */
ROBOCACHE_CALL(robocache_close);     /* handle: dataset, map, loader or op */
ROBOCACHE_CALL(robocache_versions);  /* → {robocache, abi, go, formats, decoder, codecs, threads} */

/* Datasets */
ROBOCACHE_CALL(robocache_open);      /* {uri, format?, memory_budget?, hz?, split?, episodes[]?, map?: a mapping or its file, options?: {name: text}} → {dataset, info} */
ROBOCACHE_CALL(robocache_episode);   /* dataset, {position} → {position, episode_index, length, tasks} */
ROBOCACHE_CALL(robocache_episodes);  /* dataset → {episode_index[], lengths[], tasks[][]}; of a LeRobot dataset {of: info | table} → its own info.json, all columns of its table of episodes */
ROBOCACHE_CALL(robocache_stats);     /* dataset, {count?, keys?, episodes?, frames?: none|sampled|all} → {feature: {min[], max[], mean[], std[], count, quantiles, shape}}: what the dataset brings, or counted now */
ROBOCACHE_CALL(robocache_deal);      /* dataset, edit.Verb "split": {into[], seed?, stratify?, group?, by?} → {names[], parts[][]}: the indices of the episodes of each part */
ROBOCACHE_CALL(robocache_stream);    /* dataset, {position, key, times, values | encoded} → batch: times, values, of neither rows, their number; of rows of varying length values is all entries, beside lengths; encoded: images as stored, beside their bytes, -1 for none */
ROBOCACHE_CALL(robocache_align);     /* dataset, {position, align: align.Config, image_size?} → batch: times, streams, <key>_is_pad */

/* Samples by number. A field with "ragged" has all samples' entries one after the other, and the field behind it ("lengths") how many each has. */
ROBOCACHE_CALL(robocache_map_new);   /* dataset, loader.Config, stats? → {map, len, fields, normalizers[], settled[]} */
ROBOCACHE_CALL(robocache_map_items); /* map, {indices[]} → batch */
ROBOCACHE_CALL(robocache_map_stats); /* map → loader.Stats */

/* Loaders */
/* dataset, loader.Config, stats? → {loader, len, samples, fields, normalizers[], settled[]}, the last two one a source. Of several datasets (handle 0): "sources" in the configuration, a list of
 * {dataset, name?, weight?, rename?, keys?, hz?, align?, anchor?, image_size?, episodes?, normalize?, stats?, compute_stats?, dims?}. "pin_memory": true: batches in page-locked
 * memory, in the context of CUDA device "pin_device" (default: one in use) */
ROBOCACHE_CALL(robocache_loader_new);
/* loader with "raw": true, {rows, backend, device} → {op, buffers[], places[], fields[], outputs[]}: batches hold what was stored, as buffers; "op"
 * (0: none) makes of them what the fields promise. A place is {output, index, offset}: in a buffer, or an output of the caller's. The caller closes op. */
ROBOCACHE_CALL(robocache_loader_finish);
ROBOCACHE_CALL(robocache_loader_state);     /* loader, {before?: seq} → loader.State; it counts the batches that arrived, or those before seq, one of the last 8 */
ROBOCACHE_CALL(robocache_loader_restore);   /* loader, {state, force?} */
ROBOCACHE_CALL(robocache_loader_set_epoch); /* loader, {epoch} */
ROBOCACHE_CALL(robocache_loader_order);     /* loader, {epoch, from?, count?} → batch: order, int64 */
ROBOCACHE_CALL(robocache_loader_locate);    /* loader, {samples[]} → batch: dataset_index, episode, row, int64 */
ROBOCACHE_CALL(robocache_loader_stats);     /* loader → loader.Stats and epoch */

/* Operations on memory of the client's
 * op_new: {op: "fuse" | "fuse_grad" | "voxelize" | "unproject" | "integrate", backend: "cpu" | "reference" | "cuda", device, tensors: [{dtype, shape[],
 * stride[] in elements}], has: [the optional tensors that are there], and the options of kernel's operation of that name} → {op, scratch}. Tensors are
 * in the order of the operation's Tensors(); scratch: bytes of device memory that come after the last of them, where it is not 0. */
ROBOCACHE_CALL(robocache_op_new);
ROBOCACHE_CALL(robocache_backends);  /* → {cpu: {instructions, threads}, cuda: {present, driver, devices[], reason}} */
ROBOCACHE_CALL(robocache_self_test); /* → [{part, present, ok, detail}]: the conformance vectors on each back end */
/* Runs an operation that op_new made on the addresses of its elements [0, …, 0]. A host's is done on return; a device's is on its way on the stream
 * (a CUstream; 0 is the legacy default stream), and the device is the operation's, whichever is current. From many threads at once.
 * json_out may be NULL where only the status is wanted. */
int32_t robocache_op_run(int64_t op, int64_t *addrs, int64_t n, int64_t stream, char **json_out);

ROBOCACHE_CALL(robocache_edit); /* edit.Request: {sources[], verbs[{verb, …}], dst?, in_place?, dry_run?, …} → edit.Report */

/* Records a LeRobot dataset from a control loop: {path, fps?, features?: [Feature], robot_type?, video_codec?, gop?, crf?, preset?, queue_bytes, on_full?, allow_nan?: [key], streams?: {key: hz}, only_new?} →
 * {writer, fps, robot_type, features[], counted}. Features and fps default to those of an existing dataset. The other calls return counters. */
ROBOCACHE_CALL(robocache_writer_new);
ROBOCACHE_CALL(robocache_writer_save);    /* writer: ends the episode; on 0 it is in the dataset, whatever happens to the process */
ROBOCACHE_CALL(robocache_writer_discard); /* writer: drops the rows of the episode */
ROBOCACHE_CALL(robocache_writer_delete);  /* writer: deletes the episode that was saved last */
ROBOCACHE_CALL(robocache_writer_stats);   /* writer → {episodes, frames, pending, tasks, queue_bytes, queue_peak, waits, wait_seconds, longest_wait_seconds, refused, dropped} */
ROBOCACHE_CALL(robocache_writer_finish);  /* writer: exact statistics; robocache_close alone leaves what was saved, without them */
/* Adds a row: addresses of the values in the order of the features (images: height, width, channels), 0 of texts, which are in json_in {task, time_ns?, texts: {key: text}}. The memory is
 * copied. -1: the queue of the encoders had no room within timeout_ms, the row was not added: call again. -2: the row was dropped (on_full "drop"). */
int32_t robocache_writer_add(int64_t writer, char *json_in, int64_t *addrs, int64_t n, int32_t timeout_ms, char **json_out);

/* Adds a sample of a stream with a native clock ("streams" of writer_new: {key: hz}): the address of its value, and its time. */
int32_t robocache_writer_sample(int64_t writer, char *key, int64_t addr, int64_t time_ns, char **json_out);

/* The command line: {verb, args[], options: {a flag's name, with _ for -: its value}, terminal: progress and notes go to stderr} → {result: what --json
 * prints, findings: exit code 3, notes[]: lines for people}. */
ROBOCACHE_CALL(robocache_verb);
/* All of it, on the process's streams and with handlers of its signals: gives the exit code, and the process ends with it. argv is without the program's name. */
int32_t robocache_main(int32_t argc, char **argv);

/* A batch of an answer is {batch, rows, epoch, position, entries[]}. An entry is a tensor {key, dtype, shape[]} in C order, or a text column
 * {key, dtype: "string" | "json", text: true, values[]}. batch is the address of a robocache_batch with the tensors, in the order of their
 * entries (0: there are none): take those that are wanted by robocache_tensor or robocache_capsules, then tell robocache_arrived. */

/* Batches: tensors as DLPack (version 0.8's structures). */
#ifndef DLPACK_VERSION
typedef struct { int32_t device_type, device_id; } DLDevice;
typedef struct { uint8_t code, bits; uint16_t lanes; } DLDataType;
typedef struct { void *data; DLDevice device; int32_t ndim; DLDataType dtype; int64_t *shape, *strides; uint64_t byte_offset; } DLTensor;
typedef struct DLManagedTensor { DLTensor dl_tensor; void *manager_ctx; void (*deleter)(struct DLManagedTensor *self); } DLManagedTensor;
#endif

typedef struct robocache_batch robocache_batch;
typedef struct {
	int64_t rows, epoch, position, tensors;
	int64_t seq;        /* 1 for the loader's first batch, and so on */
	robocache_batch *batch;
	char *text;         /* of each text column, in order: int32 distinct, int32 bytes of their texts, int32[distinct] their lengths; where distinct > 1, */
	int64_t text_bytes; /* int32[rows] which one a row has; the texts, UTF-8, filled up with zeros to 4 bytes. Good until robocache_arrived */
} robocache_taken;

/* The next batch: 0, and *taken; -1: not finished within timeout_ms (0: do not wait), ask again; -2: the epoch is over; else an error and *json_out.
 * epoch: of the batches that this pass has had, so that its end is told again to a client that was interrupted; below 0: none yet.
 * A batch counts once robocache_arrived is told; until then the next call gives it again. */
int32_t robocache_loader_take(int64_t loader, int64_t epoch, int32_t timeout_ms, robocache_taken *taken, char **json_out);
void robocache_arrived(robocache_batch *batch);
/* The i-th tensor, in the order of the fields that are no texts, for the caller to delete; from any thread, at any time. NULL where the batch was taken back. */
DLManagedTensor *robocache_tensor(robocache_batch *batch, int32_t i);
void robocache_release_group(int64_t batch, int32_t group); /* the library's own */

/* For CPython, with the GIL held: functions = PyCapsule_New, PyCapsule_IsValid, PyCapsule_GetPointer, PyList_New, PyList_SetItem, Py_DecRef.
 * robocache_capsules gives a list of "dltensor" capsules, all at once; an empty one where the batch was taken back. */
/* Go copies the environment at the process's start: changes since then, as size bytes of "NAME=VALUE" (set) and "NAME" (removed), each ended by a NUL. */
void robocache_environment(char *changes, int32_t size);
void robocache_python(void **functions);
void *robocache_capsules(robocache_batch *batch);

#ifdef __cplusplus
}
#endif
#endif
