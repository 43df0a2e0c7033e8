package rlds

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/guard"
	"github.com/goatnote-inc/robocache/internal/lru"
	"github.com/goatnote-inc/robocache/store"
	"google.golang.org/protobuf/encoding/protowire"
)

// shardIndex holds position, number of steps and task of each record of a shard. It is built once
// for a version of a file and is immutable.
type shardIndex struct {
	size    int64
	version string
	packed  packing
	// position of the record's head; in a packed shard that in the unpacked bytes
	offset     []int64
	length     []int64 // size of its data
	steps      []int32
	taskNumber []int32 // position in tasks; -1 if there is none
	tasks      []string
	keys       []int32             // position in keySets; -1 if the record was not read to its end
	keySets    []string            // a byte for each slot, 1 if the record has its key
	unknown    int64               // features of the first record that features.json lacks
	findings   []robocache.Finding // locations lack the name of the file
}

// bytes returns the memory of the index.
func (x *shardIndex) bytes() int64 { return int64(len(x.offset))*28 + 256 }

// indexes caches the index of each version of a file for the whole process, so that a dataset is
// scanned once.
var indexes = lru.New[string, *shardIndex](256 << 20)

// window reads a file forwards in blocks, for callers that need little of it.
type window struct {
	ctx  context.Context
	r    robocache.Ranged
	size int64
	step int
	buf  []byte
	off  int64
}

const (
	localStep  = 4 << 10
	remoteStep = 128 << 10 // a request costs more than its bytes
	maxPeek    = 64 << 10
)

// newWindow returns a window at the beginning of a file.
func newWindow(ctx context.Context, r robocache.Ranged) *window {
	w := &window{ctx: ctx, r: r, size: r.Size(), step: localStep}
	if store.Remote(r) {
		w.step = remoteStep
	}
	return w
}

// readAt returns n bytes at off, which must be inside the file. They are valid until the next call.
func (w *window) readAt(off int64, n int) []byte {
	if i := off - w.off; i >= 0 && i+int64(n) <= int64(len(w.buf)) {
		return w.buf[i : i+int64(n)]
	}
	want := int(min(int64(max(n, w.step)), w.size-off))
	if want < n {
		guard.Fail(robocache.Malformed(
			"rlds",
			robocache.Where{"offset": off},
			"read after the end of the file",
		))
	}
	if cap(w.buf) < want {
		w.buf = make([]byte, want)
	}
	w.buf, w.off = w.buf[:want], off
	if err := w.r.ReadAt(w.ctx, w.buf, off); err != nil {
		w.buf = w.buf[:0]
		guard.Fail(err)
	}
	return w.buf[:n]
}

// summary is the part of a record that the index stores.
type summary struct {
	steps   int
	task    string
	hasTask bool // the text of the task is known
	unknown int
	// By slot: 1 if the record has the key. It is nil if the record was not read to its end.
	keys []byte
}

// summarize finds steps and task of the record whose data is [off, off+n), without reading its
// images. If all is set, it reads every feature, counts those that features.json lacks, and records
// which keys exist. ok is false if the layout of the record is unusual. The caller must then parse
// the whole record.
func (s *schema) summarize(w *window, off, n int64, taskSlot int, all bool) (g summary, ok bool) {
	g.steps = -1
	g.hasTask = taskSlot < 0 || n == 0
	end := off + n
	good := n > 0
	keys := make([]byte, s.slots)
	head := func(p, limit int64, tag byte) (from, to int64) {
		if good {
			b := w.readAt(p, int(min(11, limit-p)))
			if good = len(b) >= 2 && b[0] == tag; good {
				size, k := protowire.ConsumeVarint(b[1:])
				from = p + 1 + int64(k)
				good = k > 0 && size <= uint64(limit-from)
				to = from + int64(size)
			}
		}
		return from, to
	}
	p, to := head(off, end, 0x0a)
	for good = good && to == end; good && p < end; {
		entry, entryEnd := head(p, end, 0x0a)
		key, keyEnd := head(entry, entryEnd, 0x0a)
		if !good || keyEnd-key > 4096 || keyEnd == entryEnd {
			return g, false
		}
		slot, known := s.names[string(w.readAt(key, int(keyEnd-key)))]
		val, valEnd := head(keyEnd, entryEnd, 0x12)
		if !good || valEnd != entryEnd {
			return g, false
		}
		if known {
			keys[slot] = 1
		}
		switch {
		case !known:
			g.unknown++
		case valEnd-val > maxPeek:
			if slot == taskSlot && !g.hasTask {
				return g, false
			}
		case slot == taskSlot && !g.hasTask, g.steps < 0 && s.counters[slot] != nil:
			b := w.readAt(val, int(valEnd-val))
			x := wire{b: b}
			list, _ := x.feature(0, len(b), nil)
			if slot == taskSlot && !g.hasTask {
				g.task, g.hasTask = list.firstText(b), true
			}
			if l := s.counters[slot]; g.steps < 0 && l != nil && x.err == nil &&
				(list.n == 0 || list.kind == l.listKind()) {
				if list.n%l.valuesPerRow() != 0 {
					return g, false
				}
				g.steps = list.n / l.valuesPerRow()
			}
		}
		p = entryEnd
		if !all && g.steps >= 0 && g.hasTask {
			return g, good
		}
	}
	g.keys = keys
	return g, good && g.steps >= 0
}

