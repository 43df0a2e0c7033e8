package column

import (
	"slices"
	"testing"

	"github.com/goatnote-inc/robocache/loader/options"
	"github.com/goatnote-inc/robocache/video"
)

func TestResizeScales(t *testing.T) {
	for _, x := range []struct {
		how            options.Resize
		w, h, toW, toH int
		want           [4]int // scaled width, height, left, top
	}{
		{options.Stretch, 640, 480, 100, 100, [4]int{100, 100, 0, 0}},
		{options.Letterbox, 640, 480, 100, 100, [4]int{100, 75, 0, 12}},
		{options.Letterbox, 480, 640, 100, 100, [4]int{75, 100, 12, 0}},
		{options.Letterbox, 1000, 1, 50, 50, [4]int{50, 1, 0, 24}},
		{options.Letterbox, 6, 4, 3, 2, [4]int{3, 2, 0, 0}},
		{options.Letterbox, 3, 2, 5, 5, [4]int{5, 3, 0, 1}}, // 3.33
		{options.Letterbox, 2, 3, 3, 3, [4]int{2, 3, 0, 0}},
		{options.Letterbox, 4, 3, 2, 9, [4]int{2, 2, 0, 3}}, // 1.5 goes up
		{options.Crop, 640, 480, 100, 100, [4]int{133, 100, -16, 0}},
		{options.Crop, 480, 640, 100, 100, [4]int{100, 133, 0, -16}},
		{options.Crop, 6, 4, 3, 2, [4]int{3, 2, 0, 0}},
		{options.Crop, 1000, 1, 50, 50, [4]int{50000, 50, -24975, 0}},
	} {
		c := &ImageColumn{Resize: x.how, Width: x.toW, Height: x.toH}
		w, h, left, top := c.scaledSize(x.w, x.h)
		if got := [4]int{w, h, left, top}; got != x.want {
			t.Errorf("%q %d×%d → %d×%d: %v, not %v", x.how, x.w, x.h, x.toW, x.toH, got, x.want)
		}
	}
}

// TestResizePlaces checks positions by pixels whose values are their own coordinates.
func TestResizePlaces(t *testing.T) {
	for _, how := range []options.Resize{options.Letterbox, options.Crop} {
		for _, pixel := range []video.Pixel{video.RGB8, video.Gray16} {
			c := &ImageColumn{
				Column: &Column{},
				Resize: how,
				Width:  5,
				Height: 7,
				Spec:   video.Spec{Pixel: pixel, Width: 5, Height: 7},
			}
			dst := make([]byte, 5*7*Channels(pixel)*pixelBytes(pixel))
			for i := range dst {
				dst[i] = 0xee
			}
			d, err := c.beginDraft(8, 6, dst)
			if err != nil {
				t.Fatal(err)
			}
			w, h, left, top := c.scaledSize(8, 6)
			from := make([]byte, len(d.into))
			for i := range d.into {
				d.into[i] = byte(1 + i%251)
			}
			copy(from, d.into)
			if err := d.Done(nil); err != nil {
				t.Fatal(err)
			}
			size := pixelBytes(pixel)
			for k := range Channels(pixel) {
				for y := range 7 {
					for x := range 5 {
						want := make([]byte, size)
						if sx, sy := x-left, y-top; sx >= 0 && sx < w && sy >= 0 && sy < h {
							copy(want, from[((k*h+sy)*w+sx)*size:])
						}
						if got := dst[((k*7+y)*5+x)*size:][:size]; !slices.Equal(got, want) {
							t.Fatalf(
								"%s %d: channel %d, pixel %d, %d is %v, not %v",
								how,
								pixel,
								k,
								x,
								y,
								got,
								want,
							)
						}
					}
				}
			}
		}
	}
}
