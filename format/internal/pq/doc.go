// Package pq decodes Parquet columns into flat arrays, in bounded memory.
//
// # Contract
//
//	P1  Memory follows what is read, not what is declared: a column and each of its pages stay below Limits, and a compressed page
//	    gives exactly the bytes that its header says or is Malformed.
//	P2  Every fault is a *robocache.Error with row group and column, and the row where a row is at fault. Nothing here panics.
//	P3  With a shape, every row is proven to be an array of that shape without nulls. Without one, levels are given.
//	P4  A column has as many rows as its row group, or there is an error: never a shorter list.
//	P5  Page checksums are compared where they are there.
//
// Known: snappy, gzip, brotli, zstd, raw LZ4: all that pyarrow writes; PLAIN, dictionary, RLE, the
// three DELTA encodings and BYTE_STREAM_SPLIT; data pages v1 and v2.
//
// # Why own
//
// Footers of episodes files hold a million column chunks, nearly all statistics: they are walked,
// not built. parquet-go's decoders of pages (v0.32, encoding/…) take the number of values from the
// bytes and have no limit to set: 6 bytes of RLE levels made one allocate 512 MB, 7 bytes of
// dictionary indices 2 GB, 9 bytes of DELTA_BINARY_PACKED 4 GB, and 22 KB of DELTA_BYTE_ARRAY 381
// MB. To check the runs before calling one is to decode them, and its assembly is out of reach of
// recover.
package pq
