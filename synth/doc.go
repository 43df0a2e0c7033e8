// Package synth writes synthetic datasets: a planar arm of two links that reaches for coloured
// discs, seen by cameras.
//
// # Contract
//
//	S1  The same options give the same bytes (of one build, and of one release of the video encoder).
//	S2  The content can be learned: action is a function of observation.state and of where the disc is that the task names. The disc is only in the images, where a white ring marks it.
//	S3  Every image carries a bar code of (episode, row), which ReadCode finds again after lossy coding: a test can tell which frame it was given.
//	S4  Without jitter and gaps the dataset is flawless: rows lie on the grid k/fps, and doctor finds nothing.
//	S5  With them the recorded timestamps are kept, in seconds from the episode's start, as float64: observation.state.recorded, and <camera>.recorded for each camera. LeRobot's own timestamp column stays k/fps, as its recorder writes it.
//	S6  Destinations appear whole or not at all: an error removes what was written.
//	S7  New gives a dataset that is made while it is read: the same rows in whatever order, and from however many goroutines, they are asked for.
//	    Without clocks of their own its streams are those that Write writes; NewRows gives those rows whatever the clocks.
//	S8  Streams of New have the rates that were asked for; Truth says how each clock was bent: late start, drop-out, constant offset, skew. Timestamps increase.
//
//	S9  The samples, their recorded timestamps and what the recorder lost follow from seed and options, not from the format: a message of New on a clock of
//	    its own, a column of Write or NewRows. Cameras lose the frames that the rows lose. What rows have no place for is a finding.
//
//	S10 A preset is made of formulas, without a world: streams of numbers, timestamps of each trajectory. S1 and S7 hold for it.
//
// # Streams faster than the images
//
// LeRobot, and other formats of one clock, have one row a frame. A stream that is faster
// (joints=100, force=333 beside camera=30) is stored as the native samples of each row's interval:
// feature [k, D] with the samples recorded after the row before (the one that was recorded), up to
// and including this row's time; <key>.recorded [k] their timestamps; <key>.count their number. k
// is the largest count that occurs. Rows with fewer samples repeat their last one with its
// timestamp (a row without any repeats the one before), so that all rows in sequence are the stream
// itself: timestamps never decrease, and equal timestamps carry equal values.
package synth
