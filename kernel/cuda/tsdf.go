package cuda

import (
	"fmt"
	"math"

	"github.com/goatnote-inc/robocache/kernel"
)

// tsdfParams mirrors TSDF of src/tsdf.cu, which documents the fields.
type tsdfParams struct {
	depth, value, weight                                                     uintptr
	depthRow, depthColumn, valueX, valueY, valueZ, weightX, weightY, weightZ int64
	voxels                                                                   int64
	grid                                                                     [3]uint32
	height, width                                                            uint32
	fx, fy, cx, cy, scale                                                    float32
	view                                                                     [12]float32
	lo, size                                                                 [3]float32
	truncate, most                                                           float32
	depthType                                                                uint8
	_                                                                        [3]uint8
}

// prepareIntegrate prepares the update of a TSDF with a depth image. One thread updates one voxel.
func (d *Device) prepareIntegrate(op *kernel.TSDFOp) (*Launch, error) {
	h, w := op.Depth.Shape[0], op.Depth.Shape[1]
	if max(h, w) > math.MaxUint32 {
		return nil, extentError("tsdf_integrate", max(h, w))
	}
	p := &tsdfParams{
		voxels:    int64(op.Value.Len()),
		height:    uint32(h),
		width:     uint32(w),
		fx:        op.Camera[0],
		fy:        op.Camera[1],
		cx:        op.Camera[2],
		cy:        op.Camera[3],
		scale:     op.DepthScale(),
		view:      op.View,
		lo:        op.Min,
		size:      op.Size,
		truncate:  op.Truncate,
		most:      op.MaxWeight,
		depthType: uint8(op.Depth.DType),
	}
	for a, g := range op.Value.Shape {
		p.grid[a] = uint32(g)
	}
	_, p.depthRow, p.depthColumn = planeStrides(&op.Depth, 2)
	p.valueX, p.valueY, p.valueZ = planeStrides(&op.Value, 3)
	p.weightX, p.weightY, p.weightZ = planeStrides(&op.Weight, 3)
	const block = 256
	blocks := ceilDiv(p.voxels, block)
	if blocks > math.MaxInt32 {
		return nil, extentError("tsdf_integrate", int(p.voxels))
	}
	if h == 0 || w == 0 {
		blocks = 0 // no voxel is visible
	}
	l := newLaunch(d.launcher, "tsdf_integrate", op)
	n := l.addCall(
		call{
			kernel: "tsdf_integrate",
			grid:   uint32(blocks),
			block:  block,
			params: paramsOf(p),
			args: func() string {
				return fmt.Sprintf(
					"depth %s %v, voxels %v",
					op.Depth.DType,
					op.Depth.Shape,
					op.Value.Shape,
				)
			},
		},
	)
	l.bind(n, &p.depth, &op.Depth)
	l.bind(n, &p.value, &op.Value)
	l.bind(n, &p.weight, &op.Weight)
	return l, nil
}
