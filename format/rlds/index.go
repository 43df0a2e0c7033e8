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

// shardIndex is where the records of a shard lie, how many steps they have, and what they are
// about. It is made once for a version of a file and never changed.
type shardIndex struct {
	size     int64
	version  string
	packed   packing
	off      []int64 // of the record's head; of a packed shard in the unpacked bytes
	length   []int64 // of its data
	steps    []int32
	task     []int32 // into tasks; -1 where none is said
	tasks    []string
	keys     []int32             // into keySets; -1 if the record was not looked at to its end
	keySets  []string            // the slots that a record has: a byte each, 1 if its key is there
	unknown  int64               // features of the first record that features.json does not have
	findings []robocache.Finding // without the file's name
}

// bytes is what an index holds in memory.
func (x *shardIndex) bytes() int64 { return int64(len(x.off))*28 + 256 }

// indexes keeps the index of a version of a file for the whole process, so that a data set is gone
// through once.
var indexes = lru.New[string, *shardIndex](256 << 20)

// window reads a file forwards in pieces, for who looks at little of it.
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

func newWindow(ctx context.Context, r robocache.Ranged) *window {
	w := &window{ctx: ctx, r: r, size: r.Size(), step: localStep}
	if store.Remote(r) {
		w.step = remoteStep
	}
	return w
}

