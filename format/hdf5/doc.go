// Package hdf5 reads HDF5 files of unknown layout. A data set with as many rows as the episode is a
// stream.
//
// # Contract
//
//	hdf5.G1  An episode is a numbered group (episode_3, traj_3, demo_3 or 3) if all groups next to
//	         it have such names. Otherwise an episode is a file. The option episodes overrides
//	         this with "file", or with the path of the group that contains the episodes.
//	hdf5.G2  The length of an episode is that of its action or actions. Without them it is the
//	         most common length of its data sets. The option length names another data set.
//	hdf5.G3  Each data set of that length is a stream, and its key is the path with dots. Images
//	         are found as in robomimic and ALOHA. A compound becomes one stream per field. A data
//	         set that is not a stream is a finding of severity info with the reason. If the file
//	         is the episode and has neither actions nor timestamps, data sets of other lengths
//	         (above one row) are streams too. Each length is then a clock with the timestamps of
//	         the rate, and does not limit a timeline. A data set with one row more than the
//	         actions (ManiSkill's obs and env_states) is a stream without its last row, which is
//	         the state after the last action.
//	hdf5.G4  Timestamps are those of the option timestamps (or of a mapping's clock
//	         "timestamps:<path>"). Without it, they are those of a data set timestamp or
//	         timestamps. Otherwise they follow from OpenOptions.HZ, or from an attribute fps, hz,
//	         frequency or control_freq. If there is none of these, a request for timestamps is
//	         ErrMisuse. Info.UnusedClocks lists the time data sets that have a fault.
//	hdf5.G5  A data set of another length with a data set <name>_timestamps of that length next to
//	         it is a stream with its own clock. All such pairs of the dataset are then streams of
//	         this kind. The timestamps of the rows are those of the actions, or of the first
//	         stream that is as long as the episode (robomimic.M7).
package hdf5
