package options

import (
	"github.com/goatnote-inc/robocache"
)

// Resize selects how frames reach the size of ImageSize.
type Resize string

const (
	Stretch   Resize = ""          // one factor per axis
	Letterbox Resize = "letterbox" // one factor: the whole image, centered on zeros
	Crop      Resize = "crop"      // one factor: the image covers the size, its middle is kept
)

// checkResize rejects unknown values of image_resize.
func (c *Config) checkResize() error {
	if c.ImageResize == "stretch" {
		c.ImageResize = Stretch
	}
	if c.ImageResize == Stretch || c.ImageResize == Letterbox || c.ImageResize == Crop {
		return nil
	}
	return Misuse("image_resize", `"stretch", "letterbox" or "crop"`, string(c.ImageResize))
}

// checkGeometry rejects image_resize without image_size.
func (c *Config) checkGeometry() error {
	if c.ImageResize == Stretch || len(c.ImageSize) == 2 {
		return nil
	}
	option := robocache.Option("image_resize", string(c.ImageResize))
	want := robocache.Option("image_size") + " with a height and a width"
	e := Misuse(option, want, "none").(*robocache.Error)
	e.Hint = "Leave " + robocache.Option("image_resize") + " out to keep the size of the images"
	return e
}
