package loader

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/align"
)

// crowd counts the bytes of ragged tensors, which no batch knows before it is made.
type crowd struct {
	mu    sync.Mutex
	now   int64 // of batches in flight
	most  int64 // of one batch, so far
	known bool  // a batch was made
}

// errCrowded says that a batch found no room beside those in flight. The loader makes it again, with fewer of them (Loader.take).
var errCrowded = errors.New("no room for the batch beside others")

// enter counts size bytes of a unit's ragged tensor before they are allocated.
func (a *assembler) enter(u *unit, key string, size int64) error {
	fixed := a.batchBytes(u.batch.Rows)
	c := &a.crowd
	c.mu.Lock()
	defer c.mu.Unlock()
	u.ragged += size
	c.most = max(c.most, u.ragged)
	if need := fixed + u.ragged; need > a.budget {
		return &robocache.Error{Class: robocache.ErrResourceLimit, Op: "loader", Where: robocache.Where{"stream": key, "bytes": size, "position": u.batch.Position}, Msg: "memory_budget: one batch does not fit",
			Want: "at most " + mib(a.budget-fixed-(u.ragged-size)) + " of " + mib(int64(a.cfg.MemoryBudget)), Got: mib(size) + " of " + key, Hint: "raise memory_budget, or lower batch_size or the window"}
	}
	if a.crowded(c.now + size) {
		return errCrowded
	}
	c.now += size
	u.entered += size
	return nil
}

// crowded says whether so many bytes leave no room for the batches in flight. crowd.mu is held.
func (a *assembler) crowded(bytes int64) bool {
	n := a.inFlight.Load() // 0: a Map's batch stands alone
	return n > 0 && bytes > a.budget-n*a.batchBytes(a.cfg.BatchSize)
}

// leave takes back what a unit entered: it is handed out, or dropped.
func (a *assembler) leave(u *unit) {
	if u.entered == 0 {
		return
	}
	c := &a.crowd
	c.mu.Lock()
	c.now -= u.entered
	u.entered = 0
	c.mu.Unlock()
}

// largest is the ragged bytes to expect of a batch: a quarter more than the largest so far.
func (a *assembler) largest() (bytes int64, known bool) {
	c := &a.crowd
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.most + c.most/4, c.known
}

// entries are those of a part's samples.
type entries struct {
	p      *part
	c      *column
	data   []byte // one after the other, as the tensor holds them
	counts []int  // a sample and step each
}

// ragged makes one ragged tensor of a unit, of all its parts.
func (w *worker) ragged(u *unit, tensor int) {
	defer u.finish(1)
	t := &u.batch.Tensors[tensor]
	var list []entries
	var size int64
	for k := range u.parts {
		p := &u.parts[k]
		c := p.src.raggedColumn(tensor)
		if c == nil {
			continue
		}
		e, err := w.entriesOf(p, c)
		if err != nil {
			p.failAt(robocache.At(err, robocache.Where{"stream": c.key}))
			return
		}
		if e == nil {
			return // an episode is blamed
		}
		size += int64(len(e.data))
		list = append(list, *e)
	}
	if err := w.a.enter(u, t.Key, size); err != nil {
		u.fail(err)
		return
	}
	b, err := w.a.buffers.Get(int(max(size, 1))) // an address also where there is nothing: NumPy takes no null
	if err != nil {
		u.fail(err)
		return
	}
	t.buf, t.Data = b, b.Mem[:size:size]
	stack(list, t.Data)
	var n int
	for _, e := range list {
		if e.c.count < 0 { // the lengths are another's
			n += len(e.data) / e.c.outBytes
			continue
		}
		own := view[int64](e.p.data(e.c.count))
		for i, c := range e.counts {
			own[e.p.slot(i/e.c.steps)*e.c.steps+i%e.c.steps] = int64(c)
			n += c
		}
	}
	t.Shape[0] = n
	w.a.crowd.mu.Lock()
	w.a.crowd.known = true
	w.a.crowd.mu.Unlock()
}

