// Package pq decodes Parquet columns into flat arrays, in bounded memory.
//
// # Contract
//
//	pq.P1  Memory depends on the data that is read, not on declared sizes. A column and each of
//	       its pages stay below Limits. A compressed page contains exactly the bytes that its
//	       header declares, or it is Malformed.
//	pq.P2  Every fault is a *robocache.Error with row group and column, and with the row if a row
//	       is wrong. No function panics.
//	pq.P3  If the caller gives a shape, every row is checked to be an array of that shape without
//	       nulls. Without a shape, the levels are returned.
//	pq.P4  A column has as many rows as its row group. Otherwise the read is an error, never a
//	       shorter list.
//	pq.P5  Page checksums are verified if the file has them.
//
// Supported are the codecs snappy, gzip, brotli, zstd and raw LZ4, which are all that pyarrow
// writes. Supported encodings are PLAIN, dictionary, RLE, the three DELTA encodings and
// BYTE_STREAM_SPLIT. Data pages may have version 1 or 2.
//
// # Why not parquet-go
//
// Footers of episodes files contain a million column chunks, nearly all of them statistics. This
// package skips them without building objects.
//
// The page decoders of parquet-go (v0.32, encoding/…) read the number of values from the data and
// have no limit. 6 bytes of RLE levels made one allocate 512 MB, 7 bytes of dictionary indices
// 2 GB, 9 bytes of DELTA_BINARY_PACKED 4 GB, and 22 KB of DELTA_BYTE_ARRAY 381 MB. Checking the
// runs before the call would mean decoding them, and recover does not catch faults in its assembly.
package pq
