package cuda

import (
	"testing"
	"time"

	"github.com/goatnote-inc/robocache/kernel/tests/sweep"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/kernel"
	"github.com/goatnote-inc/robocache/kernel/conform"
)

// TestImagesOnGPU compares augmented images with the vectors and the reference, with and without
// graphs.
func TestImagesOnGPU(t *testing.T) {
	d := device(t)
	hosted := &Hosted{d: d, stream: stream(t, d)}
	for _, h := range []kernel.Backend{hosted, graphed{hosted}} {
		ran, failures := conform.RunImages(h)
		report(t, "vectors of images", ran, failures)
		if err := sweep.Images(kernel.Reference{}, h, 9, 500); err != nil {
			t.Error(err)
		}
	}
}

// TestImageTimes compares the time of an augmentation with a copy of the same number of bytes: the
// bytes read from the images (the crop) and the bytes written.
func TestImageTimes(t *testing.T) {
	if !testing.Verbose() {
		t.Skip("prints times: -v")
	}
	d := device(t)
	s := stream(t, d)
	const images, from, to, launches = 768, 256, 224, 20
	crop := kernel.ImageAugment{Height: to, Width: to, Flip: 0.5}
	jitter := crop
	jitter.Brightness, jitter.Contrast, jitter.Saturation, jitter.Hue = &[2]float64{
		0.8,
		1.2,
	}, &[2]float64{
		0.8,
		1.2,
	}, &[2]float64{
		0.8,
		1.2,
	}, &[2]float64{
		-0.05,
		0.05,
	}
	noisy := jitter
	noisy.Noise = 0.02
	best := func(f func() error) float64 {
		least := time.Duration(1 << 62)
		for range 6 {
			begin := time.Now()
			for range launches {
				if err := f(); err != nil {
					t.Fatal(err)
				}
			}
			if err := d.Wait(s); err != nil {
				t.Fatal(err)
			}
			least = min(least, time.Since(begin))
		}
		return least.Seconds() / launches * 1e6
	}
	t.Logf("%d images 3×%d×%d to 3×%d×%d", images, from, from, to, to)
	for _, x := range []struct {
		name  string
		a     kernel.ImageAugment
		dtype robocache.DType
	}{
		{"crop, flip", crop, robocache.Uint8},
		{"and colours", jitter, robocache.Uint8},
		{"and noise", noisy, robocache.Uint8},
		{"crop, flip, floats", crop, robocache.Float32},
		{"and colours, floats", jitter, robocache.Float32},
		{"and noise, floats", noisy, robocache.Float32},
	} {
		p := kernel.ImagePart{
			Src: kernel.Tensor{
				DType: robocache.Uint8,
				Shape: []int{images, 3, from, from},
			},
			Draws: kernel.Tensor{
				DType: robocache.Int32,
				Shape: []int{images, kernel.ImageDrawWords},
			},
			Out: kernel.Tensor{DType: x.dtype, Shape: []int{images, 3, to, to}},
		}
		if x.dtype == robocache.Float32 {
			p.Table = make([]float32, 768)
		}
		var draws []byte
		for i := range images {
			one := x.a.Draw(int64(i), from, from, 0)
			draws = one.Append(draws)
		}
		read, written := images*3*to*to, images*3*to*to*x.dtype.Size()
		l, err := d.Prepare(&kernel.ImageOp{Parts: []kernel.ImagePart{p}})
		if err != nil {
			t.Fatal(err)
		}
		var addrs []uintptr
		for _, n := range []int{
			p.Src.Len(),
			len(draws),
			written,
			(read + written) / 2,
			(read + written) / 2,
		} {
			a, err := d.Alloc(n)
			if err != nil {
				t.Fatal(err)
			}
			defer d.Free(a)
			addrs = append(addrs, a)
		}
		pixels := make([]byte, p.Src.Len())
		for i := range pixels {
			pixels[i] = byte(i * 31 >> 3)
		}
		if err := d.CopyIn(addrs[0], pixels); err != nil {
			t.Fatal(err)
		}
		if err := d.CopyIn(addrs[1], draws); err != nil {
			t.Fatal(err)
		}
		own := best(func() error { return l.Run(addrs[:3], s) })
		copied := best(func() error { return d.copyThere(addrs[4], addrs[3], (read+written)/2, s) })
		t.Logf(
			"%-22s %8.1f µs, %6.0f GB/s; a copy of the same bytes %8.1f µs, %6.0f GB/s: %.2f times",
			x.name,
			own,
			float64(read+written)/own/1e3,
			copied,
			float64(read+written)/copied/1e3,
			own/copied,
		)
	}
}
