package cpu

import (
	"testing"

	"github.com/goatnote-inc/robocache/kernel"
	"github.com/goatnote-inc/robocache/kernel/conform"
)

// fuseOnly stands for the operations that are another file's.
type fuseOnly struct {
	kernel.Reference
	*Backend
}

func (f fuseOnly) Fuse(op *kernel.FuseOp) error { return f.Backend.Fuse(op) }

func (f fuseOnly) Apply(op *kernel.ApplyOp) error { return f.Backend.Apply(op) }

func TestConform(t *testing.T) {
	ran, failures := conform.Run(fuseOnly{Backend: New(2)})
	for _, err := range failures {
		t.Error(err)
	}
	t.Logf("%d vectors", ran)
}
