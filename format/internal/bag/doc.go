// Package bag makes a dataset of recordings: messages of many topics, each with its own times. What
// a recording is made of (an MCAP file, a db3 file, the files of a split bag) is behind Storage.
//
// # Contract
//
//	B1  A stream is a field of a topic; streams of one topic share a clock, but for transforms, where each pair of frames has its own.
//	    The rows of a stream are its messages by the chosen clock: in the order of the timestamps, those of one timestamp in log order.
//	B2  The clock is header where the type has one that is plausible (not 0, within 60 s of the recorder's time, no step back beyond the
//	    tolerance), else log with a finding. A stream never mixes clocks. A step back beyond the tolerance is an error that names the
//	    message; with episodes_by=steps an episode begins there.
//	B3  An episode is a recording, or a part of one by log time. Messages of a latched topic belong to every episode that ends after them.
//	B4  Nothing is decoded that was not asked for. A column is decoded once while the cache holds it; caches stay below the budget.
//	B5  A topic that cannot be decoded (another encoding, no schema) costs that topic alone, with a finding; a recording that cannot be opened
//	    costs that episode; a message that is wrong inside, or in a damaged chunk, costs that row.
//	B6  With scan=all, and below 64 MiB, every message is read at opening: streams, lengths and clocks are then what the recordings hold.
//	    Else the first messages of each topic decide, and a stream that would begin later is a finding.
//	B7  Images, clouds and texts are given as copies: what a caller keeps holds no chunk.
//	B8  Messages that are packets of video are a stream of kind video: the images of a topic of a recording are a topic video, a virtual MP4, a file of
//	    Video() that nobody wrote. A row has the image of its own message; where that cannot be decoded (before the first key frame, behind a lost
//	    message) it has none, with a finding. A topic video is laid out by reading its topic once.
package bag
