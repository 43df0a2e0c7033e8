package rlds

import (
	"encoding/binary"
	"hash/crc32"
	"math/bits"
)

// A TFRecord file is a sequence of: uint64 length · uint32 masked CRC of those 8 bytes · data ·
// uint32 masked CRC of data, all little-endian.
const (
	headBytes = 12
	tailBytes = 4
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// maskedCRC returns TFRecord's check sum. It is CRC-32C, rotated and shifted, so that it is also
// reliable for data that holds CRCs.
func maskedCRC(b []byte) uint32 {
	return bits.RotateLeft32(crc32.Checksum(b, castagnoli), -15) + 0xa282ead8
}

// recordLength reads the head of a record. It returns false if the check sum is wrong; the
// following bytes are then unusable.
func recordLength(head []byte) (uint64, bool) {
	le := binary.LittleEndian
	return le.Uint64(head), le.Uint32(head[8:]) == maskedCRC(head[:8])
}
