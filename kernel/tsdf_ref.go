package kernel

import (
	"fmt"
	"math"

	"github.com/goatnote-inc/robocache"
)

const integrate = "tsdf_integrate"

// DepthScale is Scale, or what 0 stands for.
func (op *TSDFOp) DepthScale() float32 { return depthScale(&op.Depth, op.Scale) }

// Check proves everything that can be seen without looking at values or memory; the three back ends begin with it.
func (op *TSDFOp) Check() error {
	if len(op.Depth.Shape) != 2 {
		return misuse(integrate, "depth must have shape [H, W]", "[H, W]", fmt.Sprint(op.Depth.Shape))
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
		return misuse(integrate, "Invalid grid dimensions: value must have shape [X, Y, Z]", "[X, Y, Z]", fmt.Sprint(op.Value.Shape))
	}
	if err := checkGrid(integrate, op.Min, op.Size, op.Value.Shape); err != nil {
		return err
	}
	for _, n := range []struct {
		name string
		x    float32
	}{{"truncation", op.Truncate}, {"maximal weight", op.MaxWeight}} {
		if !(n.x > 0) || math.IsInf(float64(n.x), 0) {
			return misuse(integrate, n.name+" must be positive", "a finite number > 0", fmt.Sprint(n.x))
		}
	}
	for _, n := range op.named()[1:] {
		if err := checkForm(integrate, n.name, n.tensor, op.Value.Shape, robocache.Float32); err != nil {
			return err
		}
	}
	return checkTensors(op)
}

func (op *TSDFOp) name() string { return integrate }

func (op *TSDFOp) named() []named {
	return []named{input("depth", &op.Depth), result("value", &op.Value), result("weight", &op.Weight)}
}

// Integrate updates one voxel after the other.
func (Reference) Integrate(op *TSDFOp) error {
	if err := CheckHost(op); err != nil {
		return err
	}
	s := op.Value.Shape
	for x := range s[0] {
		for y := range s[1] {
			for z := range s[2] {
				op.voxel(x, y, z)
			}
		}
	}
	return nil
}

// voxel looks along the ray through one voxel's centre. The conversions keep products from being fused into sums.
func (op *TSDFOp) voxel(ix, iy, iz int) {
	var c [3]float32
	for a, i := range [3]int{ix, iy, iz} {
		c[a] = FMA32(float32(i)+0.5, op.Size[a], op.Min[a])
	}
	p := transform(&op.View, c[0], c[1], c[2])
	if !(p[2] > 0) {
		return
	}
	u := float32(float32(op.Camera[0]*p[0])/p[2]) + op.Camera[2]
	v := float32(float32(op.Camera[1]*p[1])/p[2]) + op.Camera[3]
	u = float32(math.Floor(float64(u + 0.5)))
	v = float32(math.Floor(float64(v + 0.5)))
	h, w := op.Depth.Shape[0], op.Depth.Shape[1]
	if !(u >= 0 && u < float32(w) && v >= 0 && v < float32(h)) {
		return
	}
	depth := float32(op.Depth.float64At(op.Depth.at(int(v), int(u)))) * op.DepthScale()
	if !(depth > 0) || math.IsInf(float64(depth), 0) {
		return
	}
	sdf := depth - p[2]
	if sdf < -op.Truncate {
		return
	}
	d := min(1, sdf/op.Truncate)
	vo, wo := op.Value.at(ix, iy, iz), op.Weight.at(ix, iy, iz)
	weight := math.Float32frombits(le.Uint32(op.Weight.Data[wo:]))
	if weight > 0 {
		value := math.Float32frombits(le.Uint32(op.Value.Data[vo:]))
		d = (float32(weight*value) + d) / (weight + 1)
	} else {
		weight = 0
	}
	le.PutUint32(op.Value.Data[vo:], math.Float32bits(d))
	le.PutUint32(op.Weight.Data[wo:], math.Float32bits(min(weight+1, op.MaxWeight)))
}
