package cuda

import (
	"errors"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/kernel"
)

// TestRegions checks that tensors in the same memory share it on the device too.
func TestRegions(t *testing.T) {
	one, other := make([]byte, 100), make([]byte, 50)
	at := func(b []byte) *kernel.Tensor { return &kernel.Tensor{DType: robocache.Uint8, Data: b} }
	list := mergeRegions(
		[]*kernel.Tensor{at(one[10:60]), at(other), at(nil), at(one[40:100]), at(one[20:30])},
	)
	if len(list) != 2 {
		t.Fatalf("%d regions", len(list))
	}
	lengths := map[int]bool{len(list[0].data): true, len(list[1].data): true}
	if !lengths[90] || !lengths[50] {
		t.Errorf("%v", lengths)
	}
}

// graphed runs each operation as a captured graph. It excludes operations that wait for a check,
// and disables the check of the order of times.
type graphed struct{ *Hosted }

// Run implements kernel.Backend. An operation that must check values cannot be captured: it runs
// without a graph, or without Validate.
func (g graphed) Run(op kernel.Op) error {
	switch op := op.(type) {
	case *kernel.FuseOp:
		for i := range op.Series {
			if op.Series[i].Rule.Edge == kernel.ErrorEdge {
				return g.Hosted.Run(op)
			}
		}
		defer func(validate bool) { op.Validate = validate }(op.Validate)
		op.Validate = false
	case *kernel.VoxelOp:
		if op.Outside == kernel.FailOutside {
			return g.Hosted.Run(op)
		}
	}
	return g.runWith(op, func() error {
		graph, err := g.d.Capture(g.stream, func() error { return g.d.Run(op, g.stream) })
		if err != nil {
			return err
		}
		defer graph.Free()
		return errors.Join(graph.Launch(g.stream), g.d.Wait(g.stream))
	})
}
