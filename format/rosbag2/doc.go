// Package rosbag2 reads rosbag2 recordings: folders with metadata.yaml and db3 (SQLite) or mcap
// files, single db3 files, and folders of such recordings. A recording with all its splits is one
// episode.
//
// # Contract
//
//	rosbag2.B1  The storage files take precedence over metadata.yaml, which may be missing,
//	            outdated or of any version. A listed file that is missing is reported and leaves
//	            a gap; with damaged=error it is an error. Files that are not listed are read too.
//	rosbag2.B2  Paths in metadata cannot leave the recording's folder. "..", absolute paths and
//	            links out of the folder are rejected.
//	rosbag2.B3  Nothing is written: no lock, no -shm, no -wal. Messages that are only in a
//	            write-ahead log are read from it, and a finding reports this.
//	rosbag2.B4  Messages are ordered by log time over all splits. Messages with equal times are
//	            in the order of their files.
//	rosbag2.B5  FILE and MESSAGE compression (zstd) return the recorded payloads. Before memory
//	            is allocated, declared sizes are checked against the budget, the file, and above
//	            64 MiB a ratio of 1,000. Other compressions are ErrUnsupported with their name.
//	rosbag2.B6  Schemas are read from the recording if it stores them, or else from the texts of
//	            package ros2. A topic without a schema is listed and reported, and other topics
//	            are read.
//	rosbag2.B7  Indexing a db3 file reads the pages of its rows, but not payloads in separate
//	            pages.
package rosbag2
