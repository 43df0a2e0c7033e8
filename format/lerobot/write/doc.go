// Package write writes LeRobot v3.0: Write a dataset of any format whose streams lie on one grid, a
// Writer episodes, one after the other, a Recorder rows beside a robot's loop. Package lerobot
// registers Write; package convert calls it, and brings streams onto one grid first.
//
// # Contract of Write
//
//	C1  Rows keep their bits: every numeric feature has the source's type and values (float64 stays float64). Episodes are numbered 0…E−1
//	    in the order asked for, index from 0, frame_index from 0; timestamp is frame_index/fps, and recorded timestamps that say otherwise
//	    are kept as the float64 feature RecordedTimestamps.
//	C2  Images are found by frame number. Video is copied without re-encoding where an episode's images are one run that begins at an image
//	    which nothing before it is needed for; else the frames up to the next such image are decoded and encoded, where the file's configuration of the decoder
//	    lets them stand before the rest, or all are, or it is refused, as the options say. Still images that stay images keep their bytes.
//	C3  Tasks keep their numbers where those are 0…n−1 (annotation columns hold task numbers); else they are renumbered, and the report says how.
//	C4  Statistics are counted from the rows written, never copied from the source.
//	C5  The destination must be empty. An error or the end of the context leaves nothing behind, no folder either; a kill, at any moment, leaves a tree
//	    without meta/info.json, which WriteOptions.Resume continues (or a whole one with the journal, which it takes away): the result has the same bytes as an
//	    uninterrupted run. A run with Resume keeps encoded episodes until it ends, so that another takes them over.
//	C6  What was dropped, renamed, skipped or re-encoded is in the report, which also lies in meta/conversion.json; nothing is dropped silently. So is
//	    what the source found, when it was opened and while it was read (robocache.Findings), whatever the format that is written.
//	    A dataset of which no stream is left is refused (ErrUnsupported).
//	C8  Still images, raw or encoded, become video or stay images as the option images says; depth stays images, without loss. Rows without a value are told by
//	    "<key>.valid"; their images are black. Rows of varying length (point clouds) have no place in LeRobot, and are reported as dropped.
//	C9  Episodes are read and encoded ahead, as many at once as WriteOptions.Threads, as far as aheadBytes allows, by what their rows declare and later by what they
//	    took; what is written does not depend on that number.
//	C11 A panic of the source, in any goroutine, is an error of class ErrInternal that names the
//	    episode. SkipBad does not skip it, and C5 holds.
//
// # Contract of Writer
//
//	W1  Every file appears whole, under its name, or not at all; meta/info.json is the last: a tree without it is no dataset.
//	W2  The same episodes and configuration give the same bytes.
//	W3  One row group an episode in data files; file numbers stay below 1000; no file is empty.
//	W4  Frame k of an episode has pts from_timestamp + k/fps exactly, on one unbroken grid a file; what AddEpisode was given as
//	    timestamps never enters it.
//	W5  An episode that is refused, or whose pixels do not come, leaves the writer as it was. After any other error it only answers Abort,
//	    which removes every file that it made.
//
// # Contract of Recorder
//
//	R1  At every moment, a kill or a full disk included, the folder holds a whole dataset of the episodes that were saved. SaveEpisode returns once the episode is
//	    among them, and durable; DeleteLastEpisode returns once the episode is gone, durably.
//	R2  Files are replaced whole. A save replaces them by files that begin with the same rows and frames, info.json last. A
//	    deletion takes the opposite order, info.json first. The next recorder completes a save or a deletion that was killed.
//	R3  Images that wait for their encoders are bounded in bytes. When the bound is reached, RecordOptions.OnFull decides
//	    whether AddFrame waits, fails or drops the row; the last two never wait.
//	R4  After Close all statistics are exact over all episodes, but quantiles of images of sessions that left no counts; before it quantiles of numbers are left out.
//	R5  Numbers that are NaN or infinite are refused with feature, element and row, unless RecordOptions.AllowNaN names the feature.
//	R6  A row holds the last sample of each stream of RecordOptions.Streams at or before the row's time. All samples of a saved
//	    episode are in its file under recordings/, which appears before info.json names the episode and disappears after.
package write
