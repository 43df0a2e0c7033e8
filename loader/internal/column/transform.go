package column

import (
	"math"
	"slices"
	"sync"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/kernel/resize"
	"github.com/goatnote-inc/robocache/loader/options"
)

// StepSize returns the size of a w × h image after a step.
func StepSize(s *options.ImageStep, w, h int) (width, height int, err error) {
	switch {
	case s.Letterbox:
		return max(w, h), max(w, h), nil
	case s.SmallestSide != 0:
		factor := float64(s.SmallestSide) / float64(min(w, h))
		width = max(1, int(math.RoundToEven(float64(w)*factor)))
		height = max(1, int(math.RoundToEven(float64(h)*factor)))
	case s.Resize != nil:
		return s.Resize[1], s.Resize[0], nil
	default:
		width, height = s.CenterCrop.PixelsOf(w, h)
		if width > w || height > h {
			return 0, 0, robocache.Misuse("loader", nil, "image_transform: center_crop").
				Expected("at most the image, "+formatSize(w, h), formatSize(width, height))
		}
	}
	if max(width, height) > resize.MaxSide {
		return 0, 0, robocache.ResourceLimit("loader", nil, "image_transform").
			Expected("at most 32768 pixels per side", formatSize(width, height))
	}
	return width, height, nil
}

// scaledInside returns the size to which a w × h image is scaled to lie inside or to cover an area,
// and the position of its first pixel there. The size inside is rounded down, the size that covers
// is rounded to the nearest.
func scaledInside(fit options.Resize, w, h, areaWidth, areaHeight int) (sw, sh, left, top int) {
	across, down := float64(w)/float64(areaWidth), float64(h)/float64(areaHeight)
	switch fit {
	case options.Letterbox:
		ratio := max(across, down)
		sw, sh = max(1, int(float64(w)/ratio)), max(1, int(float64(h)/ratio))
		return sw, sh, (areaWidth - sw) / 2, (areaHeight - sh) / 2
	case options.Crop:
		ratio := min(across, down)
		sw = max(areaWidth, int(math.Round(float64(w)/ratio)))
		sh = max(areaHeight, int(math.Round(float64(h)/ratio)))
		return sw, sh, -((sw - areaWidth) / 2), -((sh - areaHeight) / 2)
	}
	return areaWidth, areaHeight, 0, 0
}

// stepBuffers holds the results of all steps but the last. Steps use the two images in turn.
type stepBuffers struct{ images [2][]byte }

var stepBufferPool = sync.Pool{New: func() any { return new(stepBuffers) }}

// transformImage runs the column's steps on a w × h image of three planes and writes the result to
// dst. It returns an error if the result does not have the size of the column.
func (c *ImageColumn) transformImage(dst, src []byte, w, h int) error {
	buffers := stepBufferPool.Get().(*stepBuffers)
	defer stepBufferPool.Put(buffers)
	sourceWidth, sourceHeight := w, h
	for i := range c.Transform {
		s := &c.Transform[i]
		width, height, err := StepSize(s, w, h)
		if err != nil {
			return err
		}
		to := dst
		if i < len(c.Transform)-1 {
			buffer := &buffers.images[i%2]
			*buffer = slices.Grow((*buffer)[:0], 3*width*height)[:3*width*height]
			to = *buffer
		} else if width != c.Width || height != c.Height {
			return SizeError(c, sourceWidth, sourceHeight)
		}
		if err := runStep(s, to, src, w, h, width, height); err != nil {
			return err
		}
		src, w, h = to, width, height
	}
	if len(c.Transform) == 0 {
		copy(dst, src)
	}
	return nil
}

// runStep applies one step to an image of three planes. src has the size w × h, and dst has the
// size width × height.
func runStep(s *options.ImageStep, dst, src []byte, w, h, width, height int) error {
	if s.Letterbox || s.CenterCrop != nil {
		left, top := (width-w)/2, (height-h)/2 // negative: pixels that a crop removes
		placePlanes(dst, src, w, h, width, height, left, top)
		return nil
	}
	sw, sh, left, top := scaledInside(s.Fit, w, h, width, height)
	scaler, err := resize.New(s.Filter, h, w, sh, sw)
	if err != nil {
		return err
	}
	part := resize.Plane{
		Row: width, Step: 1,
		Left: max(-left, 0), Top: max(-top, 0),
		Width: min(sw, width), Height: min(sh, height),
	}
	if sw < width || sh < height {
		clear(dst)
	}
	for k := range 3 {
		part.Pix = dst[(k*height+max(top, 0))*width+max(left, 0):]
		scaler.Plane(part, src[k*w*h:], w)
	}
	return nil
}

// placePlanes copies a w × h image of three planes into a width × height image. left and top are
// the position of its first pixel there. Pixels outside dst are omitted, and uncovered pixels of
// dst are zero.
func placePlanes(dst, src []byte, w, h, width, height, left, top int) {
	if w < width || h < height {
		clear(dst)
	}
	n := min(w, width)
	for k := range 3 {
		for y := max(top, 0); y < min(top+h, height); y++ {
			from := (k*h+y-top)*w + max(-left, 0)
			copy(dst[(k*height+y)*width+max(left, 0):][:n], src[from:])
		}
	}
}
