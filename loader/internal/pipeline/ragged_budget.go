package pipeline

import (
	"errors"
	"sync"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/loader/internal/column"
	"github.com/goatnote-inc/robocache/loader/internal/layout"
)

// raggedBudget counts the bytes of ragged tensors, which no batch knows before it is made.
type raggedBudget struct {
	Mu       sync.Mutex
	InFlight int64 // of batches in flight
	most     int64 // of one batch, so far
	known    bool  // a batch was made
}

// ErrNoRoom says that a batch found no room beside those in flight. The loader makes it again, with fewer of them (Loader.handOut).
var ErrNoRoom = errors.New("no room for the batch beside others")

// reserveRagged counts size bytes of a unit's ragged tensor before they are allocated.
func (a *Assembler) reserveRagged(u *PlannedBatch, key string, size int64) error {
	fixed := a.BatchBytes(u.Batch.Rows)
	c := &a.Ragged
	c.Mu.Lock()
	defer c.Mu.Unlock()
	u.ragged += size
	c.most = max(c.most, u.ragged)
	if need := fixed + u.ragged; need > a.Budget {
		return robocache.ResourceLimit("loader", robocache.Where{"stream": key, "bytes": size, "position": u.Batch.Position}, "memory_budget: one batch does not fit").
			Expected("at most "+layout.FormatMiB(a.Budget-fixed-(u.ragged-size))+" of "+layout.FormatMiB(int64(a.Config.MemoryBudget)), layout.FormatMiB(size)+" of "+key).
			WithHint("raise memory_budget, or lower batch_size or the window")
	}
	// Of a Map's batch, which stands alone, none is in flight.
	if n := a.inFlight.Load(); n > 0 && c.InFlight+size > a.Budget-n*a.BatchBytes(a.Config.BatchSize) {
		return ErrNoRoom
	}
	c.InFlight += size
	u.entered += size
	return nil
}

// ReleaseRagged takes back what a unit entered: it is handed out, or dropped.
func (a *Assembler) ReleaseRagged(u *PlannedBatch) {
	if u.entered == 0 {
		return
	}
	c := &a.Ragged
	c.Mu.Lock()
	c.InFlight -= u.entered
	u.entered = 0
	c.Mu.Unlock()
}

// largest is the ragged bytes to expect of a batch: a quarter more than the largest so far.
func (a *Assembler) largest() (bytes int64, known bool) {
	c := &a.Ragged
	c.Mu.Lock()
	defer c.Mu.Unlock()
	return c.most + c.most/4, c.known
}

// ragged makes one ragged tensor of a unit, of all its parts.
func (w *worker) ragged(u *PlannedBatch, tensor int) {
	defer u.Complete(1)
	t := &u.Batch.Tensors[tensor]
	var list []column.RaggedEntries
	var size int64
	for k := range u.Parts {
		p := &u.Parts[k]
		c := p.Source.RaggedColumn(tensor)
		if c == nil {
			continue
		}
		e, err := w.ReadRagged(p, c)
		if err != nil {
			p.FailAt(robocache.At(err, robocache.Where{"stream": c.Key}))
			return
		}
		if e == nil {
			return // an episode is blamed
		}
		size += int64(len(e.Data))
		list = append(list, *e)
	}
	if err := w.a.reserveRagged(u, t.Key, size); err != nil {
		u.Fail(err)
		return
	}
	b, err := w.a.Buffers.Get(int(max(size, 1))) // an address also where there is nothing: NumPy takes no null
	if err != nil {
		u.Fail(err)
		return
	}
	t.Buffer, t.Data = b, b.Mem[:size:size]
	column.StackEntries(list, t.Data)
	var n int
	for _, e := range list {
		if e.Column.LengthsEntry < 0 { // the lengths are another's
			n += len(e.Data) / e.Column.OutBytes
			continue
		}
		own := column.AsSlice[int64](e.Part.TensorData(e.Column.LengthsEntry))
		for i, c := range e.Counts {
			own[e.Part.ValueSlot(e.Column, i)] = int64(c)
			n += c
		}
	}
	t.Shape[0] = n
	w.a.Ragged.Mu.Lock()
	w.a.Ragged.known = true
	w.a.Ragged.Mu.Unlock()
}
