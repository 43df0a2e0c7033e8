package loader

import (
	"slices"
	"sync"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/loader/internal/options"
	"github.com/goatnote-inc/robocache/video"
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
	return options.Misuse("image_resize", `"stretch", "letterbox" or "crop"`, string(c.ImageResize))
}

// needsSize refuses a geometry where nothing says the size.
func (c *Config) needsSize() error {
	if c.ImageResize == Stretch || len(c.ImageSize) == 2 {
		return nil
	}
	e := options.Misuse("image_resize="+string(c.ImageResize), "image_size=(height, width)", "none").(*robocache.Error)
	e.Hint = "without image_size images keep their size"
	return e
}

// scaled is the size that a whole image of w × h is scaled to on its way to a column, and where its first pixel lies there: inside (letterbox), or
// outside (crop: at or above, at or left of the first). Halves of a pixel of the scaled side go up, of the place down.
func (c *imageColumn) scaled(w, h int) (sw, sh, left, top int) {
	sw, sh = c.width, c.height
	if c.resize == Stretch || w <= 0 || h <= 0 {
		return sw, sh, 0, 0
	}
	// The width decides where the image is wider than the target and must fit, or narrower and must cover.
	if wider := int64(w)*int64(c.height) >= int64(h)*int64(c.width); wider == (c.resize == Letterbox) {
		sh = max(1, (2*h*c.width+w)/(2*w))
	} else {
		sw = max(1, (2*w*c.height+h)/(2*h))
	}
	if c.resize == Letterbox {
		return sw, sh, (c.width - sw) / 2, (c.height - sh) / 2
	}
	return sw, sh, -((sw - c.width) / 2), -((sh - c.height) / 2)
}

// draft is a frame on its way into a batch: decoded as spec says into memory of its own, where something follows that decoding does not do
// (the place in a letterbox, normalisation), else into the batch.
type draft struct {
	spec video.Spec
	into []byte

	c         *imageColumn
	dst       []byte
	mem       []byte
	left, top int
	sw, sh    int
	moves     bool
}

var drafts = sync.Pool{New: func() any { return new(draft) }}

// draft begins a frame of w × h pixels that becomes dst. It ends with done. A column without a size of its own has that of its first frame.
func (c *imageColumn) draft(w, h int, dst []byte) (*draft, error) {
	if c.spec.Width == 0 && (w != c.width || h != c.height) {
		return nil, sizeError(c, w, h)
	}
	d := drafts.Get().(*draft)
	d.spec, d.c, d.dst, d.into, d.moves = c.spec, c, dst, dst, false
	if d.sw, d.sh, d.left, d.top = c.scaled(w, h); d.sw != c.width || d.sh != c.height {
		if int64(d.sw)*int64(d.sh) > video.MaxImagePixels {
			return nil, d.done(robocache.ResourceLimit("loader", robocache.Where{"stream": c.key}, "image_resize=%s scales the image beyond 256 Mpixel", string(c.resize)).
				Expected("", dimensions(w, h)))
		}
		d.spec.Width, d.spec.Height, d.moves = d.sw, d.sh, true
	}
	if c.norm != nil && d.spec.Pixel == video.RGBFloat32 {
		d.spec.Pixel = video.RGB8
	}
	if c.norm != nil || d.moves {
		d.into = d.room(d.sw, d.sh)
	}
	return d, nil
}

// room is memory for w × h pixels as they are decoded.
func (d *draft) room(w, h int) []byte {
	n := w * h * channels(d.spec.Pixel) * pixelBytes(d.spec.Pixel)
	d.mem = slices.Grow(d.mem[:0], n)[:n]
	return d.mem
}

// done does what decoding did not; nothing, where the frame could not be decoded.
func (d *draft) done(failed error) error {
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
		if c.norm != nil {
			placed := drafts.Get().(*draft)
			defer drafts.Put(placed)
			placed.spec = d.spec
			to = placed.room(c.width, c.height)
		}
		d.place(to, from)
		from = to
	}
	if c.norm == nil {
		return nil
	}
	e, dtype := c.norm.epilogue(c.plane(c.norm)), robocache.Float32
	if c.spec.Pixel == video.RGBFloat32 {
		e.Unit, dtype = true, robocache.Uint8
	}
	x := applies.Get().(*applied)
	x.part(d.dst, robocache.Float32, from, dtype, c.elems, e)
	return x.run()
}

// place copies what of the scaled image lies in the target; the rest of the target is zeros.
func (d *draft) place(to, from []byte) {
	size := pixelBytes(d.spec.Pixel)
	w, h := d.c.width, d.c.height
	x0, x1 := max(d.left, 0), min(d.left+d.sw, w)
	for k := range channels(d.spec.Pixel) {
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
