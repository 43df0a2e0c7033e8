package plan

import (
	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/loader/internal/column"
	"github.com/goatnote-inc/robocache/loader/options"
	"github.com/goatnote-inc/robocache/video"
)

// chooseFrame sets the pixel format, dtype and size of a column's frames. The size may remain 0;
// probeSizes then reads it from the first frame.
func chooseFrame(c *column.ImageColumn, cfg *options.Config) {
	f, storedUnit := c.Feature, c.Feature.DepthUnit()
	c.Height, c.Width = f.Height, f.Width
	c.Spec.ChannelsFirst, c.Resize = true, cfg.ImageResize
	c.IsChannelsLast = cfg.ImageLayout == options.ChannelsLast
	switch {
	case f.Depth != nil && cfg.DepthUnit != "code":
		// Codes of video are finer than millimeters near the camera, so convert them in one step.
		chooseDepth(c, cfg, f.Depth)
	case storedUnit != "" && f.Depth == nil && (f.DType == robocache.Float32 ||
		storedUnit != string(cfg.DepthUnit) && cfg.DepthUnit != "code"):
		chooseDepth(c, cfg, &robocache.Depth{Unit: storedUnit})
	case f.Depth != nil || f.DType == robocache.Uint16:
		c.Spec.Pixel, c.OutDType = video.Gray16, robocache.Uint16
		if f.Depth != nil && c.IsVideo() {
			c.Unit = "" // codes
		}
	case !c.IsVideo() && f.DType == robocache.Float32 && f.Channels == 1:
		// The unit is unknown, so the image is not depth. Deliver its numbers as stored.
		c.Spec.Pixel, c.OutDType = video.DepthM, robocache.Float32
		c.Spec.Depth = &robocache.Depth{Unit: "m"}
	case cfg.ImageDType == "float32", cfg.Compat == "lerobot" && !c.IsVideo():
		// LeRobot's option return_uint8 applies to video only, so its still images are float32.
		c.Spec.Pixel, c.OutDType = video.RGBFloat32, robocache.Float32
	default:
		c.Spec.Pixel, c.OutDType = video.RGB8, robocache.Uint8
	}
	if column.Channels(c.Spec.Pixel) == 3 && cfg.HasFilter() {
		c.Transform, _ = cfg.Steps()
	} else {
		chooseSize(c, cfg)
	}
	c.SetSize(c.Height, c.Width)
}

// chooseSize sets the size to which frames are scaled while they are decoded.
func chooseSize(c *column.ImageColumn, cfg *options.Config) {
	c.Transform = nil
	if len(cfg.ImageSize) == 2 {
		c.Height, c.Width = cfg.ImageSize[0], cfg.ImageSize[1]
		c.Spec.Height, c.Spec.Width = c.Height, c.Width
	}
}

// chooseDepth sets a column to deliver depth in the configured unit.
func chooseDepth(c *column.ImageColumn, cfg *options.Config, d *robocache.Depth) {
	c.Spec.Pixel, c.Unit = video.DepthMM, "mm"
	if cfg.DepthUnit == "m" {
		c.Spec.Pixel, c.Unit = video.DepthM, "m"
	}
	c.Spec.Depth, c.OutDType = d, robocache.Float32
}
