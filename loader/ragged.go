package loader

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/goatnote-inc/robocache"
)

// cloudColumn is rows of varying length.
type cloudColumn struct{ *column }

func (*cloudColumn) waits(int) int { return 0 }

// spanColumn is all rows of a span, one after the other.
type spanColumn struct{ *column }

func (*spanColumn) waits(int) int { return 0 }

// timesColumn is the times of the samples of another column's span.
type timesColumn struct{ *column }

func (c *timesColumn) waits(int) int { return int(flag(!c.ragged())) }

func (c *timesColumn) fill(w *reader, p *part) error { return w.placedTimes(p, c.column) }

// raggedBudget counts the bytes of ragged tensors, which no batch knows before it is made.
type raggedBudget struct {
	mu    sync.Mutex
	now   int64 // of batches in flight
	most  int64 // of one batch, so far
	known bool  // a batch was made
}

// errNoRoom says that a batch found no room beside those in flight. The loader makes it again, with fewer of them (Loader.handOut).
var errNoRoom = errors.New("no room for the batch beside others")

// enter counts size bytes of a unit's ragged tensor before they are allocated.
func (a *assembler) enter(u *unit, key string, size int64) error {
	fixed := a.batchBytes(u.batch.Rows)
	c := &a.ragged
	c.mu.Lock()
	defer c.mu.Unlock()
	u.ragged += size
	c.most = max(c.most, u.ragged)
	if need := fixed + u.ragged; need > a.budget {
		return robocache.ResourceLimit("loader", robocache.Where{"stream": key, "bytes": size, "position": u.batch.Position}, "memory_budget: one batch does not fit").
			Expected("at most "+mib(a.budget-fixed-(u.ragged-size))+" of "+mib(int64(a.cfg.MemoryBudget)), mib(size)+" of "+key).
			WithHint("raise memory_budget, or lower batch_size or the window")
	}
	// Of a Map's batch, which stands alone, none is in flight.
	if n := a.inFlight.Load(); n > 0 && c.now+size > a.budget-n*a.batchBytes(a.cfg.BatchSize) {
		return errNoRoom
	}
	c.now += size
	u.entered += size
	return nil
}

// leave takes back what a unit entered: it is handed out, or dropped.
func (a *assembler) leave(u *unit) {
	if u.entered == 0 {
		return
	}
	c := &a.ragged
	c.mu.Lock()
	c.now -= u.entered
	u.entered = 0
	c.mu.Unlock()
}

// largest is the ragged bytes to expect of a batch: a quarter more than the largest so far.
func (a *assembler) largest() (bytes int64, known bool) {
	c := &a.ragged
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
			own[e.p.at(e.c, i)] = int64(c)
			n += c
		}
	}
	t.Shape[0] = n
	w.a.ragged.mu.Lock()
	w.a.ragged.known = true
	w.a.ragged.mu.Unlock()
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

func (src *dataSource) raggedColumn(tensor int) *column {
	i := slices.IndexFunc(src.columns, func(c *column) bool { return c.ragged() && src.slots[c.entry] == tensor })
	if i < 0 {
		return nil
	}
	return src.columns[i]
}

// entriesOf reads the entries of a part's samples. It is nil where an episode was blamed.
func (w *reader) entriesOf(p *part, c *column) (*entries, error) {
	var e *entries
	var err error
	if is[*cloudColumn](c) {
		e, err = w.clouds(p, c)
	} else {
		e, err = w.spanEntries(p, c)
	}
	if err != nil || e == nil || c.stored == c.out && c.norm == nil || len(e.data) == 0 {
		return e, err
	}
	out := make([]byte, len(e.data)/c.rowBytes*c.outBytes)
	err = convert(out, c.out, e.data, c.stored, c.elems, c.norm)
	e.data = out
	return e, err
}

// spanEntries reads all rows of a stream that are timestamped in the span around each sample and hold a value; or when they were.
func (w *reader) spanEntries(p *part, c *column) (*entries, error) {
	rows, counts, at, err := w.spanRows(p, c)
	if err != nil {
		return nil, err
	}
	e := &entries{p: p, c: c, counts: counts, data: make([]byte, len(rows)*c.rowBytes)}
	if is[*timesColumn](c) {
		return e, w.writeTimes(p, c, view[int64](e.data), rows, counts, at)
	}
	if !w.checkFinite(p, c) || !w.read(p, c, rows, e.data) {
		return nil, nil
	}
	return e, nil
}

// cloudRows bounds the rows that are asked for at once: their size is known once they are there.
const cloudRows = 32

// clouds reads rows of varying length: those of the samples, or of the steps of their windows.
func (w *reader) clouds(p *part, c *column) (*entries, error) {
	mask, masked := p.rowsInto(c.mask)
	rows, err := w.rowsOf(p, c, mask)
	masked()
	if err == nil && c.time == nil {
		err = w.maskRows(p, c, rows)
	}
	if err != nil {
		return nil, err
	}
	e := &entries{p: p, c: c, counts: make([]int, len(rows))}
	ds := p.src.ds.(robocache.RaggedDataset)
	gather := func(rows []robocache.Row) ([]byte, []int, error) {
		data, counts, err := gatherRagged(w.Ctx(), ds, c.key, rows)
		if err == nil {
			err = c.checkEntries(data, counts, len(rows))
		}
		return data, counts, err
	}
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
		data, counts, err := gather(asked)
		if err != nil {
			p.isolate(asked, robocache.At(err, robocache.Where{"stream": c.key}), func(sub []robocache.Row) error {
				_, _, err := gather(sub)
				return err
			})
			return nil, nil
		}
		if need := int64(len(e.data) + len(data)); need > p.src.budget {
			return nil, tooMany(c, need, p.src.budget)
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
		return robocache.Malformed("loader", nil, "the dataset gave another number of entries than it says").
			Expected(fmt.Sprintf("%d bytes of %d rows", n*c.rowBytes, rows), fmt.Sprintf("%d bytes of %d", len(data), len(counts)))
	}
	return nil
}

func tooMany(c *column, bytes, budget int64) error {
	return robocache.ResourceLimit("loader", robocache.Where{"stream": c.key, "bytes": bytes}, "memory_budget: the rows of one batch do not fit").
		Expected("at most "+mib(budget), mib(bytes)+" of "+c.key).
		WithHint("raise memory_budget, or lower batch_size or the window")
}
