package cpu

import (
	"testing"

	"github.com/goatnote-inc/robocache/kernel/tests/sweep"

	"github.com/goatnote-inc/robocache/kernel"
)

// TestImages compares augmented images with the reference.
func TestImages(t *testing.T) {
	if err := sweep.Images(kernel.Reference{}, New(3), 1, 60); err != nil {
		t.Error(err)
	}
}

// BenchmarkAugmentImage measures one image per iteration, on one thread.
func BenchmarkAugmentImage(b *testing.B) {
	const h, w = 224, 224
	src, dst := make([]byte, 3*256*256), make([]byte, 3*h*w)
	for i := range src {
		src[i] = byte(i * 7)
	}
	for _, x := range []struct {
		name string
		a    kernel.ImageAugment
	}{
		{"crop", kernel.ImageAugment{Height: h, Width: w, Flip: 0.5}},
		{
			"jitter",
			kernel.ImageAugment{
				Height:     h,
				Width:      w,
				Flip:       0.5,
				Brightness: &[2]float64{0.8, 1.2},
				Hue:        &[2]float64{-0.05, 0.05},
			},
		},
		{"noise", kernel.ImageAugment{Height: h, Width: w, Noise: 0.02}},
	} {
		b.Run(x.name, func(b *testing.B) {
			var form kernel.ImageForm
			b.SetBytes(int64(len(dst)))
			for i := range b.N {
				d := x.a.Draw(int64(i), 256, 256, 0)
				form.AugmentImage(dst, src, &d, [4]int{256, 256, h, w})
			}
		})
	}
}