// firstText returns the first text of a list in b that is not empty.
func (l *list) firstText(b []byte) string {
	for _, sp := range l.spans {
		if sp.to > sp.from {
			return cleanText(b[sp.from:sp.to])
		}
	}
	return ""
}

// cleanText returns b as UTF-8, with invalid bytes replaced.
func cleanText(b []byte) string { return strings.ToValidUTF8(string(b), "\uFFFD") }

// indexer builds the index of one shard.
type indexer struct {
	schema   *schema
	taskSlot int
	limit    int64 // maximum size of a record
	room     int64 // remaining bytes for the index
	index    *shardIndex
	ids      map[string]int32
	keySets  map[string]int32 // keys → position in shardIndex.keySets
}

// buildIndex reads the heads of a shard's records. Damage becomes a finding, and readable records
// are indexed.
func (d *Dataset) buildIndex(
	ctx context.Context,
	name string,
	r robocache.Ranged,
	room int64,
) *shardIndex {
	b := &indexer{
		schema:   d.schema,
		taskSlot: d.taskSlot,
		limit:    d.limit,
		room:     room,
		index:    &shardIndex{size: r.Size(), version: r.Version()},
		ids:      map[string]int32{},
		keySets:  map[string]int32{},
	}
	w := newWindow(ctx, r)
	if b.index.packed = packingOf(w); b.index.packed == unpacked {
		b.indexRecords(w)
		return b.index
	}
	u := d.unpacked.unpackShard(ctx, name, r, b.index.packed, d.limit)
	if b.indexRecords(newWindow(ctx, u)); u.damage != nil {
		b.addFinding("truncated-shard", u.Size(), "%v: the rest of the shard is lost", u.damage)
	}
	return b.index
}

// addFinding adds a finding about damage at an offset of the shard.
func (b *indexer) addFinding(code string, off int64, format string, args ...any) {
	if len(b.index.findings) < 1000 {
		b.index.findings = append(b.index.findings, robocache.Finding{
			Severity: robocache.SeverityError,
			Code:     code,
			Where:    robocache.Where{"offset": off, "index": len(b.index.offset)},
			Message:  fmt.Sprintf(format, args...),
			Hint:     "fetch the file again",
			Lost:     true,
		})
	}
}

// indexRecords adds all records of a shard to the index. It stops at damage that hides the next
// record.
func (b *indexer) indexRecords(w *window) {
	for off := int64(0); off < w.size; {
		if w.size-off < headBytes+tailBytes {
			b.addFinding(
				"truncated-shard",
				off,
				"%d bytes after the last record: the file is cut",
				w.size-off,
			)
			return
		}
		n, ok := recordLength(w.readAt(off, headBytes))
		if !ok {
			b.addFinding(
				"bad-length-crc",
				off,
				"the check sum of a record's length does not hold: the rest of the shard (%d "+
					"bytes) is lost",
				w.size-off,
			)
			return
		}
		if n > uint64(w.size-off-headBytes-tailBytes) {
			b.addFinding(
				"truncated-shard",
				off,
				"a record of %d bytes, and the file ends after %d: the file is cut",
				n,
				w.size-off-headBytes,
			)
			return
		}
		guard.Check(w.ctx.Err())
		at, size := off+headBytes, int64(n)
		// In a remote store, a head after an image may need a request. There only the keys of the
		// first record are recorded.
		g, ok := b.schema.summarize(
			w,
			at,
			size,
			b.taskSlot,
			len(b.index.offset) == 0 || w.step == localStep,
		)
		var err error
		if !ok {
			g, err = guard.Value(func() summary { return b.parseWhole(w, off, size) })
		}
		b.addRecord(off, size, g, err)
		off = at + size + tailBytes
	}
}

