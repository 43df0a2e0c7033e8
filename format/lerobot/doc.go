// Package lerobot reads and writes LeRobot datasets of versions v2.0, v2.1 and v3.x, in place, over
// any store.
//
// # Contract of the reader
//
//	lerobot.L1  Open reads only metadata: info.json, the projected columns of the episodes table
//	            (never statistics), the tasks, and the footer of one data file. It uses a few
//	            machine words per column and episode, and no object per episode.
//	lerobot.L2  Episode positions follow episode_index. File numbers are ordered as numbers.
//	lerobot.L3  Gather, Text and Times return the declared type. Stored values of another type are
//	            converted as by Arrow's safe cast: an integer that does not fit is an error, and a
//	            float64 is rounded to float32.
//	lerobot.L4  The columns of a row group are decoded one at a time, once, into a cache within the
//	            memory budget. Before its first use, episode_index and index of the rows are
//	            compared with the metadata. Rows in another order are located or rejected. Rows of
//	            another episode are never delivered.
//	lerobot.L5  Frames finds images by number: row k of an episode is frame S + k of its file,
//	            where S is the number of the episode's first frame.
//	            Timestamps are used only if a file has another number of frames than rows.
//	lerobot.L6  A deviation from the format with one possible meaning is accepted, with a finding in
//	            Info. Any other deviation is a typed error that names file, row group, column, row
//	            or episode.
//	lerobot.L7  No panic leaves the package. Declared sizes are checked against the budget before
//	            memory is allocated.
//	lerobot.L8  Times returns the time row/fps, to the nanosecond, for a stored timestamp that is
//	            row/fps rounded to float32. Every other timestamp is returned as stored. Gather
//	            returns what is stored.
//
// Intuitively, the metadata is a claim and the rows are the truth. Open compares both as far as
// this is cheap, and every row group is compared before its rows are delivered.
package lerobot