// stack puts the entries of all parts where their samples are in the batch.
func stack(list []entries, dst []byte) {
	if len(list) == 1 && list[0].p.slots == nil {
		copy(dst, list[0].data)
		return
	}
	type sample struct {
		slot int
		data []byte
	}
	var all []sample
	for _, e := range list {
		at := 0
		for i := range e.p.size() {
			n := 0
			for _, c := range e.counts[i*e.c.steps : (i+1)*e.c.steps] {
				n += c * e.c.outBytes
			}
			all = append(all, sample{e.p.slot(i), e.data[at : at+n]})
			at += n
		}
	}
	slices.SortFunc(all, func(x, y sample) int { return x.slot - y.slot })
	at := 0
	for _, s := range all {
		at += copy(dst[at:], s.data)
	}
}

func (src *source) raggedColumn(tensor int) *column {
	for i := range src.layout.columns {
		if c := &src.layout.columns[i]; c.ragged && src.tensors[c.entry] == tensor {
			return c
		}
	}
	return nil
}

// entriesOf reads the entries of a part's samples. It is nil where an episode was blamed.
func (w *worker) entriesOf(p *part, c *column) (*entries, error) {
	var e *entries
	var err error
	if c.spans {
		e, err = w.span(p, c)
	} else {
		e, err = w.cloud(p, c)
	}
	if err != nil || e == nil || c.stored == c.out && c.norm == nil || len(e.data) == 0 {
		return e, err
	}
	out := make([]byte, len(e.data)/c.rowBytes*c.outBytes)
	err = convert(out, c.out, e.data, c.stored, c.elems, c.norm)
	e.data = out
	return e, err
}

