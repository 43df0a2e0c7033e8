package column

import (
	"iter"
	"sync"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/loader/internal/frames"
	"github.com/goatnote-inc/robocache/loader/options"
	"github.com/goatnote-inc/robocache/video"
)

// ImageColumn holds frames of video files, or still images of the dataset.
type ImageColumn struct {
	*Column
	IsStill       bool
	Spec          video.Spec // of decoded frames
	Resize        options.Resize
	Width, Height int // before augmentation
	// steps that every frame passes before augmentation; nil: it is scaled while it is decoded
	Transform []options.ImageStep
	// size of the first frame, on which Transform operates
	SourceWidth, SourceHeight int
	IsChannelsLast            bool
	FrameFiles                frames.Files
	FrameDevice               video.DeviceMemory // device that renders its frames; nil: the host
	Augment                   *ImageAugment      // nil: not augmented

	shared     *ImageColumn // whose frames the column uses; nil: its own
	makeStream sync.Once
	stream     *frames.Stream // FrameStream; made at first use
}

func (c *ImageColumn) Waits(n int) int { return n * c.Steps }

// DeliveredShape returns the shape of a frame in the tensor.
func (c *ImageColumn) DeliveredShape() []int {
	h, w := c.Height, c.Width
	if c.Augment != nil {
		h, w = c.Augment.OutHeight, c.Augment.OutWidth
	}
	if c.IsChannelsLast {
		return []int{h, w, Channels(c.Spec.Pixel)}
	}
	return []int{Channels(c.Spec.Pixel), h, w}
}

// KeepStoredBytes sets the column to deliver decoded bytes for a raw batch. A device finishes them.
func (c *ImageColumn) KeepStoredBytes() {
	if c.Augment != nil {
		c.OutDType, c.OutBytes = robocache.Uint8, c.frameSize()
		return
	}
	c.Spec.Pixel = video.RGB8
	c.SetDType(robocache.Uint8)
}

// IsOnDevice reports whether the column's tensor is in device memory.
func (c *Column) IsOnDevice() bool {
	i := c.Image()
	return i != nil && i.FrameDevice != nil
}

// ImageColumn returns the image column of a key, or nil.
func (src *DataSource) ImageColumn(key string) *ImageColumn {
	if c := src.Column(key); c != nil {
		return c.Image()
	}
	return nil
}

// ImageColumns iterates over the image columns and their alternatives.
func (src *DataSource) ImageColumns() iter.Seq[*ImageColumn] {
	return func(yield func(*ImageColumn) bool) {
		for _, c := range src.Columns {
			if c.Image() == nil {
				continue
			}
			for _, one := range c.Alternatives() {
				if !yield(one.Image()) {
					return
				}
			}
		}
	}
}

// SetSize sets the size of frames before augmentation.
func (c *ImageColumn) SetSize(height, width int) {
	c.Height, c.Width = height, width
	c.Elements = Channels(c.Spec.Pixel) * height * width
	c.SetDType(c.OutDType)
}

// SetSourceSize sets the size of recorded frames, and with it the size after Transform.
func (c *ImageColumn) SetSourceSize(height, width int) (err error) {
	c.SourceWidth, c.SourceHeight = width, height
	for i := range c.Transform {
		if width, height, err = StepSize(&c.Transform[i], width, height); err != nil {
			return err
		}
	}
	c.SetSize(height, width)
	return nil
}

// Channels returns the number of channels of a pixel format.
func Channels(p video.Pixel) int {
	if p == video.RGB8 || p == video.RGBFloat32 {
		return 3
	}
	return 1
}
