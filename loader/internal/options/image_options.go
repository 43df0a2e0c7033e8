package options

import (
	"github.com/goatnote-inc/robocache"
)

// Resize says how an image that has another shape than image_size comes to it.
type Resize string

const (
	Stretch   Resize = ""          // each axis by its own factor
	Letterbox Resize = "letterbox" // the whole image by one factor, in the middle, the rest zeros
	Crop      Resize = "crop"      // by one factor so that it covers, its middle taken
)

func (c *Config) checkResize() error {
	if c.ImageResize == "stretch" {
		c.ImageResize = Stretch
	}
	if c.ImageResize == Stretch || c.ImageResize == Letterbox || c.ImageResize == Crop {
		return nil
	}
	return Misuse("image_resize", `"stretch", "letterbox" or "crop"`, string(c.ImageResize))
}

// needsSize refuses a geometry where nothing says the size.
func (c *Config) needsSize() error {
	if c.ImageResize == Stretch || len(c.ImageSize) == 2 {
		return nil
	}
	e := Misuse(robocache.Option("image_resize", string(c.ImageResize)), robocache.Option("image_size")+" with a height and a width", "none").(*robocache.Error)
	e.Hint = "Leave " + robocache.Option("image_resize") + " out to keep the size of the images"
	return e
}
