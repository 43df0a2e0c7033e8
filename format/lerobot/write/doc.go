// Package write writes LeRobot v3.0. Write converts a dataset of any format whose streams share one
// grid. A Writer writes episodes one after the other. A Recorder writes rows while a robot runs.
// Package lerobot registers Write. Package convert calls it after aligning the streams to one grid.
//
// # Contract of Write
//
//	write.C1  Rows keep their bits. Every numeric feature has the source's type and values (float64
//	          stays float64). Episodes are numbered 0…E−1 in the requested order, index and
//	          frame_index begin at 0, and timestamp is frame_index/fps. Recorded timestamps that
//	          differ from this are kept as the float64 feature RecordedTimestamps.
//	write.C2  Images are found by frame number. Video is copied without re-encoding if an episode's
//	          images are consecutive and begin at a frame that depends on no earlier one. Otherwise
//	          the frames up to the next such frame are encoded and the rest is copied, if the
//	          decoder configuration of the file allows joining both. Otherwise, depending on the
//	          options, all frames are encoded or the episode is rejected. Still images that stay
//	          images keep their bytes.
//	write.C3  Tasks keep their numbers if these are 0…n−1, because annotation columns hold task
//	          numbers. Otherwise tasks are renumbered, and the report contains the mapping.
//	write.C4  Statistics are computed from the written rows, never copied from the source.
//	write.C5  The destination must be empty. After an error or a cancellation nothing remains, not
//	          even a folder. A kill leaves a tree without meta/info.json, or a complete tree with a
//	          journal. WriteOptions.Resume completes both. The result has the same bytes as an
//	          uninterrupted run. A failed run with Resume keeps encoded episodes for the next run.
//	write.C6  Nothing is dropped silently. The report states what was dropped, renamed, skipped or
//	          re-encoded, and the findings of the source (robocache.Findings). It is also stored in
//	          meta/conversion.json. A dataset of which no stream is left is rejected
//	          (ErrUnsupported).
//	write.C8  The option images decides whether still images become video or stay images. Depth
//	          stays images, without loss. The feature "<key>.valid" marks rows without a value;
//	          their images are black. LeRobot cannot store rows of varying length (point clouds),
//	          so these are reported as dropped.
//	write.C9  Up to WriteOptions.Threads groups of episodes are read and encoded ahead. aheadBytes
//	          bounds their memory. The written bytes do not depend on the number of threads.
//	write.C11 A panic of the source, in any goroutine, is an error of class ErrInternal that names
//	          the episode. SkipBad does not skip it, and write.C5 holds.
//
// # Contract of Writer
//
//	write.W1  Every file appears complete under its name, or not at all. meta/info.json is the last
//	          one. A tree without it is not a dataset.
//	write.W2  The same episodes and configuration give the same bytes.
//	write.W3  A data file has one row group per episode. File numbers stay below 1000. No file is
//	          empty.
//	write.W4  Frame k of an episode has the timestamp from_timestamp + k/fps exactly. The frames of
//	          a file form one grid without gaps. Timestamps passed to AddEpisode have no effect on
//	          it.
//	write.W5  If an episode is rejected, or its pixels cannot be read, the writer is unchanged.
//	          After any other error only Abort may be called, which removes all files of the writer.
//
// # Contract of Recorder
//
//	write.R1  At every moment, also after a kill or with a full disk, the folder holds a complete
//	          dataset of the saved episodes. When SaveEpisode returns, the episode is saved and
//	          durable. When DeleteLastEpisode returns, the episode is removed durably.
//	write.R2  Files are replaced as a whole. A save replaces each file by one that begins with the
//	          same rows and frames, and info.json last. A deletion uses the opposite order, with
//	          info.json first. The next recorder completes a save or deletion that was killed.
//	write.R3  The bytes of images that wait for their encoders are bounded. At the bound,
//	          RecordOptions.OnFull decides whether AddFrame waits, fails or drops the row. The last
//	          two never wait.
//	write.R4  After Close all statistics are exact over all episodes, except quantiles of images
//	          from sessions that left no pixel counts. Before Close there are no quantiles of
//	          numbers.
//	write.R5  Numbers that are NaN or infinite are rejected with feature, element and row, unless
//	          RecordOptions.AllowNaN names the feature.
//	write.R6  A row holds the last sample at or before its time of each stream of
//	          RecordOptions.Streams. All samples of a saved episode are in its file under
//	          recordings/. That file appears before info.json names the episode and is removed
//	          after info.json no longer does.
//
// Intuitively, info.json is the commit record of a dataset: everything that it names is complete
// before it is written. The bytes depend on the episodes and the options only, so that a killed run
// can be repeated and its finished files reused.
package write
