package calvin

import (
	"context"
	"sync"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/internal/handles"
	"github.com/goatnote-inc/robocache/format/internal/loan"
)

// maxOpen is how many frames stay open: the streams of a batch are asked for one after the other, and each would open its frames again.
const maxOpen = 128

// file is an open frame, and the arrays of it that several streams are made of: each is read once while the frame is open.
type file struct {
	r robocache.Ranged

	mu     sync.Mutex
	arrays [][]byte // by member, in memory of the loan
	loan   *loan.Loan
}

type (
	files  = handles.Pool[int64, *file]
	handle = handles.Handle[int64, *file]
)

// Close gives the file and the arrays back.
func (f *file) Close() error {
	if f.loan != nil {
		f.loan.Done()
		f.arrays, f.loan = nil, nil
	}
	return f.r.Close()
}

// shared gives an array that several streams are made of: good until the handle's Put.
func (d *Dataset) shared(ctx context.Context, f *frame, h *handle, member int) ([]byte, error) {
	o := h.Value
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.arrays != nil && o.arrays[member] != nil {
		return o.arrays[member], nil
	}
	if o.loan == nil {
		o.arrays, o.loan = make([][]byte, len(d.members)), loan.Get()
	}
	before := o.loan.Bytes()
	b, err := d.load(ctx, f, h, member, o.loan.Room)
	d.files.Grow(h, o.loan.Bytes()-before)
	if err != nil {
		return nil, err
	}
	o.arrays[member] = b
	return b, nil
}
