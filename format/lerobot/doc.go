// Package lerobot reads and writes LeRobot datasets: v2.0, v2.1 and v3.x, in place, over any store.
//
// # Contract of the reader
//
//	L1  Open reads metadata alone: info.json, the projected columns of the episodes table (never statistics), the tasks, and the
//	    footer of one data file. It costs a few words a column and episode, and no object an episode.
//	L2  Episode positions follow episode_index. File numbers are ordered as numbers.
//	L3  Gather, Text and Times give the declared type. Stored values of another type are converted as Arrow's safe cast
//	    does: an integer that does not fit is an error, a float64 is rounded to float32.
//	L4  A row group is decoded a column at a time, once, into a cache that holds at most the memory budget. Before its first use the rows'
//	    episode_index and index are compared with the metadata: rows in another order are found again or refused, never served as others.
//	L5  Frames counts frames: row k of an episode is frame S + k of its file. Timestamps are consulted only where a file
//	    holds another number of frames than rows, and then to find where episodes start.
//	L6  What deviates from the format and still has one meaning is served, with a Finding in Info. What has none is a typed error
//	    that names file, row group, column, row or episode.
//	L7  No panic leaves the package. Declared sizes are checked against the budget before memory is taken.
//	L8  Times gives row/fps, to the nanosecond, for a stored timestamp that is row/fps rounded to float32, and every other timestamp as it is stored. Gather gives
//	    what is stored.
package lerobot
