// Package sqlite reads tables of SQLite 3 files with github.com/ncruces/go-sqlite3 (SQLite
// translated to Go: no cgo, memory-safe). It reads through robocache.Ranged, so a file may be
// remote. It does not write: it creates neither locks nor -shm files.
//
// # Contract
//
//	sqlite.Q1  Values are those that SQLite returns.
//	sqlite.Q2  Damage is ErrMalformed: a page outside the file, a cell outside its page, a tree
//	           that is too deep. Rows before the damage are returned.
//	sqlite.Q3  A record's declared size allocates memory only if the file is large enough for it.
//	           A connection uses 32 MiB plus three times the largest value (Expect), at most 1
//	           GiB. Idle connections of all files use 256 MiB. A lack of address space is
//	           ErrResourceLimit.
//	sqlite.Q4  Pages of committed transactions in a write-ahead log replace those of the file.
//	sqlite.Q5  Only tables are read. Views, virtual tables and computed columns would run code of
//	           the file.
//	sqlite.Q6  A query for sizes and small columns does not read large values, which have separate
//	           pages.
//
// Measured on 100,000 messages of 300 bytes: an index of all rows takes 0.08 CPU s, payloads in
// file order take 0.7 µs each, and opening takes 0.7 ms. The runtime is initialized with the first
// database, not when the package is loaded.
package sqlite
