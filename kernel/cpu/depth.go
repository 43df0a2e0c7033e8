package cpu

import (
	"encoding/binary"
	"math"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/kernel"
)

// pixels is the least number of pixels or voxels that a thread is worth. Tests change it.
var pixels = 4096

// rowwise gives rows of so many pixels to threads.
func rowwise(threads, rows, wide int, f func(row int)) {
	spread(max(1, min(threads, rows*wide/pixels, rows)), rows, func() func(int) { return f })
}

// depthRow reads a row of a depth image, in metres.
func depthRow(dst []float32, t *kernel.Tensor, at int, scale float32) {
	step := t.Step(len(t.Shape) - 1)
	if t.DType == robocache.Uint16 {
		for i := range dst {
			dst[i] = float32(binary.LittleEndian.Uint16(t.Data[2*at:])) * scale
			at += step
		}
		return
	}
	for i := range dst {
		dst[i] = float32(number(t.Data, t.DType, at)) * scale
		at += step
	}
}

// Unproject makes points of a depth image, row by row.
func (b *Backend) Unproject(op *kernel.DepthOp) error {
	if err := kernel.CheckHost(op); err != nil {
		return err
	}
	if !little {
		return kernel.Reference{}.Unproject(op)
	}
	d := &op.Depth
	rank := len(d.Shape)
	h, w := d.Shape[rank-2], d.Shape[rank-1]
	rows := h
	if rank == 3 {
		rows *= d.Shape[0]
	}
	if rows*w == 0 {
		return nil
	}
	at := func(t *kernel.Tensor, row int) int {
		o := t.Base + row%h*t.Step(rank-2)
		if rank == 3 {
			o += row / h * t.Step(0)
		}
		return o
	}
	rowwise(b.threads, rows, w, func(row int) {
		u := camera{op: op, y: float32(row%h) - op.Camera[3]}
		for col := 0; col < w; col += block {
			n := min(block, w-col)
			depthRow(u.z[:n], d, at(d, row)+col*d.Step(rank-1), op.DepthScale())
			u.points(col, n)
			u.store(at(&op.Out, row)+col*op.Out.Step(rank-1), n)
			if v := op.Valid; v != nil {
				o, step := at(v, row)+col*v.Step(rank-1), v.Step(rank-1)
				for i := range n {
					v.Data[o+i*step] = u.valid[i]
				}
			}
		}
	})
	return nil
}

// camera makes the points of some pixels of one row.
type camera struct {
	op    *kernel.DepthOp
	y     float32 // v - cy
	z     [block]float32
	p     [block][3]float32
	valid [block]uint8
}

func (c *camera) points(col, n int) {
	op := c.op
	fx, fy, cx := op.Camera[0], op.Camera[1], op.Camera[2]
	nan := float32(math.NaN())
	for i := range n {
		z := c.z[i]
		if z == 0 || z-z != 0 {
			c.p[i], c.valid[i] = [3]float32{nan, nan, nan}, 0
			continue
		}
		// The conversions keep a product from being fused into a sum.
		x := float32((float32(col+i)-cx)*z) / fx
		y := float32(c.y*z) / fy
		c.p[i], c.valid[i] = [3]float32{x, y, z}, 1
	}
	if op.Pose == nil {
		return
	}
	m := op.Pose
	for i := range n {
		if c.valid[i] == 0 {
			continue
		}
		p := c.p[i]
		for r := range 3 {
			c.p[i][r] = kernel.FMA32(m[4*r+2], p[2], kernel.FMA32(m[4*r+1], p[1], kernel.FMA32(m[4*r], p[0], m[4*r+3])))
		}
	}
}

func (c *camera) store(at, n int) {
	t := &c.op.Out
	rank := len(t.Shape)
	col, step := t.Step(rank-2), t.Step(rank-1)
	if f := elements[float32](t.Data); f != nil && col == 3 && step == 1 {
		for i, p := range c.p[:n] {
			*(*[3]float32)(f[at+3*i:]) = p
		}
		return
	}
	for _, p := range c.p[:n] {
		for r, x := range p {
			binary.LittleEndian.PutUint32(t.Data[4*(at+r*step):], math.Float32bits(x))
		}
		at += col
	}
}
