// Package blosc decompresses blosc 1 buffers: blosclz, lz4, lz4hc, zlib and zstd, with byte or bit
// shuffle.
//
// # Contract
//
//	B1  Decode gives what c-blosc gives for every buffer that c-blosc writes, whatever codec, shuffle, type size and block size.
//	B2  The sizes of the header are checked against the buffer, against each other and against the caller's limit before memory is taken.
//	B3  What is damaged is Malformed; snappy, and codecs that blosc 1 does not have, are Unsupported by name. No input panics or writes
//	    outside the result.
//	B4  The result shares no memory with the buffer.
package blosc
