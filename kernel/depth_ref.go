package kernel

import (
	"fmt"
	"math"

	"github.com/goatnote-inc/robocache"
)

// unproject is the name of DepthOp in errors.
const unproject = "depth_to_points"

// checkCamera rejects camera parameters (fx, fy, cx, cy) and a scale that cannot be used.
func checkCamera(op string, camera [4]float32, scale float32) error {
	for i, x := range camera {
		if x-x != 0 || i < 2 && x == 0 { // x-x is NaN if x is NaN or infinite
			return misuseError(
				op,
				"camera is not finite",
				"fx, fy ≠ 0, cx, cy, all finite",
				fmt.Sprint(camera),
			)
		}
	}
	if scale-scale != 0 || scale < 0 {
		return misuseError(
			op,
			"depth scale must be positive",
			"a finite number > 0, or 0 for 0.001 (integers) and 1 (floats)",
			fmt.Sprint(scale),
		)
	}
	return nil
}

// checkPose rejects a 3×4 matrix that has a NaN or an infinity.
func checkPose(op, name string, pose *[12]float32) error {
	for i, x := range pose {
		if x-x != 0 { // NaN or infinity
			return robocache.Misuse(op, robocache.Where{"tensor": name, "index": i},
				"%s is not finite", name).
				Expected("twelve finite numbers", fmt.Sprint(x))
		}
	}
	return nil
}

// checkDepth rejects a depth image of a wrong type or layout.
func checkDepth(op string, t *Tensor) error {
	if !t.DType.Float() && t.DType != robocache.Uint16 {
		return robocache.Misuse(op, robocache.Where{"tensor": "depth"}, "unsupported dtype").
			Expected("uint16, "+joinTypes(floatTypes), t.DType.String())
	}
	return t.Check(op, "depth")
}

// depthScale returns scale, or the default for the tensor's type if scale is 0.
func depthScale(t *Tensor, scale float32) float32 {
	switch {
	case scale != 0:
		return scale
	case t.DType == robocache.Uint16:
		return 0.001
	}
	return 1
}

// DepthScale returns Scale, or the default that 0 selects.
func (op *DepthOp) DepthScale() float32 { return depthScale(&op.Depth, op.Scale) }

// Check rejects everything that can be detected without reading values or memory. All three back
// ends call it first.
func (op *DepthOp) Check() (err error) {
	d := &op.Depth
	if len(d.Shape) != 2 && len(d.Shape) != 3 {
		return misuseError(
			unproject,
			"depth must have shape [H, W] or [B, H, W]",
			"[H, W] or [B, H, W]",
			fmt.Sprint(d.Shape),
		)
	}
	if err := checkDepth(unproject, d); err != nil {
		return err
	}
	if err := checkCamera(unproject, op.Camera, op.Scale); err != nil {
		return err
	}
	if op.Pose != nil {
		if err := checkPose(unproject, "pose", op.Pose); err != nil {
			return err
		}
	}
	shape := append(append([]int(nil), d.Shape...), 3)
	if err := checkForm(unproject, "out", &op.Out, shape, robocache.Float32); err != nil {
		return err
	}
	if op.Valid != nil {
		if err := checkForm(unproject, "valid", op.Valid, d.Shape, robocache.Uint8,
			robocache.Bool); err != nil {
			return err
		}
	}
	return checkTensors(op)
}

// opName implements Op.
func (op *DepthOp) opName() string { return unproject }

// namedTensors implements Op.
func (op *DepthOp) namedTensors() []namedTensor {
	return []namedTensor{
		inputTensor("depth", &op.Depth),
		resultTensor("out", &op.Out),
		resultTensor("valid", op.Valid),
	}
}

// Rows returns the number of pixel rows in the batch, and the number of pixels in each. It returns
// n = 0 if a row has no pixels.
func (op *DepthOp) Rows() (n, pixels int) {
	pixels = op.Depth.Shape[len(op.Depth.Shape)-1]
	return op.Depth.Len() / max(pixels, 1), pixels
}

// Row computes the points of one pixel row, on the host.
func (op *DepthOp) Row(row int) {
	rank := len(op.Depth.Shape)
	h, w := op.Depth.Shape[rank-2], op.Depth.Shape[rank-1]
	start := func(t *Tensor) int { // byte offset of the row's first element
		o := t.Base + row%h*t.Step(rank-2)
		if rank == 3 {
			o += row / h * t.Step(0)
		}
		return o * t.DType.Size()
	}
	bytes := func(t *Tensor, axis int) int { return t.Step(axis) * t.DType.Size() }
	depth := start(&op.Depth)
	out := start(&op.Out)
	scale := op.DepthScale()
	step := bytes(&op.Depth, rank-1)
	column := bytes(&op.Out, rank-1)
	axis := bytes(&op.Out, rank)
	for u := range w {
		p, ok := op.Pixel(float32(op.Depth.float64At(depth+u*step))*scale, u, row%h)
		for a, x := range p {
			le.PutUint32(op.Out.Data[out+u*column+a*axis:], math.Float32bits(x))
		}
		if op.Valid != nil {
			valid := byte(0)
			if ok {
				valid = 1
			}
			op.Valid.Data[start(op.Valid)+u*bytes(op.Valid, rank-1)] = valid
		}
	}
}

// Pixel returns the point of the pixel in column u and row v at depth z, in meters. ok is false if
// the pixel has no depth. The float32 conversions prevent the compiler from fusing a product into a
// sum.
func (op *DepthOp) Pixel(z float32, u, v int) (p [3]float32, ok bool) {
	if z == 0 || z-z != 0 {
		nan := float32(math.NaN())
		return [3]float32{nan, nan, nan}, false
	}
	x := float32((float32(u)-op.Camera[2])*z) / op.Camera[0]
	y := float32((float32(v)-op.Camera[3])*z) / op.Camera[1]
	if op.Pose == nil {
		return [3]float32{x, y, z}, true
	}
	return transform(op.Pose, x, y, z), true
}

// transform multiplies a 3×4 matrix, stored row by row, with a point.
func transform(m *[12]float32, x, y, z float32) (p [3]float32) {
	for r := range p {
		p[r] = FMA32(m[4*r+2], z, FMA32(m[4*r+1], y, FMA32(m[4*r], x, m[4*r+3])))
	}
	return p
}
