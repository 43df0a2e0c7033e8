package checksum

import "hash/crc32"

// CRC32 is the sum of b.
func CRC32(b []byte) uint32 { return Update(0, b) }

// Update adds b to the sum of what came before it.
func Update(crc uint32, b []byte) uint32 {
	crc, n := wide(crc, b)
	return crc32.Update(crc, crc32.IEEETable, b[n:])
}
