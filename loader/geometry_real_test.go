package loader_test

import (
	"bytes"
	"context"
	"testing"

	"github.com/goatnote-inc/robocache/loader"
)

// The inside of a letterbox is the image stretched to the inner size, a crop is a part of the image
// stretched to the covering one, to the bit; in each element type, each cache and each order. The
// frames are 320×240.
func TestResizeOfVideo(t *testing.T) {
	ds := testdata(t, "g1_h264_v30")
	ctx := context.Background()
	const key = "observation.images.cam_high"
	samples := []int64{0, 7, 31, 7}
	from := func(cfg loader.Config) []byte {
		cfg.Keys = []string{key}
		m, err := loader.NewMap(ctx, ds, cfg)
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		b, err := m.Items(ctx, samples)
		if err != nil {
			t.Fatal(err)
		}
		defer b.Release()
		return bytes.Clone(b.Tensor(key).Data)
	}
	for _, dtype := range []string{"uint8", "float32"} {
		size := map[string]int{"uint8": 1, "float32": 4}[dtype]
		for _, x := range []struct {
			how                   loader.Resize
			h, w, sh, sw, top, in int
		}{
			{loader.Letterbox, 100, 100, 75, 100, 12, 0},
			{loader.Letterbox, 60, 90, 60, 80, 0, 5},
			{loader.Crop, 100, 100, 100, 133, 0, -16},
			{loader.Crop, 60, 90, 68, 90, -4, 0},
		} {
			got := from(
				loader.Config{
					Images: loader.Images{
						ImageDType:  loader.ImageDType(dtype),
						ImageSize:   []int{x.h, x.w},
						ImageResize: x.how,
					},
				},
			)
			whole := from(
				loader.Config{
					Images: loader.Images{
						ImageDType: loader.ImageDType(dtype),
						ImageSize:  []int{x.sh, x.sw},
					},
				},
			)
			for plane := range 3 * len(samples) {
				for y := range x.h {
					for c := range x.w {
						want := make([]byte, size)
						if sx, sy := c-x.in, y-x.top; sx >= 0 && sx < x.sw && sy >= 0 && sy < x.sh {
							copy(want, whole[((plane*x.sh+sy)*x.sw+sx)*size:])
						}
						if at := ((plane*x.h+y)*x.w +
							c) * size; !bytes.Equal(got[at:at+size], want) {
							t.Fatalf(
								"%s %s %d×%d: plane %d, row %d, column %d: %v, not %v",
								dtype,
								x.how,
								x.h,
								x.w,
								plane,
								y,
								c,
								got[at:at+size],
								want,
							)
						}
					}
				}
			}
		}
	}
	for _, how := range []loader.Resize{loader.Letterbox, loader.Crop} {
		dir := t.TempDir() // shared: cached frames of one geometry must not be used for another
		var first []byte
		for _, cfg := range []loader.Config{
			{},
			{CacheOptions: loader.CacheOptions{Cache: "ram", CacheFormat: "rgb"}},
			{CacheOptions: loader.CacheOptions{Cache: "ram", CacheFormat: "yuv"}},
			{
				CacheOptions: loader.CacheOptions{Cache: dir, CacheFormat: "rgb"},
				Images:       loader.Images{ImageResize: "stretch"},
			},
			{CacheOptions: loader.CacheOptions{Cache: dir, CacheFormat: "rgb"}},
			{CacheOptions: loader.CacheOptions{Cache: dir, CacheFormat: "rgb"}},
			{CacheOptions: loader.CacheOptions{Cache: dir, CacheFormat: "yuv"}},
			{CacheOptions: loader.CacheOptions{Cache: dir, CacheFormat: "yuv"}},
		} {
			stretched := cfg.ImageResize == "stretch"
			cfg.Keys, cfg.BatchSize, cfg.ImageSize, cfg.Episodes = []string{
				key,
			}, 8, []int{
				40,
				48,
			}, []int{
				0,
			}
			if !stretched {
				cfg.ImageResize = how
			}
			l, err := loader.New(ctx, ds, cfg)
			if err != nil {
				t.Fatal(err)
			}
			for epoch := range 2 {
				if err := l.SetEpoch(int64(epoch)); err != nil {
					t.Fatal(err)
				}
				b, err := l.Next(ctx)
				if err != nil {
					t.Fatal(err)
				}
				data := b.Tensor(key).Data
				if first == nil {
					first = bytes.Clone(data)
				}
				if bytes.Equal(first, data) == stretched {
					t.Errorf(
						"%s, cache %q %q, epoch %d: not what is made without a cache",
						cfg.ImageResize,
						cfg.Cache,
						cfg.CacheFormat,
						epoch,
					)
				}
				b.Release()
			}
			l.Close()
		}
	}
}
