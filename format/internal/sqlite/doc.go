// Package sqlite reads tables of SQLite 3 files with github.com/ncruces/go-sqlite3 (SQLite
// translated to Go: no cgo, memory-safe). It reads through robocache.Ranged, so a file may be
// remote, and writes nothing: no lock, no -shm beside the file.
//
// # Contract
//
//	Q1  Values are what SQLite gives.
//	Q2  Damage is ErrMalformed: a page outside the file, a cell outside its page, a tree too deep. Rows that come before the damage are given.
//	Q3  A record's declared size takes memory only where the file has room for it; a connection takes
//	    32 MiB and three times the largest value (Expect), at most 1 GiB. Idle connections of all files
//	    take 256 MiB. A lack of address space is ErrResourceLimit.
//	Q4  Pages that a write-ahead log holds, of transactions that were committed, stand for those of the file.
//	Q5  Only tables are read: views, virtual tables and computed columns would run what the file says.
//	Q6  Asking for sizes and small columns does not read large values, which lie in pages of their own.
//
// Measured on 100,000 messages of 300 bytes: an index of all rows takes 0.08 CPU s, payloads in the
// order of the file 0.7 µs each, opening 0.7 ms. The runtime begins with the first database, not
// when the package is loaded.
package sqlite
