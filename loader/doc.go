// Package loader makes training batches of a dataset: order, windows, decode plans, prefetch, state.
//
// # Contract
//
//	L1   A sample is one row of one episode (with hz: one row of its timeline) with all its windows. Samples are numbered in file order over the selected episodes.
//	L2   The order is a pure function of (mode and its parameters, seed, epoch, lengths): no thread, timing, cache, world or neighbour changes it.
//	     File and global cost O(1) memory at any size; pool costs its residents' samples, and a number an episode.
//	     In a mixture of k sources, at every prefix of an epoch the count of a source with share w is within 1 + w(k−2) of its share: one sample
//	     for two sources, never k−1 or more. Each source runs its own order, and goes on in its own next epoch. By size alone, each sample comes once.
//	L3   Step t of an epoch takes positions [tG, (t+1)G), G = batch × world; rank r the r-th slice, with pool of the positions sorted by shard.
//	     All ranks give equally many batches, and every sample comes once, wrapped ones counted; uneven="short" gives no sample twice.
//	L4   What a batch holds is a function of its samples alone: not of threads, prefetch, or what else was decoded with it.
//	L5   State counts samples handed out. Restore is exact at any batch size, world size and number of threads, and O(1); with pool the draws before it are simulated.
//	L6   Windows stay in their episode: rows outside are the edge row, and `<key>_is_pad` says so.
//	L7   In one horizon each frame of a video is decoded and converted once, however many windows and batches want it.
//	L8   Frames are found by frame number; a missing one is an error that names episode, row and key, or a skipped and counted episode, never another frame.
//	L9   Tensors are contiguous, written once, outside the Go heap; nothing writes to a batch between Next and Release.
//	L10  Batches in flight, and idle buffers beside them, stay inside memory_budget; the horizon shrinks before anything fails. What the taker holds counts no batch in flight.
//	L11  Next returns soon after its context ends; Close ends every goroutine, at any moment.
//	     A batch of which no part comes for deadline_s is an error that says so.
//	L12  Nothing is read for keys that were not asked for.
//	L13  With on_bad_episode="skip" an episode that fails is left out from the first sample of the batch on that could not be made; that
//	     position does not depend on threads or prefetch. The list is in the state, and the order is a function of it. With one rank the
//	     next samples move up; with several, each rank goes on in its own positions, so that all still give equally many batches.
//	L14  On a timeline (hz, align) values, masks and rows are those of align.Episode. A window's place 1 ns beside a timestamp is that timestamp.
//	L15  In the steady state no allocation depends on the number of samples.
//	L20  A pool (shuffle="pool") decodes and converts each frame once an epoch, as long as the frames of its residents fit: what has no
//	     room is decoded again, and right. Its frames go when their last sample is given.
//	L21  A cache gives what decoding gives, to the bit. It never takes more than its budget: what a full one has no room for is decoded
//	     each time, so that a cache of half the set saves half the work. The order does not know of it.
//	L22  One memory_budget covers batches, kept frames, idle decoders, tables and timestamps; Stats shows each.
//	L23  Of a source that is far away, packets are read beside decoding: waiting for a store holds no core and no decoder.
//	L24  A mixture gives of each source what the source gives alone; keys that a source lacks are zeros under a mask.
//	L25  A raw batch (Config.Raw) holds each stored byte once; one copy a buffer and one kernel.ApplyOp (Finish) make of it the batch that
//	     the loader would have made itself, to the bit.
//	L26  Of a dataset with several clocks samples are the rows of its own clock (Info.Clock), of the anchor's, or of a timeline (hz). Streams on that
//	     clock come row by row; all others are what align.Episode gives at the samples' times, with `<key>_is_pad`: late starts, ends and gaps
//	     are masked, no sample is left out for them. delta_timestamps then lie in time, by the align rule, and need no multiple of a period.
//	L27  windows lie in time on any dataset. Offsets give the stream's own samples: nothing is computed unless a mode is chosen (frames and clouds
//	     nearest, everything else previous). A span is all samples timestamped t+from … t+to, both ends included, without those that hold no value, with `<key>_times`, in ns after the sample;
//	     with a count that many times evenly from end to end, by the align rule. What lies outside the episode is padded, or not there.
//	     A span of frames or clouds has as many places as the fullest one of the selected episodes needs, filled from the first.
//	L28  A ragged tensor holds the entries of all samples, one after the other, without padding; `<key>_lengths` says how many are of each. What
//	     one batch takes is known when it is made: batches that find no room beside others are made one by one, and one that does not fit
//	     alone is ResourceLimit with its key and bytes.
//	L29  Augmentation (Config.Augment) is a function of (seed, epoch, the sample's place in its dataset, key): not of the batch, selection, order, rank,
//	     thread, cache or device, nor of what else the sample holds. The epoch of a mixture's sample is that of its source. Caches and pools
//	     hold frames as they are before it.
//	L30  What Normalize means is normalised, or the loader is not made. Statistics that are computed are exact, of recorded values, over the
//	     selected episodes, before anything is interpolated, padded or augmented. Normalizers say what was done, in what arithmetic.
//	L31  Rows that a mixture widens (Missing "pad") hold a source's own numbers where Mix.Dims says, else in front, as the source gives them alone;
//	     the others are 0, and `<key>_dim_is_pad` says which.
//	L32  Once an epoch was followed by the next, each is begun while the last batches of the one before are taken, in the same budget; what a pool begins
//	     with is decoded as the residents of the one before leave. Order, states and what comes do not depend on it. Before that, and behind SetEpoch to
//	     another and Restore, nothing is begun beyond the epoch's end.
//
// # Keys of a batch
//
// Video keys, then the table's columns in the dataset's order (each ragged one with its lengths), then `<key>_is_pad` in the order of
// delta_timestamps, of windows and of the columns, then "task", and "episode_id" where keys asks for it. "index", "episode_index" and "frame_index" are LeRobot's
// columns; where a dataset has none they are made when keys asks for them, and stand behind its columns.
package loader
