// Package container reads and writes the records of MCAP files.
//
// Writing uses github.com/foxglove/mcap/go. Chunks are built here and passed to it complete, for
// two reasons. With its own chunks, its statistics (version 1.9) have a wrong start time if a
// recording begins at time 0, as converted datasets do. Each file would also need a zstd encoder
// with goroutines.
//
// Reading is implemented here. The library does not recover truncated files, join requests of
// remote files, share a budget between files, or check limits before it allocates memory. Its
// ParseChunk panics if the length of a chunk is wrong.
package container
