package conform

import (
	"testing"

	"github.com/goatnote-inc/robocache/kernel"
)

// TestSweep: the ops of the sweep are right ones that run; the same one twice gives the same bits.
func TestSweep(t *testing.T) {
	ran, failures := SweepBits(kernel.Reference{}, kernel.Reference{}, 0, 500)
	if ran < 480 {
		t.Errorf("only %d ran", ran)
	}
	for i, f := range failures {
		if i == 5 {
			t.Fatalf("and %d more", len(failures)-i)
		}
		t.Error(f)
	}
	if _, failures := Sweep(kernel.Reference{}, wrong{}, 0, 500); len(failures) < 40 {
		t.Errorf("one wrong bit was seen %d times", len(failures))
	}
}
