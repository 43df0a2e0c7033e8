package cuda

import (
	"encoding/binary"
	"fmt"
	"strconv"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/kernel"
)

// VoxelScratch returns the number of bytes of device memory that op needs as its Scratch. Their
// contents are undefined before and after a run.
func (d *Device) VoxelScratch(op *kernel.VoxelOp) (_ int, err error) {
	if err := op.Check(); err != nil {
		return 0, err
	}
	p, err := d.planVoxels(op)
	if err != nil {
		return 0, err
	}
	return p.bytes, nil
}

// prepareVoxelize prepares a launch that is deterministic and equal to the reference to the bit. It
// ignores op.Fast, because the ordered sums are faster than float atomics. FailOutside and Validate
// wait for the device. Validate checks lengths and offsets; without it, each value is limited to
// the nearest legal one.
func (d *Device) prepareVoxelize(op *kernel.VoxelOp) (*Launch, error) {
	plan, err := d.planVoxels(op)
	if err != nil {
		return nil, err
	}
	if have := op.Scratch; have == nil || have.Shape[0] < plan.bytes {
		got := "none"
		if have != nil {
			got = strconv.Itoa(have.Shape[0])
		}
		return nil, robocache.Misuse("voxelize", robocache.Where{"tensor": "scratch"},
			"scratch has wrong shape").
			Expected(fmt.Sprintf("at least %d bytes", plan.bytes), got).
			WithHint("VoxelScratch says how many")
	}
	l := newLaunch(d.launcher, "voxelize", op)
	var allParams []*voxelParams // of each call
	for _, step := range plan.steps {
		p := new(voxelParams)
		*p = plan.params
		allParams = append(allParams, p)
		n := l.addCall(step.call(op, p))
		if !step.onlyScratch {
			l.bindVoxels(n, p, op)
		}
	}
	scratch := l.number[op.Scratch]
	alignedScratch := func(addrs []uintptr) uintptr {
		return (addrs[scratch] + voxelAlign - 1) &^ (voxelAlign - 1)
	}
	l.adjust = append(l.adjust, func(addrs []uintptr) {
		for _, p := range allParams {
			p.scratch = alignedScratch(addrs)
		}
	})
	checksIndex := op.Validate && plan.params.entries != equalEntries
	if plan.params.batch > 0 && (checksIndex || op.Outside == kernel.FailOutside) {
		l.after = func(addrs []uintptr, stream uintptr) error {
			f := &fetcher{l: l, addrs: addrs, stream: stream}
			return checkVoxels(op, alignedScratch(addrs), f)
		}
	}
	return l, nil
}

// call returns the call of a step.
func (s *voxelStep) call(op *kernel.VoxelOp, p *voxelParams) call {
	return call{
		kernel: s.kernel,
		grid:   s.grid,
		block:  s.block,
		shared: s.shared,
		early:  s.early,
		params: paramsOf(p),
		args: func() string {
			return fmt.Sprintf(
				"%s of points %s %v, grid %v, batch %d",
				op.Mode,
				op.Points.DType,
				op.Points.Shape,
				op.Grid,
				p.batch,
			)
		},
	}
}

// bindVoxels binds the parameters of call n to the tensors of the operation.
func (l *Launch) bindVoxels(n int, p *voxelParams, op *kernel.VoxelOp) {
	l.bind(n, &p.points, &op.Points)
	l.bind(n, &p.index, op.Lengths)
	l.bind(n, &p.index, op.Offsets)
	l.bind(n, &p.out, op.Out)
	l.bind(n, &p.coords, op.Coords)
	l.bind(n, &p.rows, op.Rows)
	l.bind(n, &p.counts, op.Counts)
	l.bind(n, &p.found, op.Found)
	l.bind(n, &p.stats, op.Stats)
	if op.Mode.Featured() {
		l.bind(n, &p.features, op.Features)
	}
}

// checkVoxels checks values after a run: lengths and offsets (Validate), and the first point
// outside (FailOutside).
func checkVoxels(op *kernel.VoxelOp, scratch uintptr, f *fetcher) error {
	host := *op
	host.Lengths, host.Offsets = f.fetchTensor(op.Lengths), f.fetchTensor(op.Offsets)
	if f.err != nil {
		return f.err
	}
	l, err := host.Layout()
	for b := 0; err == nil && b < l.Batch; b++ {
		_, _, err = host.Entry(b)
	}
	if err != nil || op.Outside != kernel.FailOutside {
		return err
	}
	var first [8]byte // first field of Head
	f.fetchBytes(first[:], scratch)
	row := int(int64(binary.LittleEndian.Uint64(first[:])))
	b := 0
	if f.err != nil || row == -1 {
		return f.err
	}
	switch {
	case host.Offsets != nil:
		for b = range l.Batch { // find the entry that contains the row
			if _, to, _ := host.Entry(b); row < to {
				break
			}
		}
	case l.Batched:
		b = row / l.Rows
		row = row % l.Rows
	}
	// Read the point as a tensor of one point.
	at := row * op.Points.Step(len(op.Points.Shape)-2)
	rank := len(op.Points.Shape)
	if rank == 3 {
		at += b * op.Points.Step(0)
	}
	t := f.fetchStrided(
		op.Points.DType,
		[]int{3},
		[]int{op.Points.Step(rank - 1)},
		f.addrs[f.l.number[&op.Points]]+uintptr(at*op.Points.DType.Size()),
	)
	if f.err != nil {
		return f.err
	}
	return op.OutsideError(
		b,
		row,
		[3]float32{float32(t.Float(0)), float32(t.Float(1)), float32(t.Float(2))},
	)
}
