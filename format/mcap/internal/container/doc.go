// Package container reads and writes the records of MCAP files.
//
// Writing goes through github.com/foxglove/mcap/go. Chunks are built here and given to it whole:
// with its own chunks its statistics (1.9) give the start of a later chunk where a recording begins
// at time 0, as converted datasets do, and each file would have a zstd encoder with goroutines.
// Reading is our own: the library has no recovery of cut files, no joined requests of remote files,
// no chunks under one budget and no limits before memory is taken, and its ParseChunk panics where
// a chunk's length lies.
package container
