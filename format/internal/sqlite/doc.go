// Package sqlite reads tables of SQLite 3 files: rows in order of their rowid, values, and large values by ranges. It reads through
// robocache.Ranged, so a file may be remote, and writes nothing: no lock, no -shm beside the file. It knows no SQL beyond the column
// names of CREATE TABLE.
//
// # Contract
//
//	Q1  Values are what SQLite gives: integers, floats, texts, blobs, NULL; of an INTEGER PRIMARY KEY the rowid.
//	Q2  Each page of a table's tree is visited once: a cycle, a page outside the file, a cell outside its page is ErrMalformed with the
//	    page's number.
//	Q3  A record's declared size takes memory only where the file, and the limit of 1 GiB, have room for it.
//	Q4  Pages that a write-ahead log holds, of transactions that were committed, stand for those of the file.
//	Q5  Tables without rowid, UTF-16 texts, and virtual tables are ErrUnsupported by name.
//	Q6  Scanning reads the pages of the tree alone: large values, which lie in pages of their own, are not touched.
package sqlite
