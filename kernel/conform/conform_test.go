package conform

import (
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/kernel"
)

func TestReference(t *testing.T) {
	ran, failures := Run(kernel.Resample)
	if ran < 500 {
		t.Errorf("only %d cases ran", ran)
	}
	for i, f := range failures {
		if i == 20 {
			t.Fatalf("and %d more of %d", len(failures)-i, ran)
		}
		t.Error(f)
	}
}

// TestCanFail shows that a wrong back end is seen.
func TestCanFail(t *testing.T) {
	wrong := func(dst, src kernel.Matrix, p *kernel.Plan, opt kernel.Options) error {
		err := kernel.Resample(dst, src, p, opt)
		if src.DType == robocache.Float32 && len(dst.Data) > 0 {
			dst.Data[0] ^= 1 // one step of the first element
		}
		return err
	}
	if _, failures := Run(wrong); len(failures) < 100 {
		t.Errorf("one wrong bit in each result was seen %d times", len(failures))
	}
}
