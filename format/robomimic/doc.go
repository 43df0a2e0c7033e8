// Package robomimic reads HDF5 files in the layout of robomimic: data/demo_N/{actions, obs/…},
// mask/…, env_args. Folders of such files (LIBERO) are one dataset.
//
// # Contract
//
//	M1  An episode is a demo; demos follow the numbers in their names, files theirs. Its length is that of actions; a num_samples that
//	    differs is a finding.
//	M2  Streams are observation.<key>, action, and the other data sets of a demo by their path; next_obs only where option next_obs asks.
//	    The schema is the union of the demos' streams, each in its most common form. A demo that lacks a stream, or has another type,
//	    shape or length, fails when it is read; findings list both. If observations have one row more than the actions, the last observation is left out.
//	M3  The rate is OpenOptions.HZ, else control_freq of env_args; where nobody says it, asking for timestamps is ErrMisuse.
//	M4  mask/… are splits: Info.Splits says which positions each has, option split opens one.
//	M5  uint8 rows of height × width × 1 or 3 are images, as pixels; rows of JPEG or PNG bytes are those. uint16 and float32 of one channel are depth.
//	    Option channel_order says where the channels are blue, green, red.
//	M6  Write is the way back: what it wrote is read with the same streams, rows, tasks and splits. What robomimic cannot hold (streams on
//	    clocks of their own and timestamps off the grid but by option timestamps, rows of varying length, a second task) is dropped or flattened with a finding, and
//	    nothing is made up: a source without rewards gives a file without.
//	M7  Where the attribute timestamps_suffix of data names an ending ("_timestamps"), or a stream of another length than the actions has them, <name>_timestamps
//	    beside <name> are its timestamps (seconds where floating, nanoseconds where integer), and no stream: <name> is on a clock of its own, shared by those
//	    that one data set of timestamps has names beside. Those of actions are the rows', unless OpenOptions.HZ says a rate. Write does so by option timestamps.
package robomimic
