package cache

import (
	"bytes"
	"encoding/binary"
	"io"

	"github.com/zeebo/xxh3"
)

// A shard file consists of a head, entries (each a header and padded data), a table of the entries,
// and a tail.
const (
	align     = 64
	headSize  = 64
	entryHead = 64
	tableRow  = 40
	tailSize  = 64

	formatVersion = 1

	maxRows = 1 << 20 // limit of the table; the largest allocation that a file can cause is 40 MB
)

var (
	headMagic  = [8]byte{'R', 'C', 's', 'h', 'a', 'r', 'd', formatVersion}
	entryMagic = [8]byte{'R', 'C', 'e', 'n', 't', 'r', 'y', formatVersion}
	tailMagic  = [8]byte{'R', 'C', 't', 'a', 'b', 'l', 'e', formatVersion}
)

// slot is the position and checksum of an entry's data.
type slot struct {
	key Key
	off int64 // of the data
	n   int64 // length of the data
	sum uint64
}

var le = binary.LittleEndian

func alignUp(n int64) int64 { return (n + align - 1) &^ (align - 1) }

// entryFootprint returns the bytes that an entry of n bytes occupies in a shard, including its
// table row.
func entryFootprint(n int64) int64 { return entryHead + alignUp(n) + tableRow }

// overhead is the number of bytes in a shard that hold no entries.
const overhead = headSize + tailSize + align

// fields holds the words of a record. A record has 64 bytes: a magic number, the words, and a
// checksum of both.
type fields [6]uint64

func encodeRecord(magic [8]byte, v fields) []byte {
	b := append(make([]byte, 0, 64), magic[:]...)
	for _, x := range v {
		b = le.AppendUint64(b, x)
	}
	return le.AppendUint64(b, xxh3.Hash(b))
}

func parseRecord(b []byte, magic [8]byte) (v fields, ok bool) {
	if len(b) != 64 || !bytes.Equal(b[:8], magic[:]) || le.Uint64(b[56:]) != xxh3.Hash(b[:56]) {
		return v, false
	}
	for i := range v {
		v[i] = le.Uint64(b[8+8*i:])
	}
	return v, true
}

// shardHead returns the first record of a shard.
func shardHead(cacheID, shardID uint64, capacity int64) []byte {
	return encodeRecord(headMagic, fields{cacheID, shardID, uint64(capacity)})
}

// belongsToShard reports whether b is a valid head or tail of the shard.
func belongsToShard(b []byte, magic [8]byte, cacheID, shardID uint64) bool {
	v, ok := parseRecord(b, magic)
	return ok && v[0] == cacheID && v[1] == shardID
}

// entryHeader returns the record before an entry's data. It contains its own offset and shard id.
// Data that looks like a header, such as a cached shard, is therefore not mistaken for one.
func entryHeader(s slot, shardID uint64) []byte {
	return encodeRecord(entryMagic, fields{
		le.Uint64(s.key[:]),
		le.Uint64(s.key[8:]),
		uint64(s.n),
		s.sum,
		uint64(s.off),
		shardID,
	})
}

// parseEntry parses the entry header at offset off of a file of size bytes.
func parseEntry(b []byte, off, size int64, shardID uint64) (s slot, ok bool) {
	v, ok := parseRecord(b, entryMagic)
	if !ok {
		return slot{}, false
	}
	// The fields are in the order of entryHeader.
	n, sum, dataOff, inShard := v[2], v[3], v[4], v[5]
	s = slot{off: off + entryHead, n: int64(n), sum: sum}
	le.PutUint64(s.key[:], v[0])
	le.PutUint64(s.key[8:], v[1])
	isHere := inShard == shardID && dataOff == uint64(s.off)
	return s, isHere && s.off <= size && n <= uint64(size-s.off)
}

// encodeTable returns the table and the tail of a shard whose entries end at off.
func encodeTable(slots []slot, off int64, cacheID, shardID uint64) []byte {
	rows := make([]byte, 0, len(slots)*tableRow+tailSize)
	for _, s := range slots {
		rows = append(rows, s.key[:]...)
		for _, v := range []uint64{uint64(s.off), uint64(s.n), s.sum} {
			rows = le.AppendUint64(rows, v)
		}
	}
	fileSize := uint64(off) + uint64(cap(rows))
	tail := fields{cacheID, shardID, uint64(off), uint64(len(slots)), xxh3.Hash(rows), fileSize}
	return append(rows, encodeRecord(tailMagic, tail)...)
}

