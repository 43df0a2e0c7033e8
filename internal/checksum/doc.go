// Package checksum is CRC-32 (IEEE), as zip, gzip and MCAP have it, at the speed of memory where the processor multiplies 64 bytes at once
// (VPCLMULQDQ with AVX-512): three to four times hash/crc32, which serves everywhere else.
//
// # Contract
//
//	K1  CRC32 and Update give what hash/crc32's ChecksumIEEE and Update with IEEETable give, for every length and every cut.
//	K2  Nothing is allocated, and nothing outside b is read.
package checksum
