/* librobocache: the C interface of RoboCache, ABI 5. doc.go in this folder states the contract
 * (librobocache.C1 to C10).
 *
 * Calls that are declared with ROBOCACHE_CALL have this signature:
 *
 *     int32_t robocache_x(int64_t handle, char *json_in, int32_t timeout_ms, int64_t *ticket,
 *                         char **json_out);
 *
 * They return:
 *
 *      0  done. *json_out holds the answer, or NULL.
 *     -1  still running. Pass *ticket to robocache_wait. *json_out may hold {"log": lines} to show.
 *     -2  the epoch is over.
 *     else an error: the CLI's exit code for its class. 1 internal, 2 misuse, 10 not found,
 *         11 malformed, 12 unsupported, 13 resource limit, 75 temporary, 130 interrupted.
 *         *json_out holds {"class", "message", "where", "hint"}.
 *
 * The client frees *json_out with robocache_free. A negative timeout_ms waits without a limit.
 * Text is UTF-8. All calls may be made concurrently. A forked child must not call the library if
 * its parent has called it: it must open its own copy, as python/robocache/_engine.py does.
 */
#ifndef ROBOCACHE_H
#define ROBOCACHE_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

int32_t robocache_abi_version(void);
void robocache_free(char *json_out);
/* Cancels a call that is still running, and discards its answer. */
void robocache_cancel(int64_t ticket);
/* Cancels a call that is still running. robocache_wait still waits for its end, so that the call
 * can clean up. */
void robocache_interrupt(int64_t ticket);

#ifndef ROBOCACHE_CALL
#define ROBOCACHE_CALL(name) \
	int32_t name(int64_t handle, char *json_in, int32_t timeout_ms, int64_t *ticket, \
		     char **json_out)
#endif

/* Continues to wait for *ticket. */
ROBOCACHE_CALL(robocache_wait);
/* Closes a dataset, map, loader, op, writer or Live. */
ROBOCACHE_CALL(robocache_close);
/* → {robocache, abi, go, formats, decoder, codecs, threads} */
ROBOCACHE_CALL(robocache_versions);

/* Datasets */

/* {uri, format?, memory_budget?, rows_hz?, split?, episodes[]?, map?: a mapping or its file,
 * options?: {name: text}} → {dataset, info} */
ROBOCACHE_CALL(robocache_open);
/* dataset, {position} → {position, episode_index, length, tasks} */
ROBOCACHE_CALL(robocache_episode);
/* dataset → {episode_index[], lengths[], tasks[][]}. For a LeRobot dataset, {of: info | table}
 * returns its own info.json or all columns of its table of episodes. */
ROBOCACHE_CALL(robocache_episodes);
/* dataset, {count?, keys?, episodes?, frames?: none|sampled|all} → {feature: {min[], max[], mean[],
 * std[], count, quantiles, shape}}: the stored statistics, or with count, computed ones. */
ROBOCACHE_CALL(robocache_stats);
/* dataset, {expression, options: of robocache find} → verbs.Found */
ROBOCACHE_CALL(robocache_find);
/* dataset, {episodes[]?, frames?: all|sample|none, threads?} → {columns[]: {name, dtype, data:
 * base64 of little-endian numbers, or texts[]}, metrics[], findings[]}: the table of metrics. */
ROBOCACHE_CALL(robocache_quality);
/* dataset, {folder, info: query.VectorsInfo} → verbs.Embedded: stores vectors of frames */
ROBOCACHE_CALL(robocache_embedded);
/* dataset, edit.Verb "split": {into[], seed?, stratify?, group?, by?} → {names[], parts[][]}:
 * the indices of the episodes of each part. */
ROBOCACHE_CALL(robocache_deal);
/* dataset, {position, key, times, values | encoded} → batch with times and values. Without both,
 * it holds the number of rows. For rows of varying length, values holds all entries, and lengths
 * their numbers. With encoded, values holds the images as stored, and lengths their sizes in bytes
 * (-1: no image). */