// span reads all rows of a stream that are timestamped in the span around each sample and hold a value.
func (w *worker) span(p *part, c *column) (*entries, error) {
	src := p.src
	n := p.size()
	from, to, at := make([]int, n), make([]int, n), make([]int64, n)
	total := 0
	err := w.byEpisode(p, func(episode int, group []int32) error {
		timestamps, err := src.timestamps.of(w.Ctx(), episode, c.aligns.clock)
		if err != nil {
			return err
		}
		for _, i := range group {
			t, err := src.at(w.Ctx(), p.places[i], p.rows[0][i].Index)
			if err != nil {
				return err
			}
			at[i] = t - c.aligns.offset
			from[i], to[i] = align.Span(timestamps, at[i], c.span[0], c.span[1])
			total += to[i] - from[i]
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if need := int64(total) * int64(c.rowBytes+16); need > src.a.budget {
		return nil, tooMany(c, int64(total)*int64(c.rowBytes), src.a.budget)
	}
	rows := make([]robocache.Row, 0, total)
	e := &entries{p: p, c: c, counts: make([]int, n)}
	for i := range n {
		e.counts[i] = to[i] - from[i]
		for r := from[i]; r < to[i]; r++ {
			rows = append(rows, robocache.Row{Episode: p.rows[0][i].Episode, Index: r})
		}
	}
	valid, err := align.Validity(w.Ctx(), src.ds, c.feature, rows)
	if err != nil {
		return nil, err
	}
	if valid != nil {
		rows = e.keep(rows, valid)
	}
	e.data = make([]byte, len(rows)*c.rowBytes)
	if c.when {
		return e, w.whens(src, c, e, rows, at)
	}
	if err := src.ds.Gather(w.Ctx(), c.key, rows, e.data); err != nil {
		p.isolate(rows, robocache.At(err, robocache.Where{"stream": c.key}), func(sub []robocache.Row) error {
			return src.ds.Gather(w.Ctx(), c.key, sub, w.Bytes(len(sub)*c.rowBytes))
		})
		return nil, nil
	}
	return e, nil
}

// whens fills in when the rows of a span were, in ns after their samples; at is the samples' times on the stream's clock.
func (w *worker) whens(src *source, c *column, e *entries, rows []robocache.Row, at []int64) error {
	out := view[int64](e.data)
	k := 0
	for i, n := range e.counts {
		if n == 0 {
			continue
		}
		timestamps, err := src.timestamps.of(w.Ctx(), rows[k].Episode, c.aligns.clock)
		if err != nil {
			return err
		}
		for range n {
			out[k] = timestamps[rows[k].Index] - at[i]
			k++
		}
	}
	return nil
}

// keep leaves out rows without a value.
func (e *entries) keep(rows []robocache.Row, valid []uint8) []robocache.Row {
	left := rows[:0]
	at := 0
	for i, n := range e.counts {
		for k := at; k < at+n; k++ {
			if valid[k] == 0 {
				e.counts[i]--
				continue
			}
			left = append(left, rows[k])
		}
		at += n
	}
	return left
}

// cloudRows bounds the rows that are asked for at once: their size is known once they are there.
const cloudRows = 32

// cloud reads rows of varying length: those of the samples, or of the steps of their windows.
func (w *worker) cloud(p *part, c *column) (*entries, error) {
	src := p.src
	rows := p.rows[c.rows]
	if c.aligns != nil {
		mask, done := p.rowsInto(c.mask)
		defer done()
		var err error
		if rows, err = w.alignedRows(p, c, mask); err != nil {
			return nil, err
		}
	} else if err := w.maskDirect(p, c, rows); err != nil {
		return nil, err
	}
	e := &entries{p: p, c: c, counts: make([]int, len(rows))}
	ds := src.ds.(robocache.RaggedDataset)
	asked := make([]robocache.Row, 0, cloudRows)
	places := make([]int, 0, cloudRows)
	for i := 0; i < len(rows); {
		asked, places = asked[:0], places[:0]
		for ; i < len(rows) && len(asked) < cloudRows; i++ {
			if !noRow(rows[i]) {
				asked, places = append(asked, rows[i]), append(places, i)
			}
		}
		if len(asked) == 0 {
			break
		}
		data, counts, err := ds.GatherRagged(w.Ctx(), c.key, asked)
		if err == nil {
			err = c.checkEntries(data, counts, len(asked))
		}
		if err != nil {
			p.isolate(asked, robocache.At(err, robocache.Where{"stream": c.key}), func(sub []robocache.Row) error {
				data, counts, err := ds.GatherRagged(w.Ctx(), c.key, sub)
				if err == nil {
					err = c.checkEntries(data, counts, len(sub))
				}
				return err
			})
			return nil, nil
		}
		if need := int64(len(e.data) + len(data)); need > src.a.budget {
			return nil, tooMany(c, need, src.a.budget)
		}
		if e.data == nil && i == len(rows) {
			e.data = data // all at once: ours
		} else {
			e.data = append(e.data, data...)
		}
		for k, n := range counts {
			e.counts[places[k]] = n
		}
	}
	return e, nil
}

func (c *column) checkEntries(data []byte, counts []int, rows int) error {
	n := 0
	for _, k := range counts {
		n += max(k, 0)
	}
	if len(counts) != rows || n*c.rowBytes != len(data) {
		return &robocache.Error{Class: robocache.ErrMalformed, Op: "loader", Msg: "the dataset gave another number of entries than it says", Want: fmt.Sprintf("%d bytes of %d rows", n*c.rowBytes, rows), Got: fmt.Sprintf("%d bytes of %d", len(data), len(counts))}
	}
	return nil
}

func tooMany(c *column, bytes, budget int64) error {
	return &robocache.Error{Class: robocache.ErrResourceLimit, Op: "loader", Where: robocache.Where{"stream": c.key, "bytes": bytes}, Msg: "memory_budget: the rows of one batch do not fit", Want: "at most " + mib(budget), Got: mib(bytes) + " of " + c.key,
		Hint: "raise memory_budget, or lower batch_size or the window"}
}

// maskDirect marks the rows without a value of a column that is read by rows. Beside a window it adds to the pads.
func (w *worker) maskDirect(p *part, c *column, rows []robocache.Row) error {
	if c.feature == nil || !c.feature.Masked || c.mask < 0 {
		return nil
	}
	valid, err := align.Validity(w.Ctx(), p.src.ds, c.feature, rows)
	if err != nil || valid == nil {
		return err
	}
	mask := p.data(c.mask)
	for i, v := range valid {
		if v == 0 {
			mask[p.slot(i/c.steps)*c.steps+i%c.steps] = 1
		}
	}
	return nil
}
