// Package pqw writes Parquet files out of column chunks that anyone encodes, anywhere, before their file is known.
//
// # Contract
//
//	P1  A Chunk holds one column of one row group. It depends on the column, the rows and nothing else: chunks are made side by side, in any order,
//	    and a File appends them in the order of its columns. The same rows give the same bytes.
//	P2  Pages are of version 1, PLAIN, or RLE_DICTIONARY where the schema asks for it and the dictionary stays below a page; they end at whole rows, at about
//	    PageBytes; each carries its CRC. A row that Parquet's 31 bits of a page's size do not hold, as it is or compressed, is refused (ErrResourceLimit). Compression is the schema's, Snappy or none.
//	P3  Bounds are those of the values that are numbers, −0 below +0; a page without such has none. Byte arrays have bounds where both are short, a chunk of them where
//	    those of all its pages are.
//	P4  The memory of a chunk is its encoded bytes. Blobs refers to the caller's byte arrays in place of copying them.
//	P5  The footer's schema is the Parquet library's, from the same nodes that its own writer would be given.
//
// # Cost
//
// Rows takes fixed rows as they lie in memory: a copy, the levels' pattern and the compression, no value of its own.
package pqw
