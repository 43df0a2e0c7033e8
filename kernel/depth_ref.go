package kernel

import (
	"fmt"
	"math"

	"github.com/goatnote-inc/robocache"
)

const unproject = "depth_to_points"

// checkCamera proves fx, fy, cx, cy and a scale.
func checkCamera(op string, camera [4]float32, scale float32) error {
	for i, x := range camera {
		if x-x != 0 || i < 2 && x == 0 {
			return misuse(
				op,
				"camera is not finite",
				"fx, fy ≠ 0, cx, cy, all finite",
				fmt.Sprint(camera),
			)
		}
	}
	if scale-scale != 0 || scale < 0 {
		return misuse(
			op,
			"depth scale must be positive",
			"a finite number > 0, or 0 for 0.001 (integers) and 1 (floats)",
			fmt.Sprint(scale),
		)
	}
	return nil
}

func checkPose(op, name string, pose *[12]float32) error {
	for i, x := range pose {
		if x-x != 0 {
			return robocache.Misuse(op, robocache.Where{"tensor": name, "index": i}, "%s is not finite", name).
				Expected("twelve finite numbers", fmt.Sprint(x))
		}
	}
	return nil
}

// checkDepth proves a depth image's type and layout.
func checkDepth(op string, t *Tensor) error {
	if !t.DType.Float() && t.DType != robocache.Uint16 {
		return robocache.Misuse(op, robocache.Where{"tensor": "depth"}, "unsupported dtype").
			Expected("uint16, "+join(floatTypes), t.DType.String())
	}
	return t.Check(op, "depth")
}

// depthScale is the scale that 0 stands for.
func depthScale(t *Tensor, scale float32) float32 {
	switch {
	case scale != 0:
		return scale
	case t.DType == robocache.Uint16:
		return 0.001
	}
	return 1
}

// DepthScale is Scale, or what 0 stands for.
func (op *DepthOp) DepthScale() float32 { return depthScale(&op.Depth, op.Scale) }

// Check proves everything that can be seen without looking at values or memory; the three back ends
// begin with it.
func (op *DepthOp) Check() (err error) {
	d := &op.Depth
	if len(d.Shape) != 2 && len(d.Shape) != 3 {
		return misuse(
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
		if err := checkForm(
			unproject,
			"valid",
			op.Valid,
			d.Shape,
			robocache.Uint8,
			robocache.Bool,
		); err != nil {
			return err
		}
	}
	return checkTensors(op)
}

func (op *DepthOp) name() string { return unproject }

func (op *DepthOp) named() []named {
	return []named{input("depth", &op.Depth), result("out", &op.Out), result("valid", op.Valid)}
}

// Rows is how many rows of pixels the batch has; 0 where they have none.
func (op *DepthOp) Rows() (n, pixels int) {
	pixels = op.Depth.Shape[len(op.Depth.Shape)-1]
	return op.Depth.Len() / max(pixels, 1), pixels
}

// Row makes the points of a row of pixels, on the host.
func (op *DepthOp) Row(row int) {
	rank := len(op.Depth.Shape)
	h, w := op.Depth.Shape[rank-2], op.Depth.Shape[rank-1]
	start := func(t *Tensor) int { // the byte of the row's first element
		o := t.Base + row%h*t.Step(rank-2)
		if rank == 3 {
			o += row / h * t.Step(0)
		}
		return o * t.DType.Size()
	}
	bytes := func(t *Tensor, axis int) int { return t.Step(axis) * t.DType.Size() }
	d, out, scale := start(&op.Depth), start(&op.Out), op.DepthScale()
	step, column, axis := bytes(&op.Depth, rank-1), bytes(&op.Out, rank-1), bytes(&op.Out, rank)
	for u := range w {
		p, ok := op.Pixel(float32(op.Depth.float64At(d+u*step))*scale, u, row%h)
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

// Pixel is the point of a pixel z metres away. The conversions keep a product from being fused into
// a sum.
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

// transform is a 3×4 matrix on a point, row by row.
func transform(m *[12]float32, x, y, z float32) (p [3]float32) {
	for r := range p {
		p[r] = FMA32(m[4*r+2], z, FMA32(m[4*r+1], y, FMA32(m[4*r], x, m[4*r+3])))
	}
	return p
}
