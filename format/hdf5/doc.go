// Package hdf5 reads HDF5 files of no known layout by a rule: what has as many rows as the episode
// is a stream.
//
// # Contract
//
//	G1  An episode is a numbered group (episode_3, traj_3, demo_3 or 3, where all groups beside it are so called), else a file. Option
//	    episodes says which: "file", or the path of the group that holds the episodes.
//	G2  An episode's length is that of its action or actions; where there is none, the length that most data sets share. Option length
//	    names another data set.
//	G3  Each data set with as many rows is a stream; its key is its path with dots. Images are found as in robomimic and ALOHA, a
//	    compound is a stream a field. What is no stream is a finding of severity info that says why.
//	    Of a file that is the episode, without actions and timestamps, data sets of other lengths (above one row) are streams too: each length
//	    is a clock, whose timestamps are the rate's and which bounds no timeline.
//	    One with a row more than the actions (ManiSkill's obs and env_states) is a stream without that row, what the last action led to.
//	G4  Timestamps are those of option timestamps (or a mapping's clock "timestamps:<path>"), else of a data set timestamp or timestamps; else the
//	    rate is OpenOptions.HZ or an attribute fps, hz, frequency or control_freq; else asking for timestamps is ErrMisuse.
//	    Info.UnusedClocks lists the time data sets with a fault.
//	G5  A data set of another length with <name>_timestamps of that length beside it is a stream on a clock of its own, and then all such pairs of the dataset
//	    are; those of the actions, else of the first stream as long as the episode, are the rows' (robomimic's M7).
package hdf5
