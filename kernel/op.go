package kernel

import (
	"slices"

	"github.com/goatnote-inc/robocache"
)

// Op is an operation: FuseOp, FuseGradOp, ApplyOp, ImageOp, VoxelOp, DepthOp or TSDFOp.
type Op interface {
	// Check proves everything that can be seen without looking at values or memory (K18). Every
	// back end begins with it.
	Check() error
	// Tensors are the op's tensors that are there, in the order in which a prepared launch takes
	// their addresses.
	Tensors() []*Tensor

	name() string // as errors call it
	named() []named
}

// CheckHost is Check, and proves that every tensor lies in host memory: what back ends of the host
// begin with.
func CheckHost(op Op) (err error) {
	if err := op.Check(); err != nil {
		return err
	}
	for _, n := range op.named() {
		if n.tensor != nil {
			if err := n.tensor.CheckHost(op.name(), n.name); err != nil {
				return err
			}
		}
	}
	return nil
}

// named is a tensor of an op, nil where the op has none, and its name in errors.
type named struct {
	name    string
	tensor  *Tensor
	written bool
}

func input(name string, t *Tensor) named  { return named{name, t, false} }
func result(name string, t *Tensor) named { return named{name, t, true} }

// tensors are those that are there.
func tensors(all []named) []*Tensor {
	out := make([]*Tensor, 0, len(all))
	for _, n := range all {
		if n.tensor != nil {
			out = append(out, n.tensor)
		}
	}
	return out
}

// Results are the tensors that an op writes.
func Results(op Op) []*Tensor {
	return tensors(slices.DeleteFunc(op.named(), func(n named) bool { return !n.written }))
}

// checkTensors proves that the tensors are all the host's or all a device's, and that what is
// written has a place of its own for each element, and shares none with any other tensor of the op.
func checkTensors(op Op) error {
	all, host, device := op.named(), false, false
	for _, n := range all {
		host = host || n.tensor != nil && n.tensor.Data != nil
		device = device || n.tensor != nil && n.tensor.Addr != 0
	}
	if host && device {
		return misuse(
			op.name(),
			"must be on the same device",
			"all tensors in host memory, or all on the device",
			"some here, some there",
		)
	}
	for _, w := range all {
		if !w.written || w.tensor == nil {
			continue
		}
		if err := w.tensor.CheckResult(op.name(), w.name); err != nil {
			return err
		}
		for _, n := range all {
			if n.tensor != nil && n.tensor != w.tensor && w.tensor.Overlaps(n.tensor) {
				return robocache.Misuse(op.name(), robocache.Where{"tensor": w.name}, "out aliases %s", n.name).
					Expected("memory of its own", "shared memory")
			}
		}
	}
	return nil
}
