package loader

import (
	"errors"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/loader/internal/column"
	"github.com/goatnote-inc/robocache/loader/options"
)

// TestCloudsNormalised: a point has a number a channel, as statistics count them; a frame's three
// channels are not its own.
func TestCloudsNormalised(t *testing.T) {
	r := newRobot(1.5)
	plain := column.Floats32(
		allOf(
			t,
			mustMap(t, r, options.Config{Windows: options.Windows{Keys: []string{"points"}}}),
		).Tensor("points").
			Data,
	)
	mean, std := []float64{1, 2, 3, 4}, []float64{2, 4, 8, 16} // powers of two: exact
	with := func(mean, std []float64) options.Config {
		return options.Config{
			Windows: options.Windows{Keys: []string{"points"}},
			Statistics: options.Statistics{Normalize: Normalize{
				Keys: map[string]Norm{"points": {Mode: "mean_std", Mean: mean, Std: std}},
			}},
		}
	}
	got := column.Floats32(allOf(t, mustMap(t, r, with(mean, std))).Tensor("points").Data)
	if len(got) != len(plain) || len(got) == 0 {
		t.Fatalf("%d values, %d without normalisation", len(got), len(plain))
	}
	for i, v := range got {
		if d := v - float32((float64(plain[i])-mean[i%4])/std[i%4]); d > 1e-4 || d < -1e-4 {
			t.Fatalf("value %d: %g of %g", i, v, plain[i])
		}
	}
	if _, err := NewMap(bg, r, with(mean[:3], std[:3])); !errors.Is(err, robocache.ErrMisuse) {
		t.Errorf("three means for four channels: %v", err)
	}
	hits := options.Config{
		Windows: options.Windows{Keys: []string{"hits"}},
		Statistics: options.Statistics{Normalize: Normalize{
			Keys: map[string]Norm{
				"hits": {Mode: "mean_std", Mean: []float64{1}, Std: []float64{1}},
			},
		}},
	}
	if _, err := NewMap(bg, r, hits); !errors.Is(err, robocache.ErrMisuse) {
		t.Errorf("whole numbers: %v", err)
	}
}
