// Package mcap reads and writes MCAP files as robot recordings: a file is an episode, a folder of
// files a dataset.
//
// # Contract
//
//	M1  Opening reads head, footer and summary; a message is reached through the indexes and its chunk alone. Without a summary, or with one
//	    that does not hold, the file is scanned once, and says so.
//	M2  Every message that is whole is given, to the bit, by log time; those of one time in the order of the file.
//	M3  A damaged chunk costs its own messages: it is skipped, counted and found, or with damaged=error an error. A cut file gives what
//	    stands before the cut.
//	M4  No size of the file takes memory before it was checked against the file, the limits (256 MiB a chunk, above 64 MiB 1,000 times its
//	    compressed size) and the budget.
//	M5  Decompressed chunks of all files of a dataset together stay below their budget, each read once at a time.
//	    Of a remote file neighbouring chunks that are wanted come with one request, bounded by a sixteenth of that budget and 4 MiB.
//	M6  What is written opens in other readers: profile ros2, zstd chunks, ros2msg schemas, summary with statistics. Reading it gives
//	    features, rows, timestamps and tasks as they were.
package mcap
