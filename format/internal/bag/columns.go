package bag

import (
	"cmp"
	"context"
	"slices"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/guard"
	"github.com/goatnote-inc/robocache/internal/guard/leafcache"
)

// block is a run of decoded rows of one clock of a topic. It has a column for each numeric field of
// that clock.
type block struct {
	cols  [][]byte  // values of each field, row after row
	valid [][]uint8 // for each field, 1 if the row has a value; nil means that every row has one
}

// blockKey identifies a block. block is its number among the blocks of the episode.
type blockKey struct{ ep, topic, clock, block int }

// blockRows returns the number of rows in a block. A block has about 256 KiB, but at least 64 and
// at most 4096 rows.
func blockRows(rowBytes int) int { return max(64, min(4096, (256<<10)/max(1, rowBytes))) }

// columnPlan lists the numeric fields of one clock of a topic.
type columnPlan struct {
	fields     []int // field numbers in the decoder
	fieldBytes []int // bytes of one row of each field
	rowBytes   int   // bytes of one row of all fields
	masked     bool  // some rows may have no value
	blockRows  int   // rows in a block
}

// newPlan returns the column plan of one clock of topic t.
func newPlan(t *topic, clock int) columnPlan {
	var p columnPlan
	for i := range t.fields {
		f := &t.fields[i]
		if f.Clock == clock && f.Feature.RowBytes() > 0 {
			p.fields = append(p.fields, i)
			p.fieldBytes = append(p.fieldBytes, f.Feature.RowBytes())
			p.rowBytes += f.Feature.RowBytes()
			p.masked = p.masked || f.Feature.Masked || f.Partial
		}
	}
	p.blockRows = blockRows(p.rowBytes)
	return p
}

// newBlock returns a block of n rows without values.
func (p *columnPlan) newBlock(n int) *block {
	b := &block{cols: make([][]byte, len(p.fields)), valid: make([][]uint8, len(p.fields))}
	for j, w := range p.fieldBytes {
		b.cols[j] = make([]byte, n*w)
		b.valid[j] = make([]uint8, n)
	}
	return b
}

// memoryBytes returns the size of a block in the cache.
func (b *block) memoryBytes() (n int64) {
	const overhead = 200 // the slices of a block with a few columns
	for _, c := range slices.Concat(b.cols, b.valid) {
		n += int64(len(c))
	}
	return n + overhead
}

// dropFullMasks removes the masks if every row has a value.
func (b *block) dropFullMasks() {
	if !slices.ContainsFunc(b.valid, func(v []uint8) bool { return slices.Contains(v, 0) }) {
		b.valid = nil
	}
}

// decodeRow decodes a message into row k of block b.
func (p *columnPlan) decodeRow(t *topic, b *block, k int, msg []byte, entry int) error {
	return t.dec.Row(msg, entry, p.fields, b.cols, b.valid, k)
}

// columnFiller decodes all columns of a topic during one pass over its messages. It is used if the
// columns fit into a quarter of the budget, which is the size of the cache of columns.
type columnFiller struct {
	topic  *topic
	plan   columnPlan
	blocks []*block // rows in the order of the messages
	n      int
}

// newFiller returns a filler for n messages of a topic with one row per message. It returns nil if
// the topic has no numeric field or the columns are too large.
func (d *Dataset) newFiller(t *topic, n int) *columnFiller {
	p := t.plans[0]
	bytesPerRow := p.rowBytes + len(p.fields) // the values, and one byte of valid per field
	if len(p.fields) == 0 || int64(n)*int64(bytesPerRow) > d.opt.Budget/4 {
		return nil
	}
	f := &columnFiller{topic: t, plan: p, n: n}
	for from := 0; from < n; from += p.blockRows {
		f.blocks = append(f.blocks, p.newBlock(min(p.blockRows, n-from)))
	}
	return f
}

// putRow decodes message k of the pass into row k.
func (f *columnFiller) putRow(k int, msg []byte) error {
	return f.plan.decodeRow(f.topic, f.blocks[k/f.plan.blockRows], k%f.plan.blockRows, msg, 0)
}

// storeBlocks stores the columns in the cache. kept lists the rows to store, in their order. nil
// means all rows as received.
func (f *columnFiller) storeBlocks(d *Dataset, ep, topic int, kept []int32) {
	blocks := f.blocks
	if kept != nil {
		blocks = f.copyRows(kept)
	}
	for i, b := range blocks {
		holdValues(f.topic, b, f.plan)
		b.dropFullMasks()
		d.blocks.Put(blockKey{ep, topic, 0, i}, b, b.memoryBytes())
	}
}

