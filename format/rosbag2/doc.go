// Package rosbag2 reads rosbag2 recordings: folders with metadata.yaml and db3 (SQLite) or mcap
// files, single db3 files, and folders of such recordings. A recording, all its splits together, is
// an episode.
//
// # Contract
//
//	B1  The files are the truth: metadata.yaml may be missing, stale or of any version; what it lists and is not there is a finding and
//	    leaves a gap (with damaged=error it is an error); files that it does not list are read all the same.
//	B2  No path of a metadata file leaves the recording's folder: "..", absolute paths and links out of it are refused.
//	B3  Nothing is written: no lock, no -shm, no -wal. Messages that only a write-ahead log holds are read from it, and said so.
//	B4  Messages come in log-time order over all splits, those of one time in the order of their files.
//	B5  FILE and MESSAGE compression (zstd) give the payloads that were recorded; declared sizes are checked against the budget, the
//	    file and a ratio of 1,000 (above 64 MiB) before they take memory. Other compressions are ErrUnsupported by name.
//	B6  Schemas come from the recording where it stores them, else from the texts of package ros2; a topic that has neither is
//	    listed and found, and the others are read.
//	B7  Indexing a db3 reads the pages of its rows, not the payloads in pages of their own.
package rosbag2
