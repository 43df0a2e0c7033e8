package cuda

import (
	"fmt"
	"strconv"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/kernel"
)

// VoxelScratch is how many bytes of device memory the op needs as its Scratch. What they hold means nothing, before and after.
func (d *Device) VoxelScratch(op *kernel.VoxelOp) (int, error) {
	if err := op.Check(); err != nil {
		return 0, err
	}
	p, err := d.planVoxels(op)
	if err != nil {
		return 0, err
	}
	return p.bytes, nil
}

// prepareVoxelize makes a launch that is deterministic, and equal to the reference to the bit, also where op.Fast allows otherwise: the ordered sums
// are faster than float atomics. FailOutside waits for the device, and so does Validate, which proves lengths and offsets: otherwise values out of
// range are taken for the nearest that is in it.
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
		return nil, &robocache.Error{Class: robocache.ErrMisuse, Op: "voxelize", Where: robocache.Where{"tensor": "scratch"}, Msg: "scratch has wrong shape", Want: fmt.Sprintf("at least %d bytes", plan.bytes), Got: got, Hint: "VoxelScratch says how many"}
	}
	tensors := op.Tensors()
	l := &Launch{op: "voxelize", on: d.on, tensors: len(tensors)}
	index := map[*kernel.Tensor]int{}
	for i, t := range tensors {
		index[t] = i
	}
	scratch := index[op.Scratch]
	var all []*voxelParams
	for i, step := range plan.steps {
		p := new(voxelParams)
		*p = plan.params
		all = append(all, p)
		put := func(field *uintptr, t *kernel.Tensor) {
			if t != nil {
				l.places = append(l.places, place{call: i, at: p.address(field), tensor: index[t]})
			}
		}
		put(&p.scratch, op.Scratch)
		if !step.blank {
			put(&p.points, &op.Points)
			put(&p.index, op.Lengths)
			put(&p.index, op.Offsets)
			put(&p.out, op.Out)
			put(&p.coords, op.Coords)
			put(&p.rows, op.Rows)
			put(&p.counts, op.Counts)
			put(&p.found, op.Found)
			put(&p.stats, op.Stats)
			if op.Mode.Featured() {
				put(&p.features, op.Features)
			}
		}
		l.calls = append(l.calls, call{kernel: step.kernel, grid: step.grid, block: step.block, shared: step.shared, early: step.early, params: paramsOf(p), args: func() string {
			return fmt.Sprintf("%s of points %s %v, grid %v, batch %d", op.Mode, op.Points.DType, op.Points.Shape, op.Grid, p.batch)
		}})
	}
	var look *voxelLook
	if plan.params.batch > 0 && (op.Outside == kernel.FailOutside || op.Validate && plan.params.entries != equalEntries) {
		look = &voxelLook{op: op, on: d.on, points: index[&op.Points]}
		if op.Offsets != nil {
			look.index = index[op.Offsets]
		} else if op.Lengths != nil {
			look.index = index[op.Lengths]
		}
		l.after = look.look
	}
	l.adjust = func(_ []call, addrs []uintptr) error {
		at := (addrs[scratch] + voxelAlign - 1) &^ (voxelAlign - 1)
		for _, p := range all {
			p.scratch = at
		}
		look.note(at, addrs)
		return nil
	}
	return l.prepared()
}
