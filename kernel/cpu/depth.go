package cpu

import "github.com/goatnote-inc/robocache/kernel"

// Unproject makes points of a depth image.
func (b *Backend) Unproject(op *kernel.DepthOp) error { return kernel.Reference{}.Unproject(op) }

// Integrate updates a TSDF.
func (b *Backend) Integrate(op *kernel.TSDFOp) error { return kernel.Reference{}.Integrate(op) }