// readTable returns the entries of a sealed shard. It returns an error only if r does. For an
// invalid table it returns (nil, false, nil).
func readTable(r io.ReaderAt, size int64, cacheID, shardID uint64) ([]slot, bool, error) {
	if size < headSize+tailSize {
		return nil, false, nil
	}
	var rec [64]byte
	if _, err := r.ReadAt(rec[:], 0); err != nil {
		return nil, false, ignoreEOF(err)
	}
	if !belongsToShard(rec[:], headMagic, cacheID, shardID) {
		return nil, false, nil
	}
	if _, err := r.ReadAt(rec[:], size-tailSize); err != nil {
		return nil, false, ignoreEOF(err)
	}
	tail, ok := parseRecord(rec[:], tailMagic) // the fields are in the order of encodeTable
	if !ok || tail[0] != cacheID || tail[1] != shardID || tail[5] != uint64(size) {
		return nil, false, nil
	}
	off, count, sum := tail[2], tail[3], tail[4]
	tableEnd := uint64(size - tailSize)
	if off < headSize || off > tableEnd || count > maxRows || tableEnd-off != count*tableRow {
		return nil, false, nil
	}
	rows := make([]byte, tableEnd-off)
	if _, err := r.ReadAt(rows, int64(off)); err != nil {
		return nil, false, ignoreEOF(err)
	}
	if xxh3.Hash(rows) != sum {
		return nil, false, nil
	}
	slots := make([]slot, count)
	for i := range slots {
		row := rows[i*tableRow:]
		at, n := le.Uint64(row[16:]), le.Uint64(row[24:])
		if at%align != 0 || at < headSize+entryHead || at > off || n > off-at {
			return nil, false, nil
		}
		slots[i] = slot{off: int64(at), n: int64(n), sum: le.Uint64(row[32:])}
		copy(slots[i].key[:], row)
	}
	return slots, true, nil
}

// ignoreEOF returns nil for an end-of-file error, which means that the file shrank while it was
// read. The caller treats such a file as invalid.
func ignoreEOF(err error) error {
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		return nil
	}
	return err
}

// scanEntries finds the entries of an unsealed shard by their headers. It returns them and the end
// of the last one. If a header is missing, because a write never finished, it searches for the next
// header. nextData skips holes of the file: it returns the first offset with data at or after its
// argument. If it cannot find holes, it returns its argument.
func scanEntries(
	r io.ReaderAt,
	size int64,
	shardID uint64,
	nextData func(int64) int64,
) (slots []slot, end int64, err error) {
	var rec [entryHead]byte
	var buf []byte
	pos := int64(headSize)
	end = pos
	for pos+entryHead <= size && len(slots) < maxRows {
		if _, err := r.ReadAt(rec[:], pos); err != nil {
			return slots, end, ignoreEOF(err)
		}
		s, ok := parseEntry(rec[:], pos, size, shardID)
		if !ok {
			if buf == nil {
				buf = make([]byte, 1<<20)
			}
			pos = nextData(pos + align)
			n, err := r.ReadAt(buf[:max(min(int64(len(buf)), size-pos), 0)], pos)
			if err != nil && ignoreEOF(err) != nil {
				return slots, end, err
			}
			var skipped int
			if s, skipped, ok = findEntry(buf[:n], pos, size, shardID); !ok {
				// The next round searches from pos + align on. Set pos to the last position that was
				// searched, so that the next one is not skipped.
				pos += int64(max(skipped-align, 0))
				if n < len(buf) {
					return slots, end, nil
				}
				continue
			}
		}
		slots = append(slots, s)
		pos = s.off + alignUp(s.n)
		end = min(pos, size)
	}
	return slots, end, nil
}

// findEntry returns the first entry whose header is in b, the bytes of the file at offset pos.
// skipped is the number of bytes before the header, or the searched bytes if there is none.
func findEntry(b []byte, pos, size int64, shardID uint64) (s slot, skipped int, ok bool) {
	for i := 0; i+entryHead <= len(b); i += align {
		if bytes.Equal(b[i:i+len(entryMagic)], entryMagic[:]) {
			if s, ok := parseEntry(b[i:i+entryHead], pos+int64(i), size, shardID); ok {
				return s, i, true
			}
		}
		skipped = i + align
	}
	return s, skipped, false
}
