// Package pqw writes Parquet files from column chunks. Chunks can be encoded before their file is
// known.
//
// # Contract
//
//	pqw.P1  A Chunk contains one column of one row group and depends only on the column and the
//	        rows. Chunks can be encoded in parallel in any order. A File appends them in the order
//	        of its columns. The same rows produce the same bytes.
//	pqw.P2  Pages have version 1 and PLAIN encoding, or RLE_DICTIONARY if the schema asks for it
//	        and the dictionary is smaller than a page. Pages end at whole rows near PageBytes and
//	        contain a CRC. A row that exceeds Parquet's 31 bits for a page size, compressed or
//	        not, is ErrResourceLimit. Compression is as in the schema, Snappy or none.
//	pqw.P3  Bounds cover the values that are numbers, with −0 below +0. A page without numbers has
//	        no bounds. A page of byte arrays has bounds if both are short. A chunk of byte arrays
//	        has bounds if all its pages have bounds.
//	pqw.P4  The memory of a chunk is its encoded bytes. Byte arrays that are not compressed are
//	        referenced, not copied.
//	pqw.P5  The schema in the footer is written by the Parquet library from the nodes that its own
//	        writer would receive.
//
// # Why not the writer of parquet-go
//
// This package uses parquet-go (v0.32) for level and index encodings, Thrift and the schema, but
// not its writer. That writer needs a column as parquet.Value, 24 bytes each, and assembles
// repeated columns value by value. ColumnWriter.WriteRowValues writes a list column of 26 float32,
// 300 rows per row group, at 15 to 23 MB/s. Leaf.Rows writes it at 140 to 280 MB/s (interleaved,
// EPYC). A conversion of rows, which runs at 57 to 83 MB per CPU second, would drop to 17.
//
// The writer of parquet-go also cannot omit the bounds of a chunk of long texts or of float16. It
// would write empty bounds to the page index, and other readers would skip pages because of them.
package pqw
