package kernel

import (
	"fmt"
	"math"

	"github.com/goatnote-inc/robocache"
)

// integrate is the name of TSDFOp in errors.
const integrate = "tsdf_integrate"

// DepthScale returns Scale, or the default that 0 selects.
func (op *TSDFOp) DepthScale() float32 { return depthScale(&op.Depth, op.Scale) }

// Check rejects everything that can be detected without reading values or memory. All three back
// ends call it first.
func (op *TSDFOp) Check() (err error) {
	if len(op.Depth.Shape) != 2 {
		return misuseError(
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
		return misuseError(
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
			return misuseError(
				integrate,
				n.name+" must be positive",
				"a finite number > 0",
				fmt.Sprint(n.x),
			)
		}
	}
	for _, n := range op.namedTensors()[1:] {
		err := checkForm(integrate, n.name, n.tensor, op.Value.Shape, robocache.Float32)
		if err != nil {
			return err
		}
	}
	return checkTensors(op)
}

// opName implements Op.
func (op *TSDFOp) opName() string { return integrate }

// namedTensors implements Op.
func (op *TSDFOp) namedTensors() []namedTensor {
	return []namedTensor{
		inputTensor("depth", &op.Depth),
		resultTensor("value", &op.Value),
		resultTensor("weight", &op.Weight),
	}
}

// Rows returns the number of voxel columns, and the number of voxels in each.
func (op *TSDFOp) Rows() (n, pixels int) {
	return op.Value.Shape[0] * op.Value.Shape[1], op.Value.Shape[2]
}

// Row updates the voxels of one pair of x and y indices, on the host. It projects the center of
// each voxel into the depth image and averages the truncated signed distance to the surface. The
// float32 conversions prevent the compiler from fusing products into sums.
func (op *TSDFOp) Row(column int) {
	h, w := op.Depth.Shape[0], op.Depth.Shape[1]
	ix := column / op.Value.Shape[1]
	iy := column % op.Value.Shape[1]
	m := &op.View
	scale := op.DepthScale()
	size := op.Depth.DType.Size()
	fx, fy, ox, oy := op.Camera[0], op.Camera[1], op.Camera[2], op.Camera[3]
	// cx, cy and cz are the center of a voxel. x, y and z are the center in camera coordinates.
	cx := FMA32(float32(ix)+0.5, op.Size[0], op.Min[0])
	cy := FMA32(float32(iy)+0.5, op.Size[1], op.Min[1])
	var part [3]float32 // contribution of cx and cy to a point in camera coordinates
	for r := range part {
		part[r] = FMA32(m[4*r+1], cy, FMA32(m[4*r], cx, m[4*r+3]))
	}
	rowStep, colStep := op.Depth.Step(0), op.Depth.Step(1)
	value := op.Value.byteOffset(ix, iy)
	valueStep := 4 * op.Value.Step(2)
	weight := op.Weight.byteOffset(ix, iy)
	weightStep := 4 * op.Weight.Step(2)
	for iz := range op.Value.Shape[2] {
		cz := FMA32(float32(iz)+0.5, op.Size[2], op.Min[2])
		z := FMA32(m[10], cz, part[2])
		if !(z > 0) {
			continue
		}
		x, y := FMA32(m[2], cz, part[0]), FMA32(m[6], cz, part[1])
		u := float32(float32(float32(fx*x)/z)+ox) + 0.5
		v := float32(float32(float32(fy*y)/z)+oy) + 0.5
		// If u lies in [0, w), its floor lies in 0 … w-1 and equals its truncation.
		if !(u >= 0 && u < float32(w) && v >= 0 && v < float32(h)) {
			continue
		}
		// The product is rounded before it is used in sdf, so that it is not fused.
		depth := float32(
			float32(op.Depth.float64At((op.Depth.Base+int(v)*rowStep+int(u)*colStep)*size)) * scale,
		)
		if !(depth > 0) || math.IsInf(float64(depth), 0) {
			continue
		}
		sdf := depth - z
		if sdf < -op.Truncate { // far behind the surface: not visible
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
