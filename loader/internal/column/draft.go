package column

import (
	"slices"
	"sync"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/loader/options"
	"github.com/goatnote-inc/robocache/video"
)

// scaledSize returns the size to which a w × h image is scaled, and the position of its first pixel
// in the column's image. The position is positive or zero inside a letterbox and negative or zero
// for a crop. Half pixels of the size are rounded up, those of the position down.
func (c *ImageColumn) scaledSize(w, h int) (sw, sh, left, top int) {
	sw, sh = c.Width, c.Height
	if c.Resize == options.Stretch || w <= 0 || h <= 0 {
		return sw, sh, 0, 0
	}
	// A letterbox shows the whole image, so the widths of a wide image must agree. A crop fills the
	// whole frame, so the widths of a narrow image must.
	isWide := int64(w)*int64(c.Height) >= int64(h)*int64(c.Width)
	isLetterbox := c.Resize == options.Letterbox
	if isWide == isLetterbox {
		sh = max(1, (2*h*c.Width+w)/(2*w))
	} else {
		sw = max(1, (2*w*c.Height+h)/(2*h))
	}
	if isLetterbox {
		return sw, sh, (c.Width - sw) / 2, (c.Height - sh) / 2
	}
	return sw, sh, -((sw - c.Width) / 2), -((sh - c.Height) / 2)
}

// draft is one frame that is rendered into a batch. The frame is decoded as Spec states into the
// memory into. This is the memory of the batch, or a buffer if placement or normalization follows.
type draft struct {
	Spec video.Spec
	into []byte

	column                    *ImageColumn
	dst                       []byte // the frame's memory in the batch
	buffer                    []byte
	left, top                 int
	scaledWidth, scaledHeight int
	isPlaced                  bool // the scaled image is copied to left, top of the column's image
}

var drafts = sync.Pool{New: func() any { return new(draft) }}

// beginDraft begins a frame of w × h pixels whose result is written to dst. The caller must call
// Done. A column without a configured size only accepts frames of its own size.
func (c *ImageColumn) beginDraft(w, h int, dst []byte) (*draft, error) {
	if c.Spec.Width == 0 && c.Transform == nil && (w != c.Width || h != c.Height) {
		return nil, SizeError(c, w, h)
	}
	d := drafts.Get().(*draft)
	d.Spec, d.column, d.isPlaced = c.Spec, c, false
	d.dst, d.into = dst, dst
	if c.Transform != nil {
		if int64(w)*int64(h) > video.MaxImagePixels {
			return nil, d.Done(SizeError(c, w, h))
		}
		d.Spec.Pixel, d.scaledWidth, d.scaledHeight = video.RGB8, w, h
		d.into = d.pixelBuffer(w, h)
		return d, nil
	}
	d.scaledWidth, d.scaledHeight, d.left, d.top = c.scaledSize(w, h)
	if d.scaledWidth != c.Width || d.scaledHeight != c.Height {
		if int64(d.scaledWidth)*int64(d.scaledHeight) > video.MaxImagePixels {
			err := robocache.ResourceLimit("loader", robocache.Where{"stream": c.Key},
				"%s scales the image beyond 256 Mpixel",
				robocache.Option("image_resize", string(c.Resize))).
				Expected("", formatSize(w, h))
			return nil, d.Done(err)
		}
		d.Spec.Width, d.Spec.Height, d.isPlaced = d.scaledWidth, d.scaledHeight, true
	}
	if c.Norm != nil && d.Spec.Pixel == video.RGBFloat32 {
		d.Spec.Pixel = video.RGB8
	}
	if c.Norm != nil || d.isPlaced {
		d.into = d.pixelBuffer(d.scaledWidth, d.scaledHeight)
	}
	return d, nil
}

// pixelBuffer returns memory for w × h decoded pixels. It is valid until the next call or Done.
func (d *draft) pixelBuffer(w, h int) []byte {
	n := w * h * Channels(d.Spec.Pixel) * pixelBytes(d.Spec.Pixel)
	d.buffer = slices.Grow(d.buffer[:0], n)[:n]
	return d.buffer
}

// Done places and normalizes the decoded frame and recycles d. If decoding failed, Done returns its
// error.
func (d *draft) Done(failed error) error {
	defer func() {
		d.dst, d.into, d.column = nil, nil, nil
		drafts.Put(d)
	}()
	c, from := d.column, d.into
	if failed != nil {
		return failed
	}
	isFinal := c.Norm == nil && (c.Transform == nil || c.Spec.Pixel == video.RGB8)
	if d.isPlaced || c.Transform != nil {
		to := d.dst
		if !isFinal {
			placed := drafts.Get().(*draft)
			defer drafts.Put(placed)
			placed.Spec = d.Spec
			to = placed.pixelBuffer(c.Width, c.Height)
		}
		if c.Transform == nil {
			d.placeImage(to, from)
		} else if err := c.transformImage(to, from, d.scaledWidth, d.scaledHeight); err != nil {
			return err
		}
		from = to
	}
	if isFinal {
		return nil
	}
	e, dtype := c.Norm.Epilogue(c.planeElements(c.Norm)), robocache.Float32
	if c.Spec.Pixel == video.RGBFloat32 {
		e.Unit, dtype = true, robocache.Uint8
	}
	x := Applies.Get().(*Applied)
	x.Part(d.dst, robocache.Float32, from, dtype, c.Elements, e)
	return x.Run()
}

// placeImage copies the visible part of the scaled image into the target and sets the rest to zero.
func (d *draft) placeImage(to, from []byte) {
	size := pixelBytes(d.Spec.Pixel)
	w, h := d.column.Width, d.column.Height
	left, right := max(d.left, 0), min(d.left+d.scaledWidth, w) // visible columns of the target
	for k := range Channels(d.Spec.Pixel) {
		for y := range h {
			row := to[(k*h+y)*w*size:][:w*size]
			sourceY := y - d.top
			if sourceY < 0 || sourceY >= d.scaledHeight {
				clear(row)
				continue
			}
			source := from[(k*d.scaledHeight+sourceY)*d.scaledWidth*size:]
			clear(row[:left*size])
			copy(row[left*size:right*size], source[(left-d.left)*size:])
			clear(row[right*size:])
		}
	}
}

// pixelBytes returns the bytes of one channel of a pixel.
func pixelBytes(p video.Pixel) int {
	switch p {
	case video.RGB8:
		return 1
	case video.Gray16:
		return 2
	}
	return 4
}
