package inspect

import (
	"encoding/binary"
	"image"
	"math"
	"slices"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/video"
)

// MaxSide is the largest width and height of an image that Paint makes.
const MaxSide = 2048

// Painter converts frames to images for display. It reuses its buffers.
type Painter struct {
	raw []byte
	img *image.RGBA
}

// Paint draws the frame of a row with the given width, or its own if that is smaller. It returns
// nil if the row has no frame. pic is nil for a still image. Depth is shown in colours. The image
// is valid until the next call.
func (p *Painter) Paint(
	f *robocache.Feature,
	ref *robocache.FrameRef,
	pic video.Frame,
	width int,
) (_ *image.RGBA, err error) {
	if ref.Missing {
		return nil, nil
	}
	var w, h int
	still := video.StillInfo{}
	if pic != nil {
		w, h = pic.Size()
	} else {
		if still, err = video.ImageSize(ref); err != nil {
			return nil, err
		}
		w, h = still.Width, still.Height
	}
	convert := func(spec *video.Spec) ([]byte, error) {
		if pic != nil {
			var err error
			if p.raw, err = video.ConvertTo(p.raw, pic, spec); err != nil {
				return nil, err
			}
			return p.raw, nil
		}
		n, err := video.StillBytes(still, spec)
		if err != nil {
			return nil, err
		}
		p.raw = slices.Grow(p.raw[:0], n)[:n]
		if err := video.DecodeImage(ref, spec, p.raw); err != nil {
			return nil, err
		}
		return p.raw, nil
	}
	tw := min(width, w, MaxSide)
	th := max(1, (h*tw+w/2)/w)
	if th > MaxSide {
		tw, th = max(1, tw*MaxSide/th), MaxSide
	}
	if p.img == nil || p.img.Rect.Dx() != tw || p.img.Rect.Dy() != th {
		p.img = image.NewRGBA(image.Rect(0, 0, tw, th))
	}
	pix := p.img.Pix
	if deep := f.Depth != nil ||
		pic == nil && still.DType != robocache.Uint8; deep &&
		(pic != nil || still.Channels == 1) {
		depth, err := convert(&video.Spec{Pixel: video.DepthM, Depth: f.Depth})
		if err != nil {
			return nil, err
		}
		paintDepth(depth, w, h, tw, th, pix)
		return p.img, nil
	}
	rgb, err := convert(&video.Spec{Width: tw, Height: th, Pixel: video.RGB8})
	if err != nil {
		return nil, err
	}
	for i := range tw * th {
		pix[4*i], pix[4*i+1], pix[4*i+2], pix[4*i+3] = rgb[3*i], rgb[3*i+1], rgb[3*i+2], 255
	}
	return p.img, nil
}

// paintDepth colours depth in metres. Near is warm and bright, far is blue and dark, and pixels
// without a measurement are black. Pixels are sampled, not averaged.
func paintDepth(raw []byte, w, h, tw, th int, pix []byte) {
	at := make([]float64, tw*th)
	var known []float64
	for y := range th {
		for x := range tw {
			v := float64(
				math.Float32frombits(binary.LittleEndian.Uint32(raw[4*((y*h/th)*w+x*w/tw):])),
			)
			at[y*tw+x] = v
			if v > 0 && v-v == 0 {
				known = append(known, v)
			}
		}
	}
	slices.Sort(known)
	near, far := 0.0, 1.0
	if n := len(known); n > 0 {
		near, far = known[n/50], known[n-1-n/50]
	}
	for i, v := range at {
		var r, g, b float64
		if v > 0 && v-v == 0 {
			z := 1 - min(max((v-near)/max(far-near, 1e-9), 0), 1) // 1 is near
			r, g, b = 40+215*min(1, 1.6*z), 30+200*z*z, 60+
				150*math.Sin(math.Pi*(0.25+0.5*(1-z)))*(1-0.6*z)
		}
		pix[4*i], pix[4*i+1], pix[4*i+2], pix[4*i+3] = byte(r), byte(g), byte(b), 255
	}
}
