package cuda

import (
	"fmt"
	"math"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/kernel"
)

// depthParams mirrors Depth of src/depth.cu, which documents the fields.
type depthParams struct {
	depth, out, valid                                                       uintptr
	depthEntry, depthRow, depthColumn, outEntry, outRow, outColumn, outAxis int64
	validEntry, validRow, validColumn, pixels                               int64
	height, width                                                           uint32
	fx, fy, cx, cy, scale                                                   float32
	pose                                                                    [12]float32
	depthType, posed, flat                                                  uint8
	_                                                                       [5]uint8
}

// planeStrides returns a tensor's strides over [(B,) H, W]. Without the axis B, the first is 0.
func planeStrides(t *kernel.Tensor, rank int) (entry, row, column int64) {
	if rank == 3 {
		entry = int64(t.Step(0))
	}
	return entry, int64(t.Step(rank - 2)), int64(t.Step(rank - 1))
}

// prepareUnproject prepares the conversion of depth images to points.
func (d *Device) prepareUnproject(op *kernel.DepthOp) (*Launch, error) {
	rank := len(op.Depth.Shape)
	p := &depthParams{
		pixels:    int64(op.Depth.Len()),
		height:    uint32(op.Depth.Shape[rank-2]),
		width:     uint32(op.Depth.Shape[rank-1]),
		fx:        op.Camera[0],
		fy:        op.Camera[1],
		cx:        op.Camera[2],
		cy:        op.Camera[3],
		scale:     op.DepthScale(),
		depthType: uint8(op.Depth.DType),
		flat:      flag(op.Out.Contiguous()),
	}
	if most := max(op.Depth.Shape[rank-2], op.Depth.Shape[rank-1]); most > math.MaxUint32 {
		return nil, extentError("depth_to_points", most)
	}
	p.depthEntry, p.depthRow, p.depthColumn = planeStrides(&op.Depth, rank)
	p.outEntry, p.outRow, p.outColumn = planeStrides(&op.Out, rank)
	p.outAxis = int64(op.Out.Step(rank))
	if op.Pose != nil {
		p.pose, p.posed = *op.Pose, 1
	}
	if op.Valid != nil {
		p.validEntry, p.validRow, p.validColumn = planeStrides(op.Valid, rank)
	}
	const block, pixelsPerThread = 256, 4
	blocks := ceilDiv(p.pixels, block*pixelsPerThread)
	if blocks > math.MaxInt32 {
		return nil, extentError("depth_to_points", int(p.pixels))
	}
	l := newLaunch(d.launcher, "depth_to_points", op)
	n := l.addCall(
		call{
			kernel: "depth_points",
			grid:   uint32(blocks),
			block:  block,
			params: paramsOf(p),
			args: func() string {
				return fmt.Sprintf("depth %s %v", op.Depth.DType, op.Depth.Shape)
			},
		},
	)
	l.bind(n, &p.depth, &op.Depth)
	l.bind(n, &p.out, &op.Out)
	l.bind(n, &p.valid, op.Valid)
	return l, nil
}

// extentError returns the error for a tensor that is too large for the integers of a kernel.
func extentError(op string, got int) error {
	return robocache.Unsupported(op, nil, "kernel/cuda: an extent is too large").
		Expected("", fmt.Sprint(got))
}
