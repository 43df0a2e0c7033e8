package options

import (
	"fmt"

	"github.com/goatnote-inc/robocache"
)

// Resize selects how frames reach the size of ImageSize.
type Resize string

const (
	Stretch   Resize = ""          // one factor per axis
	Letterbox Resize = "letterbox" // one factor: the whole image, centered on zeros
	Crop      Resize = "crop"      // one factor: the image covers the size, its middle is kept
	// one factor: the smaller side becomes the one number of ImageSize
	SmallestSide Resize = "smallest_side"
)

// Layout selects the order of the axes of images.
type Layout string

const (
	ChannelsFirst Layout = "" // default
	ChannelsLast  Layout = "hwc"
)

// checkResize rejects unknown values of image_resize and image_layout. It sets the names of the
// defaults to "".
func (c *Config) checkResize() error {
	if c.ImageLayout == "chw" {
		c.ImageLayout = ChannelsFirst
	}
	if c.ImageLayout != ChannelsFirst && c.ImageLayout != ChannelsLast {
		return Misuse("image_layout", `"chw" or "hwc"`, string(c.ImageLayout))
	}
	if c.ImageResize == "stretch" {
		c.ImageResize = Stretch
	}
	switch c.ImageResize {
	case Stretch, Letterbox, Crop, SmallestSide:
		return nil
	}
	want := `"stretch", "letterbox", "crop" or "smallest_side"`
	return Misuse("image_resize", want, string(c.ImageResize))
}

// checkGeometry rejects sizes, rules, filters and steps that do not fit each other.
func (c *Config) checkGeometry() error {
	if err := c.checkSteps(); err != nil {
		return err
	}
	sides := 2
	if c.ImageResize == SmallestSide {
		sides = 1
	}
	option := robocache.Option("image_resize", string(c.ImageResize))
	switch {
	case len(c.ImageSize) == sides && sides == 1 && c.ImageFilter == "":
		return Misuse(option, robocache.Option("image_filter"), "none")
	case len(c.ImageSize) == sides:
		return nil
	case len(c.ImageSize) > 0:
		want := "[height, width], or one number with " +
			robocache.Option("image_resize", string(SmallestSide))
		return Misuse("image_size", want, fmt.Sprint(c.ImageSize))
	case c.ImageResize == Stretch && c.ImageFilter == "":
		return nil
	case c.ImageResize == Stretch:
		option = robocache.Option("image_filter", string(c.ImageFilter))
		if len(c.Transform) > 0 {
			return nil
		}
	}
	want := robocache.Option("image_size") + " with a height and a width"
	e := Misuse(option, want, "none").(*robocache.Error)
	e.Hint = "Leave " + option + " out to keep the size of the images"
	return e
}
