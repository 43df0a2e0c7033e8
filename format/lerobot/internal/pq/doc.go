// Package pq decodes Parquet columns into flat arrays, in bounded memory.
//
// Of parquet-go it takes nothing at run time: a hostile footer or page must not be able to ask for memory (its LZ4 and thrift readers can
// be made to), footers of episodes files (a million chunks of statistics) are walked without building them, and values go
// straight into the array that is cached.
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
// Known: snappy, gzip, brotli, zstd, raw LZ4: all that pyarrow writes; PLAIN, dictionary, RLE, the three DELTA encodings and BYTE_STREAM_SPLIT; data pages v1 and v2.
package pq
