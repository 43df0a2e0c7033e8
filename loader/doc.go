// Package loader makes training batches of a dataset: order, windows, decode plans, prefetch,
// state.
//
// # Contract
//
// Samples, order and state:
//
//	loader.L1   A sample is one row of one episode with all its windows. With hz the rows are those
//	            of the episode's timeline. Samples are numbered in file order over the selected
//	            episodes.
//	loader.L2   The order is a pure function of mode, parameters, seed, epoch and lengths. No
//	            thread, timing, cache, world size or other sample changes it. File order and global
//	            use O(1) memory at any size. A pool uses memory for its residents' samples and one
//	            number per episode. In a mixture of k sources, the count of a source with share w
//	            is within 1 + w(k−2) samples of its share at every prefix of an epoch. That is one
//	            sample for two sources, and at most k−1 for k sources. Each source has its own order
//	            and continues in its own next epoch. With shares by size, each sample occurs once.
//	loader.L3   Step t of an epoch covers positions [tG, (t+1)G), with G = batch × world. Rank r
//	            has the r-th slice; with a pool, positions are sorted by shard first. All ranks
//	            deliver equally many batches, and every sample is delivered once. Wrapped samples
//	            are counted. With uneven="short" no sample is delivered twice.
//	loader.L4   The content of a batch is a function of its samples. It does not depend on threads,
//	            prefetch, or other samples that are decoded at the same time.
//	loader.L5   State counts delivered samples. Restore is exact at any batch size, world size and
//	            number of threads, and is O(1). With a pool, the earlier draws are simulated.
//
// Content and memory of batches:
//
//	loader.L6   Windows stay in their episode. Rows outside of it are the edge row, and
//	            `<key>_is_pad` marks them.
//	loader.L7   In one horizon each frame of a video is decoded and converted once, regardless of
//	            how many windows and batches need it.
//	loader.L8   Frames are found by frame number. A missing frame is an error that names episode,
//	            row and key, or a skipped and counted episode. It is never another frame.
//	loader.L9   Tensors are contiguous, written once and outside the Go heap. Nothing writes to a
//	            batch between Next and Release.
//	loader.L10  Batches in flight and idle buffers together stay within memory_budget. The horizon
//	            shrinks before anything fails. A batch held by the consumer does not count as in
//	            flight.
//	loader.L11  Next returns soon after its context is canceled. Close ends every goroutine, at any
//	            time. A batch without progress for deadline_s is an error that states this.
//	loader.L12  No data is read of keys that are not requested.
//	loader.L13  With on_bad_episode="skip" a failing episode is left out from the first sample of
//	            the batch that could not be built. That position does not depend on threads or
//	            prefetch. The list of bad episodes is part of the state, and the order is a
//	            function of it. With one rank the next samples move up. With several, each rank
//	            continues in its own positions, so that all deliver equally many batches.
//	loader.L14  On a timeline (hz, align), values, masks and rows are those of align.Episode. A
//	            window's time 1 ns from a timestamp is that timestamp.
//	loader.L15  In the steady state no allocation depends on the number of samples.
//
// Pools, caches and devices:
//
//	loader.L20  A pool (shuffle="pool") decodes and converts each frame once per epoch, as long as
//	            the frames of its residents fit. Frames that do not fit are decoded again,
//	            correctly. Frames are released when their last sample is delivered.
//	loader.L21  A cache returns the same bits as decoding and never exceeds its budget. Frames that
//	            do not fit into a full cache are decoded each time, so a cache of half the set
//	            saves half the work. The order does not depend on the cache.
//	loader.L22  One memory_budget covers batches, stored frames, idle decoders, tables and
//	            timestamps. Stats shows each.
//	loader.L23  Packets of a remote source are read ahead of decoding. Waiting for a store occupies
//	            no core and no decoder.
//	loader.L24  A mixture delivers the samples of each source as the source alone would. Keys that a
//	            source lacks are zeros under a mask.
//	loader.L25  A raw batch (Config.Raw) holds each stored byte once. One copy per buffer and one
//	            kernel.ApplyOp (Finish) turn it into the batch that the loader would have built,
//	            bit by bit.
//
// Clocks and windows in time:
//
//	loader.L26  In a dataset with several clocks, samples are the rows of its main clock
//	            (Info.Clock), of the anchor's clock, or of a timeline (hz). Streams on that clock
//	            are delivered row by row. All other streams are resampled by align.Episode at the
//	            samples' times, with `<key>_is_pad`. Late starts, ends and gaps are masked; no
//	            sample is omitted for them. delta_timestamps are then offsets in time, follow the
//	            align rule, and need not be a multiple of a period.
//	loader.L27  windows are offsets in time on any dataset. Offsets select the stream's own samples.
//	            Nothing is interpolated unless a mode is configured: frames and clouds are the
//	            nearest sample, all other values the previous one. A span selects all samples
//	            timestamped t+from … t+to, both ends included, without those that hold no value.
//	            `<key>_times` holds their times in ns after the sample. With a count, a span is
//	            that many times, evenly from end to end, by the align rule. Values outside the
//	            episode are padded or omitted. A span of frames or clouds has as many slots as
//	            the fullest one of the selected episodes needs, filled from the first.
//	loader.L28  A ragged tensor holds the entries of all samples, one after the other, without
//	            padding. `<key>_lengths` holds the number of entries of each sample. The size of a
//	            batch is known when it is built. Batches that do not fit together are built one by
//	            one. A batch that does not fit alone is ResourceLimit with its key and bytes.
//
// Augmentation, normalization, mixtures and epochs:
//
//	loader.L29  Augmentation (Config.Augment) is a function of seed, epoch, the sample's row in its
//	            dataset, and key. It does not depend on batch, selection, order, rank, thread,
//	            cache, device or the rest of the sample. The epoch of a mixture's sample is that of
//	            its source. Caches and pools hold frames before augmentation.
//	loader.L30  Every key that Normalize selects is normalized, or the loader is not made. Computed
//	            statistics are exact, of recorded values, over the selected episodes, before
//	            interpolation, padding and augmentation. Normalizers states the normalization and
//	            its arithmetic.
//	loader.L31  Rows that a mixture widens (Missing "pad") hold a source's numbers at the positions
//	            of Mix.Dims, or else first, as the source alone delivers them. The other numbers
//	            are 0, and `<key>_dim_is_pad` marks them.
//	loader.L32  After an epoch was followed by the next once, each next epoch begins while the last
//	            batches of the previous one are delivered, within the same budget. The first
//	            episodes of a pool are decoded as the residents of the previous epoch leave. Order,
//	            states and content do not depend on this. Before that, and after SetEpoch to
//	            another epoch or Restore, nothing is begun beyond the end of the epoch.
//	loader.L33  A key of Choose holds one of its streams, and a key of Goal a row after the sample's.
//	            Draws are a function of seed, epoch, the sample's row in its dataset, and key, as
//	            those of L29. Streams and frames that are not drawn are not read.
//
// The order decides everything else: it is computed from numbers alone, so any position of any
// epoch can be computed on any machine without reading data. A run executes that order ahead of the
// consumer with as many batches in flight as memory_budget allows. State is therefore only a
// position in the order, and threads, caches and restarts cannot change what a batch contains.
//
// # Keys of a batch
//
// The order of keys is: video keys, then the columns of the table in the dataset's order (each
// ragged one with its lengths), then `<key>_is_pad` in the order of delta_timestamps, of windows
// and of the columns, then "task", and "episode_id" if it is requested. "index", "episode_index"
// and "frame_index" are LeRobot's columns. If a dataset lacks them, they are computed on request
// and follow its columns.
package loader
