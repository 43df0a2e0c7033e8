package rlds

import (
	"encoding/binary"
	"hash/crc32"
	"math/bits"
)

// A TFRecord file is a run of: uint64 length · uint32 masked CRC of those 8 bytes · data · uint32
// masked CRC of data, all little-endian.
const (
	headBytes = 12
	tailBytes = 4
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// maskedCRC is TFRecord's check sum: CRC-32C, rotated and shifted so that a CRC of data that holds
// CRCs stays a good one.
func maskedCRC(b []byte) uint32 {
	return bits.RotateLeft32(crc32.Checksum(b, castagnoli), -15) + 0xa282ead8
}

// recordLength reads the head of a record; false where its check sum does not hold, and with it
// nothing is known of what follows.
func recordLength(head []byte) (uint64, bool) {
	le := binary.LittleEndian
	return le.Uint64(head), le.Uint32(head[8:]) == maskedCRC(head[:8])
}
