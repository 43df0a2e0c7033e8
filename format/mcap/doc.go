// Package mcap reads and writes MCAP files as robot recordings. A file is an episode, and a folder
// of files is a dataset.
//
// # Contract
//
//	mcap.M1  Opening a file reads its header, footer and summary. Reading a message then uses
//	         only the indexes and the message's chunk. If the summary is missing or invalid, the
//	         file is scanned once, and a finding reports it.
//	mcap.M2  Every intact message is returned unchanged, ordered by log time. Messages with equal
//	         log times are in file order.
//	mcap.M3  A damaged chunk loses only its own messages. It is skipped, counted and reported, or
//	         an error with damaged=error. A truncated file returns the messages before the end.
//	mcap.M4  A size in the file is checked before memory is allocated for it: against the file,
//	         the budget, and the limits. The limits are 256 MiB per chunk and, above 64 MiB,
//	         1,000 times the compressed size.
//	mcap.M5  Decompressed chunks of all files of a dataset together stay within their budget.
//	         Concurrent readers of a chunk share one read. For a remote file, neighboring chunks
//	         are requested together, up to a sixteenth of the budget and 4 MiB.
//	mcap.M6  Written files open in other readers: profile ros2, zstd chunks, ros2msg schemas,
//	         summary with statistics. Reading them returns the original features, rows,
//	         timestamps and tasks.
//	mcap.M7  A Tail of a file that is being written returns each message once, in the order of
//	         the file, when its record or chunk is complete. Damage loses only the record or
//	         chunk that contains it.
package mcap