ROBOCACHE_CALL(robocache_stream);
/* dataset, {position, align: align.Config, image_size?} → batch: times, streams, <key>_is_pad */
ROBOCACHE_CALL(robocache_align);

/* Samples by number. A field with "ragged" holds the entries of all samples one after the other.
 * The next field ("lengths") holds the number of entries of each sample. */

/* dataset, loader.Config, stats? → {map, len, fields, normalizers[], settled[]} */
ROBOCACHE_CALL(robocache_map_new);
/* map, {indices[]} → batch */
ROBOCACHE_CALL(robocache_map_items);
/* map → loader.Stats */
ROBOCACHE_CALL(robocache_map_stats);

/* Loaders */

/* dataset, loader.Config, stats? → {loader, len, samples, fields, normalizers[], settled[]}.
 * normalizers and settled have one element per source. For several datasets, handle is 0 and the
 * configuration has "sources", a list of {dataset, name?, weight?, rename?, keys?, hz?, align?,
 * anchor?, image_size?, episodes?, normalize?, stats?, compute_stats?, dims?}.
 * "pin_memory": true puts batches into page-locked memory, in the context of CUDA device
 * "pin_device" (default: one that is in use). */
ROBOCACHE_CALL(robocache_loader_new);
/* loader with "raw": true, {rows, backend, device} → {op, buffers[], places[], fields[],
 * outputs[]}. Raw batches hold the stored values as buffers. "op" (0: none) computes the fields
 * from them. A place is {output, index, offset}: in a buffer, or in an output that the client
 * allocates. The client must close op. */
ROBOCACHE_CALL(robocache_loader_finish);
/* loader, {before?: seq} → loader.State after the acknowledged batches, or before batch seq, which
 * must be one of the last 8. */
ROBOCACHE_CALL(robocache_loader_state);
/* loader, {state, force?} */
ROBOCACHE_CALL(robocache_loader_restore);
/* loader, {epoch} */
ROBOCACHE_CALL(robocache_loader_set_epoch);
/* loader, {epoch, from?, count?} → batch: order, int64 */
ROBOCACHE_CALL(robocache_loader_order);
/* loader, {samples[]} → batch: dataset_index, episode, row, int64 */
ROBOCACHE_CALL(robocache_loader_locate);
/* loader → loader.Stats and epoch */
ROBOCACHE_CALL(robocache_loader_stats);
/* loader, {time_budget_s?: 0 for no limit} → align.CausalityReport */
ROBOCACHE_CALL(robocache_loader_causality);

/* Observations of a running robot */

/* loader → {contract: text}, the contract of the observations of its batches. Equal contracts have
 * equal texts. */
ROBOCACHE_CALL(robocache_loader_contract);
/* {contract: text} → {contract: text}, checked and in its canonical form */
ROBOCACHE_CALL(robocache_contract_parse);
/* dataset, {contract: text} → [finding]: what prevents the dataset from giving the observations */
ROBOCACHE_CALL(robocache_contract_check);
/* {contract: text, memory_budget?: bytes, record?: as robocache_live_record, source?: URI of a
 * transport that runs in the background} → {live} */
ROBOCACHE_CALL(robocache_live_new);
/* live, {tick_ns?: default now, timeout_s?} → batch of one sample without the axis of the batch, and
 * {tick_ns, ages_ns[]}: the age of the newest sample of each stream of the contract, or -1. Waits
 * for streams that have no sample until the timeout. */
ROBOCACHE_CALL(robocache_live_observe);
/* live → {streams: {key: live.StreamStats}, messages, error?: the newest error of the transport or
 * of a received message, with the content of an error of a call} */
ROBOCACHE_CALL(robocache_live_stats);
/* live → {stream: live.StreamLatency} */
ROBOCACHE_CALL(robocache_live_latency);
/* Forgets all samples: another episode begins. */
ROBOCACHE_CALL(robocache_live_reset);
/* live, {task: text} */
ROBOCACHE_CALL(robocache_live_set_task);
/* live, {path}: records samples and ticks to a new file until robocache_close. Call it before the
 * first sample. */
