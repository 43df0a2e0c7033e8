package column

import (
	"iter"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/loader/internal/frames"
	"github.com/goatnote-inc/robocache/loader/internal/options"
	"github.com/goatnote-inc/robocache/video"
)

// ImageColumn is frames: of video files, or still images of the dataset.
type ImageColumn struct {
	*Column
	IsStill       bool
	Spec          video.Spec // of decoded frames
	Resize        options.Resize
	Width, Height int // before augmentation
	FrameFiles    frames.Files
	FrameDevice   video.DeviceMemory // that its frames are made on; nil: the host
	Augment       *ImageAugment      // of colour frames
}

func (c *ImageColumn) Waits(n int) int { return n * c.Steps }

// DeliveredShape returns the shape of a frame in the tensor: channels, height and width.
func (c *ImageColumn) DeliveredShape() []int {
	if c.Augment != nil {
		return []int{Channels(c.Spec.Pixel), c.Augment.Height, c.Augment.Width}
	}
	return []int{Channels(c.Spec.Pixel), c.Height, c.Width}
}

// KeepStoredBytes leaves the column's frames as the bytes that were decoded: a device does the rest.
func (c *ImageColumn) KeepStoredBytes() {
	if c.Augment != nil {
		c.OutDType, c.OutBytes = robocache.Uint8, c.frameSize()
		return
	}
	c.Spec.Pixel = video.RGB8
	c.SetDType(robocache.Uint8)
}

// IsOnDevice reports whether the column's tensor is memory of a device.
func (c *Column) IsOnDevice() bool {
	i := c.Image()
	return i != nil && i.FrameDevice != nil
}

// ImageColumn finds a column of frames by its key; nil if there is none.
func (src *DataSource) ImageColumn(key string) *ImageColumn {
	if c := src.Column(key); c != nil {
		return c.Image()
	}
	return nil
}

// ImageColumns iterates over the columns of frames.
func (src *DataSource) ImageColumns() iter.Seq[*ImageColumn] {
	return func(yield func(*ImageColumn) bool) {
		for _, c := range src.Columns {
			if i := c.Image(); i != nil && !yield(i) {
				return
			}
		}
	}
}

// SetSize sets the size of frames.
func (c *ImageColumn) SetSize(height, width int) {
	c.Height, c.Width = height, width
	c.Elements = Channels(c.Spec.Pixel) * height * width
	c.SetDType(c.OutDType)
}

func Channels(p video.Pixel) int {
	if p == video.RGB8 || p == video.RGBFloat32 {
		return 3
	}
	return 1
}
