package loader

import (
	"iter"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/loader/internal/frames"
	"github.com/goatnote-inc/robocache/video"
)

// imageColumn is frames: of video files, or still images of the dataset.
type imageColumn struct {
	*column
	still         bool
	spec          video.Spec // of decoded frames
	resize        Resize
	width, height int // before augmentation
	files         frames.Files
	device        video.DeviceMemory // that its frames are made on; nil: the host
	aug           *imageAug          // of colour frames
}

func (c *imageColumn) waits(n int) int { return n * c.steps }

// delivered returns the shape of a frame in the tensor: channels, height and width.
func (c *imageColumn) delivered() []int {
	if c.aug != nil {
		return []int{channels(c.spec.Pixel), c.aug.h, c.aug.w}
	}
	return []int{channels(c.spec.Pixel), c.height, c.width}
}

// keepBytes leaves the column's frames as the bytes that were decoded: a device does the rest.
func (c *imageColumn) keepBytes() {
	if c.aug != nil {
		c.out, c.outBytes = robocache.Uint8, c.FrameSize()
		return
	}
	c.spec.Pixel = video.RGB8
	c.cast(robocache.Uint8)
}

// onDevice reports whether the column's tensor is memory of a device.
func (c *column) onDevice() bool {
	i := c.image()
	return i != nil && i.device != nil
}

// imageColumn finds a column of frames by its key; nil if there is none.
func (src *dataSource) imageColumn(key string) *imageColumn {
	if c := src.column(key); c != nil {
		return c.image()
	}
	return nil
}

// imageColumns iterates over the columns of frames.
func (src *dataSource) imageColumns() iter.Seq[*imageColumn] {
	return func(yield func(*imageColumn) bool) {
		for _, c := range src.columns {
			if i := c.image(); i != nil && !yield(i) {
				return
			}
		}
	}
}

// chooseFrame settles what a decoded frame becomes. The size may still be 0: then the first frame says it (probe).
func chooseFrame(c *imageColumn, cfg *Config) {
	f, kept := c.feature, c.feature.DepthUnit()
	c.height, c.width = f.Height, f.Width
	c.spec.ChannelsFirst, c.resize = true, cfg.ImageResize
	if len(cfg.ImageSize) == 2 {
		c.height, c.width = cfg.ImageSize[0], cfg.ImageSize[1]
		c.spec.Height, c.spec.Width = c.height, c.width
	}
	switch {
	case f.Depth != nil && cfg.DepthUnit != "code":
		chooseDepth(c, cfg, f.Depth) // codes of video are finer than millimetres near the camera: they go to metres in one step
	case kept != "" && f.Depth == nil && (f.DType == robocache.Float32 || kept != string(cfg.DepthUnit) && cfg.DepthUnit != "code"):
		chooseDepth(c, cfg, &robocache.Depth{Unit: kept})
	case f.Depth != nil || f.DType == robocache.Uint16:
		c.spec.Pixel, c.out = video.Gray16, robocache.Uint16
		if f.Depth != nil && c.isVideo() {
			c.unit = "" // codes
		}
	case !c.isVideo() && f.DType == robocache.Float32 && f.Channels == 1: // of another unit, and so no depth: as it is kept
		c.spec.Pixel, c.spec.Depth, c.out = video.DepthM, &robocache.Depth{Unit: "m"}, robocache.Float32
	case cfg.ImageDType == "float32", cfg.Compat == "lerobot" && !c.isVideo(): // the reference's return_uint8 is for video alone
		c.spec.Pixel, c.out = video.RGBFloat32, robocache.Float32
	default:
		c.spec.Pixel, c.out = video.RGB8, robocache.Uint8
	}
	c.resized(c.height, c.width)
}

// chooseDepth makes frames those of depth, in the unit that is asked for.
func chooseDepth(c *imageColumn, cfg *Config, d *robocache.Depth) {
	c.spec.Pixel, c.unit = video.DepthMM, "mm"
	if cfg.DepthUnit == "m" {
		c.spec.Pixel, c.unit = video.DepthM, "m"
	}
	c.spec.Depth, c.out = d, robocache.Float32
}

// resized sets the size of frames.
func (c *imageColumn) resized(height, width int) {
	c.height, c.width = height, width
	c.elems = channels(c.spec.Pixel) * height * width
	c.cast(c.out)
}

func channels(p video.Pixel) int {
	if p == video.RGB8 || p == video.RGBFloat32 {
		return 3
	}
	return 1
}
