// Package synth writes synthetic datasets: a planar arm of two links that reaches for colored
// discs, seen by cameras.
//
// # Contract
//
//	synth.S1   The same options give the same bytes, for one build and one release of the video
//	           encoder.
//	synth.S2   The content can be learned: the action is a function of observation.state and of the
//	           position of the disc that the task names. Only the images show the disc; a white
//	           ring marks it.
//	synth.S3   Every image has a bar code of (episode, row), which ReadCode reads even after lossy
//	           coding. A test can therefore identify the frame that it gets.
//	synth.S4   Without jitter and gaps the dataset is flawless: rows lie on the grid k/fps, and
//	           doctor finds nothing.
//	synth.S5   With jitter and gaps, the recorded timestamps are stored as float64 seconds from the
//	           start of the episode: observation.state.recorded, and <camera>.recorded for each
//	           camera. LeRobot's own timestamp column stays k/fps, as its recorder writes it.
//	synth.S6   A destination is complete or does not exist: an error removes what was written.
//	synth.S7   New returns a dataset that is generated when it is read. It gives the same rows in
//	           any order and from any number of goroutines. If its streams share one clock, they are
//	           those that Write writes. NewRows gives these rows for any clocks.
//	synth.S8   The streams of New have the requested rates. Truth returns how each clock is
//	           distorted: delayed start, silent interval, constant offset, skew. Timestamps
//	           increase.
//	synth.S9   Samples, recorded timestamps and lost samples depend on seed and options, not on the
//	           format. A message of New on its own clock and a column of Write or NewRows have the
//	           same samples. Cameras lose the same frames as the rows. Samples that rows cannot hold
//	           are a finding.
//	synth.S10  A preset consists of formulas, without a simulated world: numeric streams, and
//	           timestamps for each trajectory. synth.S1 and synth.S7 apply to it.
//
// Intuitively, everything is a pure function of (seed, episode, purpose), so that nothing has to be
// stored and a test can recompute every value.
//
// # Streams faster than the images
//
// LeRobot and other formats with one clock have one row per frame. A faster stream (joints=100,
// force=333 with camera=30) is stored as the native samples of each row's interval:
//
//   - feature [k, D]: the samples after the previous recorded row, up to and including the time of
//     this row. k is the largest count that occurs.
//   - <key>.recorded [k]: their timestamps.
//   - <key>.count: their number.
//
// Rows with fewer samples repeat their last one with its timestamp. A row without samples repeats
// the one of the previous row. All rows in sequence are therefore the stream itself: timestamps
// never decrease, and equal timestamps have equal values.
package synth
