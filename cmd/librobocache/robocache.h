/* librobocache: the C interface of RoboCache, ABI 1. The contract (C1 to C8) is in doc.go beside this file.
 *
 * Every call but the first four has one shape:
 *
 *     int32_t robocache_x(int64_t handle, char *json_in, int32_t timeout_ms, int64_t *ticket, char **json_out);
 *
 * It returns 0 (done; *json_out holds the answer, or NULL), -1 (still running: *ticket is for robocache_wait), -2 (the epoch is over),
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
void robocache_release(int64_t batch, int32_t tensor);  /* gives one tensor of a batch back; the last one ends the batch */

#define ROBOCACHE_CALL(name) int32_t name(int64_t handle, char *json_in, int32_t timeout_ms, int64_t *ticket, char **json_out)

ROBOCACHE_CALL(robocache_wait);      /* goes on waiting for *ticket */
ROBOCACHE_CALL(robocache_close);     /* handle: dataset, map, loader or batch */
ROBOCACHE_CALL(robocache_versions);  /* → {robocache, abi, go, formats, decoder, codecs, threads} */

/* Datasets */
ROBOCACHE_CALL(robocache_open);      /* {uri, format?, memory_budget?} → {dataset, info} */
ROBOCACHE_CALL(robocache_episode);   /* dataset, {episode} → {position, episode_index, length, tasks} */
ROBOCACHE_CALL(robocache_episodes);  /* dataset → {episode_index[], lengths[], tasks[][]} */
ROBOCACHE_CALL(robocache_stats);     /* dataset → {feature: {min[], max[], mean[], std[], count, quantiles, shape}} */
ROBOCACHE_CALL(robocache_stream);    /* dataset, {episode, key, times, values} → batch */
ROBOCACHE_CALL(robocache_align);     /* dataset, {episode, align: align.Config, image_size?} → batch: times, streams, <key>_is_pad */

/* Samples by number */
ROBOCACHE_CALL(robocache_map_new);   /* dataset, loader.Config → {map, len, fields} */
ROBOCACHE_CALL(robocache_map_items); /* map, {indices[]} → batch */
ROBOCACHE_CALL(robocache_map_stats); /* map → loader.Stats */

/* Batches. after = seq of the last batch that arrived, 0 before the first: one that did not arrive is given again. */
ROBOCACHE_CALL(robocache_loader_new);       /* dataset, loader.Config → {loader, len, samples, fields} */
ROBOCACHE_CALL(robocache_loader_next);      /* loader, {after} → batch with seq, or -2 */
ROBOCACHE_CALL(robocache_loader_state);     /* loader, {after} → loader.State */
ROBOCACHE_CALL(robocache_loader_restore);   /* loader, {state, force?} */
ROBOCACHE_CALL(robocache_loader_set_epoch); /* loader, {epoch} */
ROBOCACHE_CALL(robocache_loader_order);     /* loader, {epoch, from?, count?} → batch: order, int64 */
ROBOCACHE_CALL(robocache_loader_stats);     /* loader → loader.Stats and epoch */

/* A batch is {batch, rows, epoch, position, entries[]}. An entry is a tensor {key, dtype, shape[], ptr, nbytes, tensor} in C order, or a
 * text column {key, dtype: "string" | "json", text: true, values[]}. ptr is an address in this process, good until the tensor is released. */

#ifdef __cplusplus
}
#endif
#endif
