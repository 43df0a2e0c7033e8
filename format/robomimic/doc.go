// Package robomimic reads HDF5 files in the layout of robomimic: data/demo_N/{actions, obs/…},
// mask/…, env_args. Folders of such files (LIBERO) are one dataset.
//
// # Contract
//
//	robomimic.M1  An episode is a demo. Demos and files are sorted by the numbers in their names.
//	              The length of an episode is that of actions. A num_samples that differs is a
//	              finding.
//	robomimic.M2  Streams are observation.<key>, action, and the other data sets of a demo by
//	              their path. next_obs is read only with the option next_obs. The schema is the
//	              union of the demos' streams, each in its most common form. A read of a demo
//	              fails if the demo lacks the stream, or has another type, shape or length.
//	              Findings list both cases. If observations have one row more than the actions,
//	              the last observation is left out.
//	robomimic.M3  The rate is OpenOptions.HZ, otherwise control_freq of env_args. Without both, a
//	              request for timestamps is ErrMisuse.
//	robomimic.M4  mask/… are splits. Info.Splits lists the positions of each split, and the option
//	              split opens one of them.
//	robomimic.M5  uint8 rows of height × width × 1 or 3 are images, as pixels. Rows of JPEG or PNG
//	              bytes are encoded images. uint16 and float32 with one channel are depth. The
//	              option channel_order states that the channels are blue, green, red.
//	robomimic.M6  Write is the inverse: its files are read with the same streams, rows, tasks and
//	              splits. Data that robomimic cannot store is dropped or flattened with a finding.
//	              This concerns streams with their own clocks and timestamps off the grid (unless
//	              the option timestamps is set), rows of variable length, and a second task.
//	              Nothing is invented: a source without rewards becomes a file without rewards.
//	robomimic.M7  A data set <name>_timestamps next to <name> contains its timestamps if the
//	              attribute timestamps_suffix of data names this ending, or if a stream of another
//	              length than the actions has such timestamps. Floats are seconds, integers are
//	              nanoseconds. The timestamps are not a stream, and <name> has its own clock.
//	              Streams that link to one data set of timestamps share a clock. The timestamps of
//	              actions are those of the rows, unless OpenOptions.HZ sets a rate. Write writes
//	              this form with the option timestamps.
//	robomimic.M8  Isaac Lab writes this layout with groups below obs, states and initial_state. A
//	              data set of one row below initial_state holds for all rows of its demo. Demos
//	              with the attribute success are in the splits success and failure, unless a mask
//	              of the file has that name.
package robomimic
