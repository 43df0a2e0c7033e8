package column

import (
	"slices"
	"sync"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/loader/internal/options"
	"github.com/goatnote-inc/robocache/video"
)

// scaled is the size that a whole image of w × h is scaled to on its way to a column, and where its first pixel lies there: inside (letterbox), or
// outside (crop: at or above, at or left of the first). Halves of a pixel of the scaled side go up, of the place down.
func (c *ImageColumn) scaled(w, h int) (sw, sh, left, top int) {
	sw, sh = c.Width, c.Height
	if c.Resize == options.Stretch || w <= 0 || h <= 0 {
		return sw, sh, 0, 0
	}
	// The width decides where the image is wider than the target and must fit, or narrower and must cover.
	if wider := int64(w)*int64(c.Height) >= int64(h)*int64(c.Width); wider == (c.Resize == options.Letterbox) {
		sh = max(1, (2*h*c.Width+w)/(2*w))
	} else {
		sw = max(1, (2*w*c.Height+h)/(2*h))
	}
	if c.Resize == options.Letterbox {
		return sw, sh, (c.Width - sw) / 2, (c.Height - sh) / 2
	}
	return sw, sh, -((sw - c.Width) / 2), -((sh - c.Height) / 2)
}

// draft is a frame on its way into a batch: decoded as spec says into memory of its own, where something follows that decoding does not do
// (the place in a letterbox, normalisation), else into the batch.
type draft struct {
	Spec video.Spec
	into []byte

	c         *ImageColumn
	dst       []byte
	mem       []byte
	left, top int
	sw, sh    int
	moves     bool
}

var drafts = sync.Pool{New: func() any { return new(draft) }}

// draft begins a frame of w × h pixels that becomes dst. It ends with done. A column without a size of its own has that of its first frame.
func (c *ImageColumn) draft(w, h int, dst []byte) (*draft, error) {
	if c.Spec.Width == 0 && (w != c.Width || h != c.Height) {
		return nil, SizeError(c, w, h)
	}
	d := drafts.Get().(*draft)
	d.Spec, d.c, d.dst, d.into, d.moves = c.Spec, c, dst, dst, false
	if d.sw, d.sh, d.left, d.top = c.scaled(w, h); d.sw != c.Width || d.sh != c.Height {
		if int64(d.sw)*int64(d.sh) > video.MaxImagePixels {
			return nil, d.Done(robocache.ResourceLimit("loader", robocache.Where{"stream": c.Key}, "%s scales the image beyond 256 Mpixel", robocache.Option("image_resize", string(c.Resize))).
				Expected("", dimensions(w, h)))
		}
		d.Spec.Width, d.Spec.Height, d.moves = d.sw, d.sh, true
	}
	if c.Norm != nil && d.Spec.Pixel == video.RGBFloat32 {
		d.Spec.Pixel = video.RGB8
	}
	if c.Norm != nil || d.moves {
		d.into = d.room(d.sw, d.sh)
	}
	return d, nil
}

// room is memory for w × h pixels as they are decoded.
func (d *draft) room(w, h int) []byte {
	n := w * h * Channels(d.Spec.Pixel) * pixelBytes(d.Spec.Pixel)
	d.mem = slices.Grow(d.mem[:0], n)[:n]
	return d.mem
}

// Done does what decoding did not; nothing, where the frame could not be decoded.
func (d *draft) Done(failed error) error {
	defer func() {
		d.dst, d.into, d.c = nil, nil, nil
		drafts.Put(d)
	}()
	c, from := d.c, d.into
	if failed != nil {
		return failed
	}
	if d.moves {
		to := d.dst
		if c.Norm != nil {
			placed := drafts.Get().(*draft)
			defer drafts.Put(placed)
			placed.Spec = d.Spec
			to = placed.room(c.Width, c.Height)
		}
		d.place(to, from)
		from = to
	}
	if c.Norm == nil {
		return nil
	}
	e, dtype := c.Norm.Epilogue(c.plane(c.Norm)), robocache.Float32
	if c.Spec.Pixel == video.RGBFloat32 {
		e.Unit, dtype = true, robocache.Uint8
	}
	x := Applies.Get().(*Applied)
	x.Part(d.dst, robocache.Float32, from, dtype, c.Elements, e)
	return x.Run()
}

// place copies what of the scaled image lies in the target; the rest of the target is zeros.
func (d *draft) place(to, from []byte) {
	size := pixelBytes(d.Spec.Pixel)
	w, h := d.c.Width, d.c.Height
	x0, x1 := max(d.left, 0), min(d.left+d.sw, w)
	for k := range Channels(d.Spec.Pixel) {
		for y := range h {
			row := to[(k*h+y)*w*size:][:w*size]
			sy := y - d.top
			if sy < 0 || sy >= d.sh {
				clear(row)
				continue
			}
			clear(row[:x0*size])
			copy(row[x0*size:x1*size], from[((k*d.sh+sy)*d.sw+x0-d.left)*size:])
			clear(row[x1*size:])
		}
	}
}

func pixelBytes(p video.Pixel) int {
	switch p {
	case video.RGB8:
		return 1
	case video.Gray16:
		return 2
	}
	return 4
}
