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
			return misuse(op, "camera is not finite", "fx, fy ≠ 0, cx, cy, all finite", fmt.Sprint(camera))
		}
	}
	if scale-scale != 0 || scale < 0 {
		return misuse(op, "depth scale must be positive", "a finite number > 0, or 0 for 0.001 (integers) and 1 (floats)", fmt.Sprint(scale))
	}
	return nil
}

func checkPose(op, name string, pose *[12]float32) error {
	for i, x := range pose {
		if x-x != 0 {
			return &robocache.Error{Class: robocache.ErrMisuse, Op: op, Where: robocache.Where{"tensor": name, "index": i}, Msg: name + " is not finite", Want: "twelve finite numbers", Got: fmt.Sprint(x)}
		}
	}
	return nil
}

// checkDepth proves a depth image's type and layout.
func checkDepth(op string, t *Tensor) error {
	if !t.DType.Float() && t.DType != robocache.Uint16 {
		return &robocache.Error{Class: robocache.ErrMisuse, Op: op, Where: robocache.Where{"tensor": "depth"}, Msg: "unsupported dtype", Want: "uint16, " + join(floatTypes), Got: t.DType.String()}
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

// Check proves everything that can be seen without looking at values or memory; the three back ends begin with it.
func (op *DepthOp) Check() error {
	d := &op.Depth
	if len(d.Shape) != 2 && len(d.Shape) != 3 {
		return misuse(unproject, "depth must have shape [H, W] or [B, H, W]", "[H, W] or [B, H, W]", fmt.Sprint(d.Shape))
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
		if err := checkForm(unproject, "valid", op.Valid, d.Shape, robocache.Uint8, robocache.Bool); err != nil {
			return err
		}
	}
	return checkTensors(op)
}

func (op *DepthOp) name() string { return unproject }

func (op *DepthOp) named() []named {
	return []named{input("depth", &op.Depth), result("out", &op.Out), result("valid", op.Valid)}
}

// Unproject makes one pixel after the other.
func (Reference) Unproject(op *DepthOp) error {
	if err := CheckHost(op); err != nil {
		return err
	}
	d := &op.Depth
	batch := 1
	if len(d.Shape) == 3 {
		batch = d.Shape[0]
	}
	h, w := d.Shape[len(d.Shape)-2], d.Shape[len(d.Shape)-1]
	index := make([]int, 4)
	for b := range batch {
		for v := range h {
			for u := range w {
				index[0], index[1], index[2] = b, v, u
				pixel := index[3-len(d.Shape) : 3]
				p, ok := op.Pixel(float32(d.float64At(d.at(pixel...))), u, v)
				o := op.Out.at(pixel...)
				for a, x := range p {
					op.Out.put(o+a*4*op.Out.Step(len(d.Shape)), float64(x))
				}
				if op.Valid == nil {
					continue
				}
				op.Valid.Data[op.Valid.at(pixel...)] = 0
				if ok {
					op.Valid.Data[op.Valid.at(pixel...)] = 1
				}
			}
		}
	}
	return nil
}

// Pixel is the point of one pixel. The conversions keep a product from being fused into a sum.
func (op *DepthOp) Pixel(depth float32, u, v int) (p [3]float32, ok bool) {
	z := depth * op.DepthScale()
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
