// Package inflate decompresses deflate, zlib and gzip data of known size into a whole buffer. It
// uses libdeflate if 'make native' built it, which is two to three times as fast. Otherwise it uses
// klauspost/compress.
//
// # Contract
//
//	inflate.N1  Zlib, Gzip and Raw fill dst completely or return an error. Data that is shorter
//	            or longer than dst is Malformed. The caller has checked len(dst) against its
//	            budget; no other allocation depends on the data.
//	inflate.N2  Both implementations produce the same bytes and the same counts. Checksums
//	            (Adler-32, CRC-32, the length in gzip) are verified. If damage is not covered by
//	            a checksum (a plain deflate stream, a gzip header), only one implementation may
//	            detect it.
//	inflate.N3  Bytes after the end of a zlib or deflate stream are ignored. A gzip member may be
//	            followed by another member or by zeros.
//	inflate.N4  All functions are safe for concurrent use. dst and src must not overlap.
package inflate