// parseWhole reads and parses a record that summarize could not handle.
func (b *indexer) parseWhole(w *window, off, n int64) summary {
	if n > b.limit {
		guard.Fail(tooLarge(n, b.limit))
	}
	data := make([]byte, headBytes+n+tailBytes)
	guard.Check(w.r.ReadAt(w.ctx, data, off))
	rec := guard.Must(b.schema.parseRecord(data))
	g := summary{
		steps:   rec.steps,
		unknown: rec.unknown,
		hasTask: true,
		keys:    make([]byte, len(rec.lists)),
	}
	for slot := range rec.lists {
		if rec.lists[slot].found {
			g.keys[slot] = 1
		}
	}
	if b.taskSlot >= 0 {
		g.task = rec.lists[b.taskSlot].firstText(rec.data)
	}
	return g
}

func tooLarge(n, limit int64) error {
	return robocache.ResourceLimit("rlds", nil, "").
		Expected(fmt.Sprintf("a record of at most %d bytes", limit), fmt.Sprintf("%d bytes", n)).
		WithHint("pass a larger memory budget to read larger episodes")
}

// addRecord adds a record to the index. An unreadable record becomes an episode of no steps, with a
// finding.
func (b *indexer) addRecord(off, n int64, g summary, err error) {
	x := b.index
	if guard.RaiseInternal(err) != nil {
		if c := robocache.Classify(err); !errors.Is(c, robocache.ErrMalformed) &&
			!errors.Is(c, robocache.ErrResourceLimit) {
			guard.Fail(err)
		}
		g = summary{}
		b.addFinding("bad-record", off, "%v", err)
	}
	if g.steps > math.MaxInt32 {
		b.addFinding("bad-record", off, "an episode of %d steps", g.steps)
		g = summary{}
	}
	if len(x.offset) == 0 {
		x.unknown = int64(g.unknown)
	}
	task := int32(-1)
	if g.task != "" {
		if len(g.task) > maxTask {
			g.task = strings.ToValidUTF8(g.task[:maxTask], "")
		}
		var ok bool
		if task, ok = b.ids[g.task]; !ok {
			task = int32(len(x.tasks))
			x.tasks = append(x.tasks, g.task)
			b.ids[g.task] = task
			b.room -= int64(len(g.task)) + 64
		}
	}
	if x.bytes() > b.room {
		guard.Fail(robocache.ResourceLimit("rlds", nil, "").
			Expected(
				"an index that fits the memory budget",
				fmt.Sprintf("more than %d records", len(x.offset)),
			),
		)
	}
	x.offset, x.length = append(x.offset, off), append(x.length, n)
	x.steps = append(x.steps, int32(g.steps))
	x.taskNumber = append(x.taskNumber, task)
	x.keys = append(x.keys, b.keySet(g.keys))
}

// keySet returns the number of a set of keys, or -1 if the set is unknown.
func (b *indexer) keySet(keys []byte) int32 {
	if keys == nil {
		return -1
	}
	k, ok := b.keySets[string(keys)]
	if !ok {
		k = int32(len(b.index.keySets))
		b.index.keySets = append(b.index.keySets, string(keys))
		b.keySets[string(keys)] = k
		b.room -= int64(len(keys)) + 64
	}
	return k
}

const maxTask = 1 << 20

// unframe checks both check sums and the length of a record, and returns its data.
func unframe(b []byte) ([]byte, error) {
	n, ok := recordLength(b)
	if !ok || n != uint64(len(b)-headBytes-tailBytes) {
		return nil, robocache.Malformed(
			"rlds",
			nil,
			"the head of the record has changed since it was indexed",
		).WithHint("the file changed or is damaged: fetch it again")
	}
	data := b[headBytes : len(b)-tailBytes]
	if want, got := binary.LittleEndian.Uint32(b[len(b)-tailBytes:]), maskedCRC(data); want != got {
		return nil, robocache.Malformed("rlds", nil, "the check sum of the record's data").
			Expected(fmt.Sprintf("%08x", want), fmt.Sprintf("%08x", got)).
			WithHint("the file is damaged: fetch it again; other records can be read")
	}
	return data, nil
}