ROBOCACHE_CALL(robocache_live_record);
/* A time of a sample: the present. A message may have its own time. */
#define ROBOCACHE_NOW INT64_MIN
/* Adds a sample of a stream. addr is the address of size bytes, which are copied: with a dtype, a
 * tensor in C order (numbers in the stream's dtype and shape; an image is height, width, channels);
 * with dtype NULL, a text in UTF-8 or an encoded image. Never waits for an observation. */
int32_t robocache_live_push(int64_t live, char *key, int64_t stamp_ns, int64_t arrival_ns,
			    char *dtype, int64_t *shape, int32_t ndim, int64_t addr, int64_t size,
			    char **json_out);
/* Adds a message of a topic, as it was received. */
int32_t robocache_live_push_message(int64_t live, char *topic, int64_t stamp_ns,
				    int64_t arrival_ns, int64_t addr, int64_t size,
				    char **json_out);

/* Operations on memory of the client */

/* {op: "fuse" | "fuse_grad" | "voxelize" | "unproject" | "integrate",
 * backend: "cpu" | "reference" | "cuda", device, tensors: [{dtype, shape[], stride[] in elements}],
 * has: [the optional tensors that are present], and the options of the kernel's operation}
 * → {op, scratch}. Tensors are in the order of the operation's Tensors(). If scratch is not 0, a
 * run needs that many bytes of device memory, passed after the last tensor. */
ROBOCACHE_CALL(robocache_op_new);
/* → {cpu: {instructions, threads}, cuda: {present, driver, devices[], reason}} */
ROBOCACHE_CALL(robocache_backends);
/* → [{part, present, ok, detail}]: results of the conformance vectors on each back end */
ROBOCACHE_CALL(robocache_self_test);
/* Runs an operation of robocache_op_new. addrs are the addresses of the elements [0, …, 0] of its
 * tensors. A host operation is done on return. A device operation is queued on the stream (a
 * CUstream; 0 is the legacy default stream) of the operation's device, whichever device is current.
 * Safe for concurrent use. json_out may be NULL if only the status is needed. */
int32_t robocache_op_run(int64_t op, int64_t *addrs, int64_t n, int64_t stream, char **json_out);

/* edit.Request: {sources[], verbs[{verb, …}], dst?, in_place?, dry_run?, …} → edit.Report */
ROBOCACHE_CALL(robocache_edit);

/* Records a LeRobot dataset from a control loop: {path, fps?, features?: [Feature], robot_type?,
 * video_codec?, gop?, crf?, preset?, queue_bytes, on_full?, allow_nan?: [key],
 * streams?: {key: hz}, only_new?} → {writer, fps, robot_type, features[], counted}.
 * features and fps default to those of an existing dataset. The other calls return counters. */
ROBOCACHE_CALL(robocache_writer_new);
/* Ends the episode. If it returns 0, the episode stays in the dataset even if the process dies. */
ROBOCACHE_CALL(robocache_writer_save);
/* Drops the rows of the current episode. */
ROBOCACHE_CALL(robocache_writer_discard);
/* Deletes the episode that was saved last. */
ROBOCACHE_CALL(robocache_writer_delete);
/* writer → {episodes, frames, pending, tasks, queue_bytes, queue_peak, waits, wait_seconds,
 * longest_wait_seconds, refused, dropped} */
ROBOCACHE_CALL(robocache_writer_stats);
/* Writes exact statistics. robocache_close alone keeps the saved episodes without them. */
ROBOCACHE_CALL(robocache_writer_finish);
/* Adds a row. addrs are the addresses of the values in the order of the features (images: height,
 * width, channels). The address is 0 for texts, which are in json_in {task, time_ns?,
 * texts: {key: text}}. The memory is copied. Returns -1 if the queue of the encoders stayed full
 * for timeout_ms; the row was not added, so call again. Returns -2 if the row was dropped
 * (on_full "drop"). */
int32_t robocache_writer_add(int64_t writer, char *json_in, int64_t *addrs, int64_t n,
			     int32_t timeout_ms, char **json_out);

