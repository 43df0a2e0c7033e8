package pipeline

import (
	"errors"
	"sync"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/loader/internal/column"
	"github.com/goatnote-inc/robocache/loader/internal/layout"
)

// raggedBudget counts the bytes of ragged tensors, whose sizes are unknown until a batch is built.
type raggedBudget struct {
	Mu           sync.Mutex
	InFlight     int64 // of all batches in flight
	largestBatch int64 // maximum of one batch so far
	hasMeasured  bool  // a batch was built
}

// ErrNoSpace reports that a batch does not fit into the budget together with those in flight. The
// loader then builds it again with fewer in flight (Loader.deliverNext).
var ErrNoSpace = errors.New("the batch does not fit into memory_budget with the others in flight")

// reserveRagged reserves size bytes of the budget for a ragged tensor of u.
func (a *Assembler) reserveRagged(u *PlannedBatch, key string, size int64) error {
	fixed := a.BatchBytes(u.Batch.Rows)
	c := &a.Ragged
	c.Mu.Lock()
	defer c.Mu.Unlock()
	u.raggedBytes += size
	c.largestBatch = max(c.largestBatch, u.raggedBytes)
	if need := fixed + u.raggedBytes; need > a.Budget {
		where := robocache.Where{"stream": key, "bytes": size, "position": u.Batch.Position}
		available := layout.FormatMiB(a.Budget - fixed - (u.raggedBytes - size))
		total := layout.FormatMiB(int64(a.Config.MemoryBudget))
		return robocache.ResourceLimit("loader", where, "memory_budget: one batch does not fit").
			Expected("at most "+available+" of "+total, layout.FormatMiB(size)+" of "+key).
			WithHint("raise memory_budget, or lower batch_size or the window")
	}
	// maxInFlight is 0 for a Map, which builds one batch at a time.
	n := a.maxInFlight.Load()
	if n > 0 && c.InFlight+size > a.Budget-n*a.BatchBytes(a.Config.BatchSize) {
		return ErrNoSpace
	}
	c.InFlight += size
	u.reservedBytes += size
	return nil
}

// ReleaseRagged releases the budget that u reserved. It is called when u is delivered or dropped.
func (a *Assembler) ReleaseRagged(u *PlannedBatch) {
	if u.reservedBytes == 0 {
		return
	}
	c := &a.Ragged
	c.Mu.Lock()
	c.InFlight -= u.reservedBytes
	u.reservedBytes = 0
	c.Mu.Unlock()
}

// expectedRaggedBytes returns the ragged bytes to expect of a batch: 25 % more than the largest so
// far. known is false until a batch was built.
func (a *Assembler) expectedRaggedBytes() (bytes int64, known bool) {
	c := &a.Ragged
	c.Mu.Lock()
	defer c.Mu.Unlock()
	return c.largestBatch + c.largestBatch/4, c.hasMeasured
}

// buildRagged builds one ragged tensor of u from the entries of all its parts.
func (w *worker) buildRagged(u *PlannedBatch, tensor int) {
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
			return // a bad episode was recorded
		}
		size += int64(len(e.Data))
		list = append(list, *e)
	}
	if err := w.assembler.reserveRagged(u, t.Key, size); err != nil {
		u.Fail(err)
		return
	}
	if err := layout.AllocateRagged(t, int(size), w.assembler.Buffers); err != nil {
		u.Fail(err)
		return
	}
	column.StackEntries(list, t.Data)
	var n int
	for _, e := range list {
		if e.Column.LengthsEntry < 0 { // another column writes the lengths
			n += len(e.Data) / e.Column.OutBytes
			continue
		}
		lengths := column.AsSlice[int64](e.Part.TensorData(e.Column.LengthsEntry))
		for i, c := range e.Counts {
			lengths[e.Part.ValueSlot(e.Column, i)] = int64(c)
			n += c
		}
	}
	t.Shape[0] = n
	w.assembler.Ragged.Mu.Lock()
	w.assembler.Ragged.hasMeasured = true
	w.assembler.Ragged.Mu.Unlock()
}
