// Package container reads and writes the records of MCAP files.
//
// Reading is our own: index, recovery of cut files, joined requests of remote files, chunks under one budget, and limits before memory is taken;
// github.com/foxglove/mcap/go has none of these, and is what the tests write their files with. Its writer (1.9) is not used either: where a
// recording begins at time 0, as converted datasets do, its statistics give the start of a later chunk
// (Writer.WriteChunkWithIndexes takes 0 for "not set yet"), and it keeps a zstd encoder of its own goroutines for each file.
package container
