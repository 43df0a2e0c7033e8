package kernel

import (
	"fmt"
	"math"

	"github.com/goatnote-inc/robocache"
)

const integrate = "tsdf_integrate"

// DepthScale is Scale, or what 0 stands for.
func (op *TSDFOp) DepthScale() float32 { return depthScale(&op.Depth, op.Scale) }

// Check proves everything that can be seen without looking at values or memory; the three back ends
// begin with it.
func (op *TSDFOp) Check() (err error) {
	if len(op.Depth.Shape) != 2 {
		return misuse(
			integrate,
			"depth must have shape [H, W]",
			"[H, W]",
			fmt.Sprint(op.Depth.Shape),
		)
	}
	if err := checkDepth(integrate, &op.Depth); err != nil {
		return err
	}
	if err := checkCamera(integrate, op.Camera, op.Scale); err != nil {
		return err
	}
	if err := checkPose(integrate, "view", &op.View); err != nil {
		return err
	}
	if len(op.Value.Shape) != 3 {
		return misuse(
			integrate,
			"Invalid grid dimensions: value must have shape [X, Y, Z]",
			"[X, Y, Z]",
			fmt.Sprint(op.Value.Shape),
		)
	}
	if err := checkGrid(integrate, op.Min, op.Size, op.Value.Shape); err != nil {
		return err
	}
	for _, n := range []struct {
		name string
		x    float32
	}{{"truncation", op.Truncate}, {"maximal weight", op.MaxWeight}} {
		if !(n.x > 0) || math.IsInf(float64(n.x), 0) {
			return misuse(
				integrate,
				n.name+" must be positive",
				"a finite number > 0",
				fmt.Sprint(n.x),
			)
		}
	}
	for _, n := range op.named()[1:] {
		if err := checkForm(
			integrate,
			n.name,
			n.tensor,
			op.Value.Shape,
			robocache.Float32,
		); err != nil {
			return err
		}
	}
	return checkTensors(op)
}

func (op *TSDFOp) name() string { return integrate }

func (op *TSDFOp) named() []named {
	return []named{
		input("depth", &op.Depth),
		result("value", &op.Value),
		result("weight", &op.Weight),
	}
}

// Rows is how many columns of voxels there are.
func (op *TSDFOp) Rows() (n, pixels int) {
	return op.Value.Shape[0] * op.Value.Shape[1], op.Value.Shape[2]
}

// Row updates the voxels of one pair of outer indices, on the host. The conversions keep products
// from being fused into sums.
func (op *TSDFOp) Row(column int) {
	h, w := op.Depth.Shape[0], op.Depth.Shape[1]
	ix, iy := column/op.Value.Shape[1], column%op.Value.Shape[1]
	m, scale, size := &op.View, op.DepthScale(), op.Depth.DType.Size()
	fx, fy, ox, oy := op.Camera[0], op.Camera[1], op.Camera[2], op.Camera[3]
	cx, cy := FMA32(
		float32(ix)+0.5,
		op.Size[0],
		op.Min[0],
	), FMA32(
		float32(iy)+0.5,
		op.Size[1],
		op.Min[1],
	)
	var part [3]float32 // what cx and cy make of a point in the camera
	for r := range part {
		part[r] = FMA32(m[4*r+1], cy, FMA32(m[4*r], cx, m[4*r+3]))
	}
	rowStep, colStep := op.Depth.Step(0), op.Depth.Step(1)
	value, valueStep := op.Value.at(ix, iy), 4*op.Value.Step(2)
	weight, weightStep := op.Weight.at(ix, iy), 4*op.Weight.Step(2)
	for iz := range op.Value.Shape[2] {
		cz := FMA32(float32(iz)+0.5, op.Size[2], op.Min[2])
		z := FMA32(m[10], cz, part[2])
		if !(z > 0) {
			continue
		}
		x, y := FMA32(m[2], cz, part[0]), FMA32(m[6], cz, part[1])
		u := float32(float32(float32(fx*x)/z)+ox) + 0.5
		v := float32(float32(float32(fy*y)/z)+oy) + 0.5
		// The floor of u lies in 0 … w-1 where u itself lies in [0, w), and truncation is the floor
		// there.
		if !(u >= 0 && u < float32(w) && v >= 0 && v < float32(h)) {
			continue
		}
		// rounded before sdf: no fused product
		depth := float32(
			float32(op.Depth.float64At((op.Depth.Base+int(v)*rowStep+int(u)*colStep)*size)) * scale,
		)
		if !(depth > 0) || math.IsInf(float64(depth), 0) {
			continue
		}
		sdf := depth - z
		if sdf < -op.Truncate {
			continue
		}
		d := min(1, sdf/op.Truncate)
		old := math.Float32frombits(le.Uint32(op.Weight.Data[weight+iz*weightStep:]))
		if old > 0 {
			before := math.Float32frombits(le.Uint32(op.Value.Data[value+iz*valueStep:]))
			d = (float32(old*before) + d) / (old + 1)
		} else {
			old = 0
		}
		le.PutUint32(op.Value.Data[value+iz*valueStep:], math.Float32bits(d))
		le.PutUint32(
			op.Weight.Data[weight+iz*weightStep:],
			math.Float32bits(min(old+1, op.MaxWeight)),
		)
	}
}
