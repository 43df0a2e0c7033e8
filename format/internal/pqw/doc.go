// Package pqw writes Parquet files out of column chunks that are encoded anywhere, before their
// file is known.
//
// # Contract
//
//	P1  A Chunk holds one column of one row group. It depends on the column, the rows and nothing else: chunks are made side by side, in any order,
//	    and a File appends them in the order of its columns. The same rows give the same bytes.
//	P2  Pages are of version 1, PLAIN, or RLE_DICTIONARY where the schema asks for it and the dictionary stays below a page; they end at whole rows, at about
//	    PageBytes; each carries its CRC. A row that Parquet's 31 bits of a page's size do not hold, as it is or compressed, is refused (ErrResourceLimit). Compression is the schema's, Snappy or none.
//	P3  Bounds are those of the values that are numbers, −0 below +0; a page without such has none. Byte arrays have bounds where both are short, a chunk of them where
//	    those of all its pages are.
//	P4  The memory of a chunk is its encoded bytes. Byte arrays that are not compressed are referred to in place of being copied.
//	P5  The footer's schema is the Parquet library's, from the same nodes that its own writer would be given.
//
// # Why own
//
// Level and index encodings, Thrift and the schema are parquet-go's (v0.32). Its writer is not
// used: it takes a column as parquet.Value, 24 bytes each, and its repeated columns are assembled
// value by value. A list column of 26 float32, 300 rows a row group, is written by
// ColumnWriter.WriteRowValues at 15 to 23 MB/s, by Rows here at 140 to 280 MB/s (interleaved,
// EPYC); converting rows, which does 57 to 83 MB per CPU second, would do 17. It has no way either
// to leave out the bounds of a chunk of long texts or of float16 without stating empty ones in the
// page index, by which other readers skip pages.
package pqw