// copyRows returns new blocks of the listed rows, in that order.
func (f *columnFiller) copyRows(list []int32) (blocks []*block) {
	size := f.plan.blockRows
	for part := range slices.Chunk(list, size) {
		b := f.plan.newBlock(len(part))
		for i, row := range part {
			from := f.blocks[int(row)/size]
			k := int(row) % size // row in from
			for j, w := range f.plan.fieldBytes {
				copy(b.cols[j][i*w:(i+1)*w], from.cols[j][k*w:(k+1)*w])
				b.valid[j][i] = from.valid[j][k]
			}
		}
		blocks = append(blocks, b)
	}
	return blocks
}

// holdValues fills rows of a latched topic that have no value with the previous value in the block.
// Rows before the first value get the first value. It does nothing for other topics.
func holdValues(t *topic, b *block, p columnPlan) {
	if !t.latched {
		return
	}
	for j, w := range p.fieldBytes {
		valid := b.valid[j]
		source := slices.Index(valid, 1) // row that fills the rows without a value
		if source < 0 {
			continue
		}
		for i := range valid {
			if valid[i] == 1 {
				source = i
				continue
			}
			copy(b.cols[j][i*w:(i+1)*w], b.cols[j][source*w:(source+1)*w])
			valid[i] = 1
		}
	}
}

// loadBlock returns a block of decoded rows, from the cache or by reading its messages. number is
// its number in the episode, tr has its rows, and key is the stream for error messages.
func (d *Dataset) loadBlock(
	ctx context.Context,
	ep, topic, clock, number int,
	tr *track,
	key string,
) *block {
	cacheKey := blockKey{ep, topic, clock, number}
	if b, ok := d.blocks.Peek(cacheKey); ok {
		return b
	}
	defer guard.At(robocache.Where{"episode": d.About.EpisodeIndex(ep), "stream": key})
	return leafcache.Load(ctx, d.blocks, cacheKey, func() (*block, int64) {
		t := d.topics[topic]
		p := &t.plans[clock]
		r := &tr.clocks[clock]
		from := number * p.blockRows
		n := min(p.blockRows, r.n-from)
		b := p.newBlock(n)
		want := make([]wantedMessage, n)
		for i := range want {
			want[i] = wantedMessage{msg: r.messageOf(from + i), at: int32(i)}
		}
		d.visitMessages(ctx, ep, topic, want, func(i int, m *Message) error {
			return p.decodeRow(t, b, i, m.Data, r.entryOf(from+i))
		})
		holdValues(t, b, *p)
		b.dropFullMasks()
		return b, b.memoryBytes()
	})
}

// wantedMessage is a requested message and its position in the request.
type wantedMessage struct{ msg, at int32 }

// visitMessages reads messages in storage order and calls fn with their position in the request
// (wantedMessage.at). want may be in any order, and may repeat messages. A message that is lost to
// damage is an error.
func (d *Dataset) visitMessages(
	ctx context.Context,
	ep, topic int,
	want []wantedMessage,
	fn func(i int, m *Message) error,
) {
	if len(want) == 0 {
		return
	}
	e := d.openEpisode(ep)
	t := d.topics[topic]
	byMessage := func(a, b wantedMessage) int { return int(a.msg) - int(b.msg) }
	if !slices.IsSortedFunc(want, byMessage) {
		want = slices.Clone(want)
		slices.SortFunc(want, func(a, b wantedMessage) int {
			return cmp.Or(byMessage(a, b), int(a.at)-int(b.at))
		})
	}
	lostError := func(w wantedMessage) error {
		return robocache.Malformed(
			"read",
			robocache.Where{"stream": t.key, "index": int(w.msg)},
			"a message is in a damaged part of the recording",
		).
			WithHint(
				"Open with %s to leave out messages in damaged parts.",
				robocache.Option("options", "ignore_index", true),
			)
	}
	d.useStorage(ctx, e.rec, func(s Storage) {
		// Each pass reads want[from:to], a run of neighboring or equal messages.
		for from := 0; from < len(want); {
			to := from + 1
			for to < len(want) && want[to].msg-want[to-1].msg <= 1 {
				to++
			}
			first, last := int(want[from].msg), int(want[to-1].msg)
			next := from // first message of the run that fn has not received
			guard.Check(s.Messages(
				ctx,
				t.storageIndex[e.rec],
				first,
				last+1,
				func(i int, m *Message) error {
					if next < to && int(want[next].msg) < i { // the storage skipped it
						return lostError(want[next])
					}
					for ; next < to && int(want[next].msg) == i; next++ {
						if err := fn(int(want[next].at), m); err != nil {
							return robocache.At(err, robocache.Where{"stream": t.key, "index": i})
						}
					}
					return nil
				},
			))
			if next < to {
				guard.Fail(lostError(want[next]))
			}
			from = to
		}
	})
}