// at gives n bytes at off, which must lie inside the file. They are good until the next call.
func (w *window) at(off int64, n int) []byte {
	if i := off - w.off; i >= 0 && i+int64(n) <= int64(len(w.buf)) {
		return w.buf[i : i+int64(n)]
	}
	want := int(min(int64(max(n, w.step)), w.size-off))
	if want < n {
		guard.Fail(
			robocache.Malformed(
				"rlds",
				robocache.Where{"offset": off},
				"read after the end of the file",
			),
		)
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

// glance is what the heads of a record's features say.
type glance struct {
	steps   int
	task    string
	hasTask bool // the text of the task is settled
	unknown int
	// by slot: 1 if the record has the key; nil if the record was not looked at to its end
	keys []byte
}

// look finds steps and task of the record whose data is [off, off+n), without reading its images.
// If all is set, it goes through every feature, counts those that features.json lacks, and notes
// which keys are there. ok is false if the record is not as writers write it: then the caller
// parses it whole.
func (s *schema) look(w *window, off, n int64, taskSlot int, all bool) (g glance, ok bool) {
	g.steps = -1
	g.hasTask = taskSlot < 0 || n == 0
	end := off + n
	good := n > 0
	keys := make([]byte, s.slots)
	head := func(p, limit int64, tag byte) (from, to int64) {
		if good {
			b := w.at(p, int(min(11, limit-p)))
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
		slot, known := s.names[string(w.at(key, int(keyEnd-key)))]
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
			b := w.at(val, int(valEnd-val))
			x := wire{b: b}
			list, _ := x.feature(0, len(b), nil)
			if slot == taskSlot && !g.hasTask {
				g.task, g.hasTask = list.text(b), true
			}
			if l := s.counters[slot]; g.steps < 0 && l != nil && x.err == nil &&
				(list.n == 0 || list.kind == l.listKind()) {
				if list.n%l.listed() != 0 {
					return g, false
				}
				g.steps = list.n / l.listed()
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

// text is the first text of a list in b that is not empty.
func (l *list) text(b []byte) string {
	for _, sp := range l.spans {
		if sp.to > sp.from {
			return cleanText(b[sp.from:sp.to])
		}
	}
	return ""
}

// cleanText is UTF-8: bytes that are none are replaced.
func cleanText(b []byte) string { return strings.ToValidUTF8(string(b), "\uFFFD") }

// indexer builds the index of one shard.
type indexer struct {
	s        *schema
	taskSlot int
	limit    int64 // of a record, in bytes
	room     int64 // for the index, in bytes
	x        *shardIndex
	ids      map[string]int32
	keySets  map[string]int32 // into shardIndex.keySets
}

// buildIndex goes through the heads of a shard's records. Damage is a finding: what can be read is
// in the index.
func (d *Dataset) buildIndex(
	ctx context.Context,
	name string,
	r robocache.Ranged,
	room int64,
) *shardIndex {
	b := &indexer{
		s:        d.s,
		taskSlot: d.taskAt,
		limit:    d.limit,
		room:     room,
		x:        &shardIndex{size: r.Size(), version: r.Version()},
		ids:      map[string]int32{},
		keySets:  map[string]int32{},
	}
	w := newWindow(ctx, r)
	if b.x.packed = packingOf(w); b.x.packed == unpacked {
		b.records(w)
		return b.x
	}
	u := d.plain.shard(ctx, name, r, b.x.packed, d.limit)
	if b.records(newWindow(ctx, u)); u.damage != nil {
		b.find("truncated-shard", u.Size(), "%v: the rest of the shard is lost", u.damage)
	}
	return b.x
}

func (b *indexer) find(code string, off int64, format string, args ...any) {
	if len(b.x.findings) < 1000 {
		b.x.findings = append(b.x.findings, robocache.Finding{
			Severity: robocache.SeverityError,
			Code:     code,
			Where:    robocache.Where{"offset": off, "index": len(b.x.off)},
			Message:  fmt.Sprintf(format, args...),
			Hint:     "fetch the file again",
			Lost:     true,
		})
	}
}

func (b *indexer) records(w *window) {
	for off := int64(0); off < w.size; {
		if w.size-off < headBytes+tailBytes {
			b.find(
				"truncated-shard",
				off,
				"%d bytes after the last record: the file is cut",
				w.size-off,
			)
			return
		}
		n, ok := recordLength(w.at(off, headBytes))
		if !ok {
			b.find(
				"bad-length-crc",
				off,
				"the check sum of a record's length does not hold: the rest of the shard (%d bytes) is lost",
				w.size-off,
			)
			return
		}
		if n > uint64(w.size-off-headBytes-tailBytes) {
			b.find(
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
		// Remotely a head behind an image may cost a request: there the keys of the first record
		// alone are noted.
		g, ok := b.s.look(w, at, size, b.taskSlot, len(b.x.off) == 0 || w.step == localStep)
		var err error
		if !ok {
			g, err = guard.Value(func() glance { return b.whole(w, off, size) })
		}
		b.add(off, size, g, err)
		off = at + size + tailBytes
	}
}

// whole reads and parses a record that heads alone did not settle.
func (b *indexer) whole(w *window, off, n int64) glance {
	if n > b.limit {
		guard.Fail(tooLarge(n, b.limit))
	}
	data := make([]byte, headBytes+n+tailBytes)
	guard.Check(w.r.ReadAt(w.ctx, data, off))
	rec := guard.Must(b.s.parseRecord(data))
	g := glance{
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
		g.task = rec.lists[b.taskSlot].text(rec.data)
	}
	return g
}

func tooLarge(n, limit int64) error {
	return robocache.ResourceLimit("rlds", nil, "").
		Expected(fmt.Sprintf("a record of at most %d bytes", limit), fmt.Sprintf("%d bytes", n)).
		WithHint("a larger memory budget allows larger episodes")
}

// add notes a record. One that cannot be read is an episode of no steps, and a finding.
func (b *indexer) add(off, n int64, g glance, err error) {
	x := b.x
	if guard.RaiseInternal(err) != nil {
		if c := robocache.Classify(
			err,
		); !errors.Is(c, robocache.ErrMalformed) &&
			!errors.Is(c, robocache.ErrResourceLimit) {
			guard.Fail(err)
		}
		g = glance{}
		b.find("bad-record", off, "%v", err)
	}
	if g.steps > math.MaxInt32 {
		b.find("bad-record", off, "an episode of %d steps", g.steps)
		g = glance{}
	}
	if len(x.off) == 0 {
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
			Expected("an index that fits the memory budget", fmt.Sprintf("more than %d records", len(x.off))),
		)
	}
	x.off, x.length = append(x.off, off), append(x.length, n)
	x.steps, x.task, x.keys = append(
		x.steps,
		int32(g.steps),
	), append(
		x.task,
		task,
	), append(
		x.keys,
		b.keySet(g.keys),
	)
}

// keySet returns the number of a set of keys; -1 of an unknown set.
func (b *indexer) keySet(keys []byte) int32 {
	if keys == nil {
		return -1
	}
	k, ok := b.keySets[string(keys)]
	if !ok {
		k = int32(len(b.x.keySets))
		b.x.keySets = append(b.x.keySets, string(keys))
		b.keySets[string(keys)] = k
		b.room -= int64(len(keys)) + 64
	}
	return k
}

const maxTask = 1 << 20

// framed checks the frame of a record: both check sums and the length.
func framed(b []byte) ([]byte, error) {
	n, ok := recordLength(b)
	if !ok || n != uint64(len(b)-headBytes-tailBytes) {
		return nil, robocache.Malformed("rlds", nil, "the head of the record is not the one that was indexed").
			WithHint("the file changed or is damaged: fetch it again")
	}
	data := b[headBytes : len(b)-tailBytes]
	if want, got := binary.LittleEndian.Uint32(b[len(b)-tailBytes:]), maskedCRC(data); want != got {
		return nil, robocache.Malformed("rlds", nil, "the check sum of the record's data").
			Expected(fmt.Sprintf("%08x", want), fmt.Sprintf("%08x", got)).
			WithHint("the file is damaged: fetch it again; the other records are whole")
	}
	return data, nil
}
