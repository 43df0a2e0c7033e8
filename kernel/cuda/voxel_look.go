package cuda

import (
	"sync"
	"unsafe"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/kernel"
)

// voxelLook is the look at values after a run: lengths and offsets (Validate), and the first point outside (FailOutside). It waits.
type voxelLook struct {
	op     *kernel.VoxelOp
	on     launcher
	points int // among the tensors
	index  int // lengths or offsets

	mu   sync.Mutex
	last voxelRun
}

// voxelRun is the addresses of a run.
type voxelRun struct{ scratch, points, index uintptr }

func (o *voxelLook) note(scratch uintptr, addrs []uintptr) {
	if o == nil {
		return
	}
	o.mu.Lock()
	o.last = voxelRun{scratch, addrs[o.points], addrs[o.index]}
	o.mu.Unlock()
}

func (o *voxelLook) look(stream uintptr) error {
	o.mu.Lock()
	r := o.last
	o.mu.Unlock()
	if err := o.on.wait(stream); err != nil {
		return err
	}
	host := *o.op // its lengths and offsets are on the host
	if err := o.fetch(&host.Lengths, r.index, stream); err != nil {
		return err
	}
	if err := o.fetch(&host.Offsets, r.index, stream); err != nil {
		return err
	}
	l, err := host.Layout()
	if err != nil {
		return err
	}
	if o.op.Validate || o.op.Outside == kernel.FailOutside {
		for b := range l.Batch {
			if _, _, err := host.Entry(b); err != nil {
				return err
			}
		}
	}
	if o.op.Outside != kernel.FailOutside {
		return nil
	}
	var first int64
	if err := o.read(unsafe.Pointer(&first), 8, r.scratch, stream); err != nil || first == -1 {
		return err
	}
	b, row := 0, int(first)
	switch {
	case host.Offsets != nil:
		for b = range l.Batch { // the entry that the row lies in
			if _, to, _ := host.Entry(b); row < to {
				break
			}
		}
	case l.Batched:
		b, row = row/l.Rows, row%l.Rows
	}
	p := &o.op.Points
	size, rank := p.DType.Size(), len(p.Shape)
	at := row * p.Step(rank-2)
	if rank == 3 {
		at += b * p.Step(0)
	}
	var point [3]float32
	for a := range point {
		var raw uint64
		if err := o.read(unsafe.Pointer(&raw), size, r.points+uintptr((at+a*p.Step(rank-1))*size), stream); err != nil {
			return err
		}
		point[a] = floatOf(p.DType, raw)
	}
	return o.op.OutsideError(b, row, point)
}

// fetch replaces a tensor of int64 by a copy in host memory.
func (o *voxelLook) fetch(t **kernel.Tensor, from, stream uintptr) error {
	if *t == nil {
		return nil
	}
	n, step := (*t).Shape[0], (*t).Step(0)
	h := &kernel.Tensor{DType: robocache.Int64, Shape: []int{n}, Data: make([]byte, 8*n)}
	for i := 0; i < n; i++ {
		if step == 1 { // at once
			i = n
			if err := o.on.copyOut(h.Data, from, stream); err != nil {
				return err
			}
		} else if err := o.on.copyOut(h.Data[8*i:8*i+8], from+uintptr(i*step*8), stream); err != nil {
			return err
		}
	}
	*t = h
	return nil
}

func (o *voxelLook) read(to unsafe.Pointer, n int, from, stream uintptr) error {
	return o.on.copyOut(unsafe.Slice((*byte)(to), n), from, stream)
}
