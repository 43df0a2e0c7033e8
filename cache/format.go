package cache

import (
	"bytes"
	"encoding/binary"
	"io"

	"github.com/zeebo/xxh3"
)

// The parts of a shard file: a head, entries (each a header and its data, padded), a table of the
// entries, a tail.
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

// fields are the words of a record: 64 bytes, a magic number, the words, and the checksum of what
// precedes it.
type fields [6]uint64

func record(magic [8]byte, v fields) []byte {
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

// head is the first record of a shard.
func head(cacheID, shardID uint64, capacity int64) []byte {
	return record(headMagic, fields{cacheID, shardID, uint64(capacity)})
}

// isOf says whether a head or a tail is of that shard.
func isOf(b []byte, magic [8]byte, cacheID, shardID uint64) bool {
	v, ok := parseRecord(b, magic)
	return ok && v[0] == cacheID && v[1] == shardID
}

// entryHeader is the record before an entry's data. It names its own place and shard, so that bytes
// of an entry that look like a header (a cached shard, say) are not taken for one.
func entryHeader(s slot, shardID uint64) []byte {
	return record(
		entryMagic,
		fields{
			le.Uint64(s.key[:]),
			le.Uint64(s.key[8:]),
			uint64(s.n),
			s.sum,
			uint64(s.off),
			shardID,
		},
	)
}

// parseEntry reads the record at off of a file of size bytes.
func parseEntry(b []byte, off, size int64, shardID uint64) (s slot, ok bool) {
	v, ok := parseRecord(b, entryMagic)
	s = slot{off: off + entryHead, n: int64(v[2]), sum: v[3]}
	le.PutUint64(s.key[:], v[0])
	le.PutUint64(s.key[8:], v[1])
	return s, ok && v[5] == shardID && v[4] == uint64(s.off) && s.off <= size &&
		v[2] <= uint64(size-s.off)
}

// table gives the table and the tail of a shard whose entries end at off.
func table(slots []slot, off int64, cacheID, shardID uint64) []byte {
	rows := make([]byte, 0, len(slots)*tableRow+tailSize)
	for _, s := range slots {
		rows = append(rows, s.key[:]...)
		for _, v := range []uint64{uint64(s.off), uint64(s.n), s.sum} {
			rows = le.AppendUint64(rows, v)
		}
	}
	size := uint64(off) + uint64(cap(rows))
	return append(
		rows,
		record(
			tailMagic,
			fields{cacheID, shardID, uint64(off), uint64(len(slots)), xxh3.Hash(rows), size},
		)...)
}

// readTable gives the entries of a sealed shard. An error of r is returned; a table that does not
// hold is (nil, false, nil).
func readTable(r io.ReaderAt, size int64, cacheID, shardID uint64) ([]slot, bool, error) {
	if size < headSize+tailSize {
		return nil, false, nil
	}
	var rec [64]byte
	if _, err := r.ReadAt(rec[:], 0); err != nil {
		return nil, false, short(err)
	}
	if !isOf(rec[:], headMagic, cacheID, shardID) {
		return nil, false, nil
	}
	if _, err := r.ReadAt(rec[:], size-tailSize); err != nil {
		return nil, false, short(err)
	}
	tail, ok := parseRecord(rec[:], tailMagic)
	off, count, sum := tail[2], tail[3], tail[4]
	room := uint64(size - tailSize)
	if !ok || tail[0] != cacheID || tail[1] != shardID || tail[5] != uint64(size) ||
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

// short turns the end of a file that shrank while it was read into "does not hold", which is no
// error of the system.
func short(err error) error {
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		return nil
	}
	return err
}

// scan finds the entries of an unsealed shard by their headers, and where the last one ends. Where
// a header is missing (a write that never finished), it looks for the next. nextData skips holes of
// the file; it may return its argument.
func scan(
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
				// the last place is looked at again, as the first of the next round
				pos += int64(max(skipped-align, 0))
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

// findEntry gives the first entry whose header is in b, which begins at pos; without one, how many
// bytes hold none.
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
