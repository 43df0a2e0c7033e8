package cpu

import "github.com/goatnote-inc/robocache/kernel"

// pixels is the least number of pixels or voxels that a thread is worth. Tests change it.
var pixels = 4096

// Images augments images, an image a thread.
func (b *Backend) Images(op *kernel.ImageOp) error {
	if err := kernel.CheckHost(op); err != nil {
		return err
	}
	if !little {
		return kernel.Reference{}.Images(op)
	}
	for i := range op.Parts {
		p := &op.Parts[i]
		b.rowwise(p.Src.Shape[0], p.Out.Shape[2]*p.Out.Shape[3], p.Augment)
	}
	return nil
}

// Unproject makes points of a depth image, row by row.
func (b *Backend) Unproject(op *kernel.DepthOp) error {
	if err := kernel.CheckHost(op); err != nil {
		return err
	}
	b.rowwise(op.Rows(), op.Depth.Shape[len(op.Depth.Shape)-1], op.Row)
	return nil
}

// Integrate updates a TSDF, a column of voxels after the other.
func (b *Backend) Integrate(op *kernel.TSDFOp) error {
	if err := kernel.CheckHost(op); err != nil {
		return err
	}
	b.rowwise(op.Value.Shape[0]*op.Value.Shape[1], op.Value.Shape[2], op.Column)
	return nil
}

// rowwise gives rows of so many pixels to threads.
func (b *Backend) rowwise(rows, wide int, f func(row int)) {
	spread(max(1, min(b.threads, rows*wide/pixels, rows)), rows, func() func(int) { return f })
}
