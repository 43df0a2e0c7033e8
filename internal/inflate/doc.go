// Package inflate decompresses deflate, zlib and gzip data whose size is known, whole buffers at
// once: by libdeflate where 'make native' built it (two to three times the speed), by
// klauspost/compress elsewhere.
//
// # Contract
//
//	N1  Zlib, Gzip and Raw fill dst to its last byte or fail: data that holds less or more is Malformed. The caller has checked len(dst)
//	    against its budget; nothing is allocated that depends on the data.
//	N2  Both ways give the same bytes and the same counts. Checksums (Adler-32, CRC-32, gzip's length) are verified. Damage that no
//	    checksum covers (a plain deflate stream, a gzip header) one way may notice and the other not.
//	N3  Bytes after the end of a zlib or deflate stream are left alone; after a gzip member another one may follow, or zeros.
//	N4  Any number of goroutines may call. dst and src must not overlap.
package inflate
