package cache

import (
	"bytes"
	"encoding/binary"
	"io"

	"github.com/zeebo/xxh3"
)

// The parts of a shard file: a head, entries (each a header and its data, padded), a table of the entries, a tail.
const (
	align     = 64
	headSize  = 64
	entryHead = 64
	tableRow  = 40
	tailSize  = 64

	formatVersion = 1

	maxRows = 1 << 20 // of a table: what a file can make us allocate is 40 MB
)

var (
	headMagic  = [8]byte{'R', 'C', 's', 'h', 'a', 'r', 'd', formatVersion}
	entryMagic = [8]byte{'R', 'C', 'e', 'n', 't', 'r', 'y', formatVersion}
	tailMagic  = [8]byte{'R', 'C', 't', 'a', 'b', 'l', 'e', formatVersion}
)

// slot is where an entry's data lies, and what it must hash to.
type slot struct {
	key Key
	off int64 // of the data
	n   int64
	sum uint64
}

var le = binary.LittleEndian

func roundUp(n int64) int64 { return (n + align - 1) &^ (align - 1) }

// footprint is what an entry of n bytes takes of a shard, its row of the table included.
func footprint(n int64) int64 { return entryHead + roundUp(n) + tableRow }

// overhead is what a shard takes beside its entries.
const overhead = headSize + tailSize + align

// sealed64 writes the checksum of a 64-byte record into its last 8 bytes.
func sealed64(b []byte) []byte {
	le.PutUint64(b[56:], xxh3.Hash(b[:56]))
	return b
}

func intact64(b []byte, magic [8]byte) bool {
	return len(b) == 64 && bytes.Equal(b[:8], magic[:]) && le.Uint64(b[56:]) == xxh3.Hash(b[:56])
}

// head is the first record of a shard.
func head(cacheID, shardID uint64, capacity int64) []byte {
	b := make([]byte, headSize)
	copy(b, headMagic[:])
	le.PutUint64(b[8:], cacheID)
	le.PutUint64(b[16:], shardID)
	le.PutUint64(b[24:], uint64(capacity))
	return sealed64(b)
}

func headIs(b []byte, cacheID, shardID uint64) bool {
	return intact64(b, headMagic) && le.Uint64(b[8:]) == cacheID && le.Uint64(b[16:]) == shardID
}

// entryHeader is the record before an entry's data. It names its own place and shard, so that bytes of an entry that
// look like a header (a cached shard, say) are not taken for one.
func entryHeader(b []byte, s slot, shardID uint64) {
	copy(b, entryMagic[:])
	copy(b[8:24], s.key[:])
	le.PutUint64(b[24:], uint64(s.n))
	le.PutUint64(b[32:], s.sum)
	le.PutUint64(b[40:], uint64(s.off))
	le.PutUint64(b[48:], shardID)
	sealed64(b)
}

// parseEntry reads the record at off of a file of size bytes.
func parseEntry(b []byte, off, size int64, shardID uint64) (s slot, ok bool) {
	if !intact64(b, entryMagic) || le.Uint64(b[48:]) != shardID {
		return s, false
	}
	s = slot{off: off + entryHead, sum: le.Uint64(b[32:])}
	copy(s.key[:], b[8:24])
	n := le.Uint64(b[24:])
	if le.Uint64(b[40:]) != uint64(s.off) || s.off > size || n > uint64(size-s.off) {
		return s, false
	}
	s.n = int64(n)
	return s, true
}

// table gives the table and the tail of a shard whose entries end at off.
func table(slots []slot, off int64, cacheID, shardID uint64) []byte {
	b := make([]byte, len(slots)*tableRow+tailSize)
	for i, s := range slots {
		row := b[i*tableRow:]
		copy(row, s.key[:])
		le.PutUint64(row[16:], uint64(s.off))
		le.PutUint64(row[24:], uint64(s.n))
		le.PutUint64(row[32:], s.sum)
	}
	rows, tail := b[:len(slots)*tableRow], b[len(slots)*tableRow:]
	copy(tail, tailMagic[:])
	le.PutUint64(tail[8:], cacheID)
	le.PutUint64(tail[16:], shardID)
	le.PutUint64(tail[24:], uint64(off))
	le.PutUint64(tail[32:], uint64(len(slots)))
	le.PutUint64(tail[40:], xxh3.Hash(rows))
	le.PutUint64(tail[48:], uint64(off)+uint64(len(b)))
	sealed64(tail)
	return b
}

// readTable gives the entries of a sealed shard. An error of r is returned; a table that does not hold is (nil, false, nil).
func readTable(r io.ReaderAt, size int64, cacheID, shardID uint64) ([]slot, bool, error) {
	if size < headSize+tailSize {
		return nil, false, nil
	}
	var rec [64]byte
	if _, err := r.ReadAt(rec[:], 0); err != nil {
		return nil, false, short(err)
	}
	if !headIs(rec[:], cacheID, shardID) {
		return nil, false, nil
	}
	if _, err := r.ReadAt(rec[:], size-tailSize); err != nil {
		return nil, false, short(err)
	}
	off, count, sum := le.Uint64(rec[24:]), le.Uint64(rec[32:]), le.Uint64(rec[40:])
	room := uint64(size - tailSize)
	if !intact64(rec[:], tailMagic) || le.Uint64(rec[8:]) != cacheID || le.Uint64(rec[16:]) != shardID || le.Uint64(rec[48:]) != uint64(size) ||
		off < headSize || off > room || count > maxRows || count != (room-off)/tableRow || (room-off)%tableRow != 0 {
		return nil, false, nil
	}
	rows := make([]byte, room-off)
	if _, err := r.ReadAt(rows, int64(off)); err != nil {
		return nil, false, short(err)
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

// short turns the end of a file that shrank while it was read into "does not hold", which is no error of the system.
func short(err error) error {
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		return nil
	}
	return err
}

// scan finds the entries of an unsealed shard by their headers, and where the last one ends. Where a header is missing (a write
// that never finished), it looks for the next. nextData skips holes of the file; it may return its argument.
func scan(r io.ReaderAt, size int64, shardID uint64, nextData func(int64) int64) (slots []slot, end int64, err error) {
	var rec [entryHead]byte
	var buf []byte
	pos := int64(headSize)
	end = pos
	for pos+entryHead <= size && len(slots) < maxRows {
		if _, err := r.ReadAt(rec[:], pos); err != nil {
			return slots, end, short(err)
		}
		s, ok := parseEntry(rec[:], pos, size, shardID)
		if !ok {
			if buf == nil {
				buf = make([]byte, 1<<20)
			}
			pos = nextData(pos + align)
			n, err := r.ReadAt(buf[:max(min(int64(len(buf)), size-pos), 0)], pos)
			if err != nil && short(err) != nil {
				return slots, end, err
			}
			var skipped int
			if s, skipped, ok = findEntry(buf[:n], pos, size, shardID); !ok {
				pos += int64(max(skipped-align, 0)) // the last place is looked at again, as the first of the next round
				if n < len(buf) {
					return slots, end, nil
				}
				continue
			}
		}
		slots = append(slots, s)
		pos = s.off + roundUp(s.n)
		end = min(pos, size)
	}
	return slots, end, nil
}

// findEntry gives the first entry whose header is in b, which begins at pos; without one, how many bytes hold none.
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
