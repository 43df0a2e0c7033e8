// Package bag implements a dataset of recordings: messages of many topics with their own times. The
// interface Storage hides the form of a recording, such as an MCAP file, a db3 file, or the files
// of a split bag.
//
// # Contract
//
//	bag.B1  A stream is a field of a topic. Streams of one topic share a clock, except transforms,
//	        where each pair of frames has its own clock. The rows of a stream are its messages,
//	        sorted by the timestamps of the chosen clock. Messages with equal timestamps are in
//	        log order.
//	bag.B2  The clock is header if the type has a plausible one: not 0, within 60 s of the
//	        recorder's time, and without a step back beyond the tolerance. Otherwise it is log,
//	        with a finding. A stream never mixes clocks. A step back beyond the tolerance is an
//	        error that names the message. With episodes_by=steps an episode begins there instead.
//	bag.B3  An episode is a recording, or a part of one by log time. Messages of a latched topic
//	        belong to every episode that ends after them.
//	bag.B4  Only requested data is decoded. A column is decoded once while the cache holds it.
//	        Caches stay below the budget.
//	bag.B5  A topic that cannot be decoded (unknown encoding, no schema) is skipped with a
//	        finding. A recording that cannot be opened makes its episode unreadable. A malformed
//	        message, or a message in a damaged chunk, loses its row.
//	bag.B6  With scan=all, and below 64 MiB, Open reads every message, so streams, lengths and
//	        clocks are exact. Otherwise the first messages of each topic decide, and a stream that
//	        begins later is a finding.
//	bag.B7  Images, clouds and texts are returned as copies, so that they do not keep a chunk in
//	        memory.
//	bag.B8  Messages that are packets of video form a stream of kind video. The images of a topic
//	        of a recording form a topic video, which is a virtual MP4 file in Video(). A row has
//	        the image of its own message. If that image cannot be decoded (before the first key
//	        frame, behind a lost message), the row has no image, and there is a finding. A topic
//	        video is built by reading its topic once.
package bag