/* Adds a sample of a stream with a native clock ("streams" of writer_new: {key: hz}): the address
 * of its value, and its time. */
int32_t robocache_writer_sample(int64_t writer, char *key, int64_t addr, int64_t time_ns,
				char **json_out);

/* Runs a verb of the command line: {verb, args[], options: {name of a flag, with _ for -: value},
 * terminal: whether progress and notes go to stderr} → {result: the output of --json,
 * findings: whether the exit code would be 3, notes[]: lines for people}. */
ROBOCACHE_CALL(robocache_verb);
/* Runs the whole command line on the streams of the process, with signal handlers, and returns the
 * exit code. The process must end afterwards. argv does not contain the name of the program. */
int32_t robocache_main(int32_t argc, char **argv);

/* A batch of an answer is {batch, rows, epoch, position, entries[]}. An entry is a tensor {key,
 * dtype, shape[]} in C order, or a text column {key, dtype: "string" | "json", text: true,
 * values[]}. batch is the address of a robocache_batch with the tensors in the order of their
 * entries (0: there are none). Take the needed tensors with robocache_tensor or
 * robocache_capsules, then call robocache_arrived. */

/* Batches: tensors as DLPack (structures of version 0.8) */
#ifndef DLPACK_VERSION
typedef struct {
	int32_t device_type, device_id;
} DLDevice;
typedef struct {
	uint8_t code, bits;
	uint16_t lanes;
} DLDataType;
typedef struct {
	void *data;
	DLDevice device;
	int32_t ndim;
	DLDataType dtype;
	int64_t *shape, *strides;
	uint64_t byte_offset;
} DLTensor;
typedef struct DLManagedTensor {
	DLTensor dl_tensor;
	void *manager_ctx;
	void (*deleter)(struct DLManagedTensor *self);
} DLManagedTensor;
#endif

typedef struct robocache_batch robocache_batch;
typedef struct {
	int64_t rows, epoch, position, tensors;
	int64_t seq; /* 1 for the loader's first batch, 2 for the second */
	robocache_batch *batch;
	/* For each text column, in order: int32 number of distinct texts; int32 bytes of these texts;
	 * int32[distinct] their lengths; if distinct > 1, int32[rows] the text of each row; the texts
	 * in UTF-8, padded with zeros to 4 bytes. Valid until robocache_arrived. */
	char *text;
	int64_t text_bytes;
} robocache_taken;

/* Takes the next batch. Returns 0 and *taken; -1 if it is not ready within timeout_ms (0: do not
 * wait), so ask again; -2 if the epoch is over; else an error and *json_out.
 * epoch is the epoch of the batches that this pass has received; negative: none yet. It lets an
 * interrupted client learn of the end of the epoch again.
 * A batch is acknowledged by robocache_arrived. Until then the next call returns it again. */
int32_t robocache_loader_take(int64_t loader, int64_t epoch, int32_t timeout_ms,
			      robocache_taken *taken, char **json_out);
void robocache_arrived(robocache_batch *batch);
/* Returns tensor i, in the order of the fields that are not text. The caller must call its deleter,
 * from any thread, at any time. Returns NULL if the batch was taken back. */
DLManagedTensor *robocache_tensor(robocache_batch *batch, int32_t i);
/* For the library's own deleters only. */
void robocache_release_group(int64_t batch, int32_t group);

/* Updates the library's environment, because Go copies the environment when the process starts.
 * changes has size bytes: "NAME=VALUE" (set) and "NAME" (removed), each ended by a NUL. */
void robocache_environment(char *changes, int32_t size);

/* For CPython, with the GIL held. functions are PyCapsule_New, PyCapsule_IsValid,
 * PyCapsule_GetPointer, PyList_New, PyList_SetItem, Py_DecRef. */
void robocache_python(void **functions);
/* Returns a list of "dltensor" capsules for all tensors. It is empty if the batch was taken back. */
void *robocache_capsules(robocache_batch *batch);

#ifdef __cplusplus
}
#endif
#endif
