package kernel

import (
	"slices"

	"github.com/goatnote-inc/robocache"
)

// Op is an operation: FuseOp, FuseGradOp, ApplyOp, ImageOp, VoxelOp, DepthOp or TSDFOp.
type Op interface {
	// Check rejects everything that can be detected without reading values or memory (kernel.K18).
	// Every back end calls it first.
	Check() error
	// Tensors returns the tensors of the operation that are not nil. Their order is that of the
	// addresses in a prepared launch.
	Tensors() []*Tensor

	opName() string // the operation's name in errors
	namedTensors() []namedTensor
}

// CheckHost calls Check and rejects tensors that are not in host memory. Back ends of the host call
// it first.
func CheckHost(op Op) (err error) {
	if err := op.Check(); err != nil {
		return err
	}
	for _, n := range op.namedTensors() {
		if n.tensor != nil {
			if err := n.tensor.CheckHost(op.opName(), n.name); err != nil {
				return err
			}
		}
	}
	return nil
}

// namedTensor is a tensor of an operation with its name in errors. tensor is nil if the operation
// has no such tensor.
type namedTensor struct {
	name    string
	tensor  *Tensor
	written bool
}

// inputTensor returns a tensor that the operation only reads.
func inputTensor(name string, t *Tensor) namedTensor { return namedTensor{name, t, false} }

// resultTensor returns a tensor that the operation writes.
func resultTensor(name string, t *Tensor) namedTensor { return namedTensor{name, t, true} }

// presentTensors returns the tensors that are not nil.
func presentTensors(all []namedTensor) []*Tensor {
	out := make([]*Tensor, 0, len(all))
	for _, n := range all {
		if n.tensor != nil {
			out = append(out, n.tensor)
		}
	}
	return out
}

// Results returns the tensors that an operation writes.
func Results(op Op) []*Tensor {
	return presentTensors(
		slices.DeleteFunc(op.namedTensors(), func(n namedTensor) bool { return !n.written }),
	)
}

// checkTensors rejects tensors of which some are on the host and others on a device. It also
// rejects a written tensor whose elements share memory with each other or with another tensor of
// the operation.
func checkTensors(op Op) error {
	all := op.namedTensors()
	host := false
	device := false
	for _, n := range all {
		host = host || n.tensor != nil && n.tensor.Data != nil
		device = device || n.tensor != nil && n.tensor.Addr != 0
	}
	if host && device {
		return misuseError(
			op.opName(),
			"must be on the same device",
			"all tensors in host memory, or all on the device",
			"some here, some there",
		)
	}
	for _, w := range all {
		if !w.written || w.tensor == nil {
			continue
		}
		if err := w.tensor.CheckResult(op.opName(), w.name); err != nil {
			return err
		}
		for _, n := range all {
			if n.tensor != nil && n.tensor != w.tensor && w.tensor.Overlaps(n.tensor) {
				return robocache.Misuse(op.opName(), robocache.Where{"tensor": w.name},
					"out aliases %s", n.name).
					Expected("memory of its own", "shared memory")
			}
		}
	}
	return nil
}
