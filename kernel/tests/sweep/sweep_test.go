package sweep

import (
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/kernel"
)

// TestSweep checks that the operations of the sweep are legal, and that the same operation gives
// the same bits twice.
func TestSweep(t *testing.T) {
	ran, failures := Bits(kernel.Reference{}, kernel.Reference{}, 0, 500)
	if ran < 480 {
		t.Errorf("only %d ran", ran)
	}
	for i, f := range failures {
		if i == 5 {
			t.Fatalf("and %d more", len(failures)-i)
		}
		t.Error(f)
	}
	if _, failures := Ops(kernel.Reference{}, wrong{}, 0, 500); len(failures) < 40 {
		t.Errorf("one wrong bit was seen %d times", len(failures))
	}
}

// wrong changes the lowest bit of the first element of each float32 result.
type wrong struct{ kernel.Reference }

// Run implements kernel.Backend.
func (w wrong) Run(op kernel.Op) error {
	err := w.Reference.Run(op)
	if f, ok := op.(*kernel.FuseOp); ok && f.Out.DType == robocache.Float32 && len(f.Out.Data) > 0 {
		f.Out.Data[0] ^= 1
	}
	return err
}

// wrongSpace changes one bit of each result.
type wrongSpace struct{ kernel.Reference }

// Run implements kernel.Backend.
func (w wrongSpace) Run(op kernel.Op) error {
	err := w.Reference.Run(op)
	switch op := op.(type) {
	case *kernel.VoxelOp:
		if t := op.Out; t != nil && t.Len() > 0 {
			t.Data[t.Base*t.DType.Size()] ^= 1
		}
		if op.Coords != nil && op.Coords.Len() > 0 {
			op.Coords.Data[0] ^= 1
		}
	case *kernel.DepthOp:
		if op.Valid != nil && op.Valid.Len() > 0 {
			op.Valid.Data[0] ^= 1
		}
	case *kernel.TSDFOp:
		op.Weight.Data[op.Weight.Base*4] ^= 1
	}
	return err
}

// TestSweeps checks that the sweeps run without a difference between the reference and itself.
func TestSweeps(t *testing.T) {
	if err := Voxels(kernel.Reference{}, kernel.Reference{}, 1, 300); err != nil {
		t.Error(err)
	}
	if err := Depth(kernel.Reference{}, kernel.Reference{}, 1, 100); err != nil {
		t.Error(err)
	}
	if err := TSDF(kernel.Reference{}, kernel.Reference{}, 1, 100); err != nil {
		t.Error(err)
	}
}

// TestVoxelsCanFail checks that one wrong bit in each result is detected.
func TestVoxelsCanFail(t *testing.T) {
	if Voxels(kernel.Reference{}, wrongSpace{}, 1, 50) == nil ||
		Depth(kernel.Reference{}, wrongSpace{}, 1, 50) == nil ||
		TSDF(kernel.Reference{}, wrongSpace{}, 1, 50) == nil {
		t.Error("a sweep did not see one wrong bit in each result")
	}
}
