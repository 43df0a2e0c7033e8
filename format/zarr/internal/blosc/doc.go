// Package blosc decompresses blosc 1 buffers: blosclz, lz4, lz4hc, zlib and zstd, with byte or bit
// shuffle.
//
// # Contract
//
//	blosc.B1  Decode returns the same bytes as c-blosc for every buffer that c-blosc writes, for
//	          every codec, shuffle, type size and block size.
//	blosc.B2  The sizes in the header are compared with the buffer, with each other and with the
//	          caller's limit before memory is allocated.
//	blosc.B3  Damaged data is Malformed. Snappy, and codecs that blosc 1 does not have, are
//	          Unsupported with their name. No input causes a panic or a write outside the result.
//	blosc.B4  The result does not alias the buffer.
package blosc
