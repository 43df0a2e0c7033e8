package cpu

import "github.com/goatnote-inc/robocache/kernel"

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
		rowwise(b.threads, p.Src.Shape[0], p.Out.Shape[2]*p.Out.Shape[3], p.Augment)
	}
	return nil
}
