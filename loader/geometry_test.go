package loader

import (
	"errors"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/loader/options"
)

func TestResizeMisuse(t *testing.T) {
	for _, cfg := range []options.Config{
		{Images: options.Images{ImageResize: "letterbox"}},
		{Images: options.Images{ImageResize: "crop"}},
		{Images: options.Images{ImageResize: "squash", ImageSize: []int{2, 2}}},
	} {
		if _, err := New(bg, newFake(5), cfg); !errors.Is(err, robocache.ErrMisuse) {
			t.Errorf("%q: %v", cfg.ImageResize, err)
		}
	}
	if _, err := NewMix(bg,
		[]options.Mix{
			{Dataset: newFake(5), MixFrames: options.MixFrames{ImageResize: "crop"}},
			{Dataset: newFake(5)},
		}, options.Config{}); !errors.Is(err, robocache.ErrMisuse) {
		t.Error(err)
	}
	// "stretch" without image_size is the default.
	mustLoader(t, newFake(5), options.Config{Images: options.Images{ImageResize: "stretch"}})
}
