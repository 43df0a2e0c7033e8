package cpu

import (
	"encoding/binary"
	"math"

	"github.com/goatnote-inc/robocache/kernel"
)

// mostPixels is the largest image that is turned into metres first: 1 GB.
const mostPixels = 1 << 28

// Integrate updates a TSDF, a column of voxels after the other: what the two outer indices decide of a voxel's place is made once a column.
func (b *Backend) Integrate(op *kernel.TSDFOp) error {
	if err := kernel.CheckHost(op); err != nil {
		return err
	}
	if !little {
		return kernel.Reference{}.Integrate(op)
	}
	s := op.Value.Shape
	h, w := op.Depth.Shape[0], op.Depth.Shape[1]
	if op.Value.Len() == 0 || h*w == 0 {
		return nil
	}
	if h > mostPixels/w { // an expanded image has more than its memory holds
		return kernel.Reference{}.Integrate(op)
	}
	depth := make([]float32, h*w)
	rowwise(b.threads, h, w, func(row int) {
		depthRow(depth[row*w:(row+1)*w], &op.Depth, op.Depth.Base+row*op.Depth.Step(0), op.DepthScale())
	})
	f := field{op: op, depth: depth, w: w, fw: float32(w), fh: float32(h)}
	rowwise(b.threads, s[0]*s[1], s[2], func(row int) { f.column(row/s[1], row%s[1]) })
	return nil
}

// field is one call of Integrate.
type field struct {
	op     *kernel.TSDFOp
	depth  []float32 // in metres
	w      int
	fw, fh float32
}

// column updates the voxels of one pair of outer indices. The conversions keep products from being fused into sums.
func (f *field) column(ix, iy int) {
	op := f.op
	m := &op.View
	cx := kernel.FMA32(float32(ix)+0.5, op.Size[0], op.Min[0])
	cy := kernel.FMA32(float32(iy)+0.5, op.Size[1], op.Min[1])
	var part [3]float32
	for r := range part {
		part[r] = kernel.FMA32(m[4*r+1], cy, kernel.FMA32(m[4*r], cx, m[4*r+3]))
	}
	fx, fy, ox, oy := op.Camera[0], op.Camera[1], op.Camera[2], op.Camera[3]
	vo, vs := 4*(op.Value.Base+ix*op.Value.Step(0)+iy*op.Value.Step(1)), 4*op.Value.Step(2)
	wo, ws := 4*(op.Weight.Base+ix*op.Weight.Step(0)+iy*op.Weight.Step(1)), 4*op.Weight.Step(2)
	for iz := range op.Value.Shape[2] {
		cz := kernel.FMA32(float32(iz)+0.5, op.Size[2], op.Min[2])
		z := kernel.FMA32(m[10], cz, part[2])
		if !(z > 0) {
			continue
		}
		x, y := kernel.FMA32(m[2], cz, part[0]), kernel.FMA32(m[6], cz, part[1])
		u := float32(float32(float32(fx*x)/z)+ox) + 0.5
		v := float32(float32(float32(fy*y)/z)+oy) + 0.5
		// The floor of u lies in 0 … w-1 where u itself lies in [0, w), and truncation is the floor there.
		if !(u >= 0 && u < f.fw && v >= 0 && v < f.fh) {
			continue
		}
		depth := f.depth[int(v)*f.w+int(u)]
		if !(depth > 0) || math.IsInf(float64(depth), 0) {
			continue
		}
		sdf := depth - z
		if sdf < -op.Truncate {
			continue
		}
		d := min(1, sdf/op.Truncate)
		value, weight := op.Value.Data[vo+iz*vs:], op.Weight.Data[wo+iz*ws:]
		old := math.Float32frombits(binary.LittleEndian.Uint32(weight))
		if old > 0 {
			d = (float32(old*math.Float32frombits(binary.LittleEndian.Uint32(value))) + d) / (old + 1)
		} else {
			old = 0
		}
		binary.LittleEndian.PutUint32(value, math.Float32bits(d))
		binary.LittleEndian.PutUint32(weight, math.Float32bits(min(old+1, op.MaxWeight)))
	}
}
