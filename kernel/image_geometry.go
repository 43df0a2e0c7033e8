package kernel

import (
	"math"
	"slices"

	"github.com/goatnote-inc/robocache/kernel/resize"
)

// ImageScale states how a crop is scaled. An empty Filter keeps its size.
type ImageScale struct {
	Filter        resize.Filter
	Height, Width int // of the result
}

// ResultSize returns the size of the result for images of the given size.
func (a *ImageAugment) ResultSize(height, width int) (h, w int) {
	if a.Scale.Filter != "" {
		return a.Scale.Height, a.Scale.Width
	}
	return a.Size(height, width)
}

// Form returns the form of the results for images of the given size, without a table.
func (a *ImageAugment) Form(height, width int) ImageForm {
	h, w := a.Size(height, width)
	return ImageForm{Scale: a.Scale, Crop: [2]int{h, w}, Rotates: a.Rotation != nil}
}

// setRotation makes the draw rotate the image counterclockwise.
func (d *ImageDraw) setRotation(degrees float64) {
	sin, cos := math.Sincos(degrees * math.Pi / 180)
	d.Rotated = 1
	d.Cos, d.Sin = int32(math.RoundToEven(cos*65536)), int32(math.RoundToEven(sin*65536))
}

// transformImage returns the crop of an image [3, H, W], scaled and rotated, as [3, h, w]. The
// result is valid until scratch is used again.
func (f *ImageForm) transformImage(
	scratch *imageRows,
	src []byte,
	d *ImageDraw,
	size [4]int,
) []byte {
	H, W, h, w := size[0], size[1], size[2], size[3]
	cropHeight, cropWidth := h, w
	if f.Scale.Filter != "" {
		cropHeight, cropWidth = f.Crop[0], f.Crop[1]
	}
	image := func(i, height, width int) []byte { // memory of image i of scratch
		scratch.images[i] = slices.Grow(scratch.images[i][:0], 3*height*width)[:3*height*width]
		return scratch.images[i]
	}
	out := image(0, cropHeight, cropWidth)
	for c := range 3 {
		for y := range cropHeight {
			row := src[(c*H+min(max(int(d.Y)+y, 0), H-1))*W:][:W]
			cropRow(out[(c*cropHeight+y)*cropWidth:][:cropWidth], row, int(d.X), false)
		}
	}
	if f.Scale.Filter != "" {
		// ImageAugment.Check and ImagePart.Check reject what New rejects.
		scaler, _ := resize.New(f.Scale.Filter, cropHeight, cropWidth, h, w)
		scaled := image(1, h, w)
		for c := range 3 {
			to := resize.Plane{Pix: scaled[c*h*w:], Row: w, Step: 1, Width: w, Height: h}
			scaler.Plane(to, out[c*cropHeight*cropWidth:], cropWidth)
		}
		out = scaled
	}
	if !f.Rotates || d.Rotated == 0 {
		return out
	}
	rotated := image(2, h, w)
	for c := range 3 {
		d.rotatePlane(rotated[c*h*w:][:h*w], out[c*h*w:], h, w)
	}
	return rotated
}

// rotatePlane rotates a plane of h × w pixels about its center. For each pixel of the result it
// blends the four source pixels around its position, by weights with 7 fractional bits. Outside the
// plane it is mirrored, without repeating the edge.
func (d *ImageDraw) rotatePlane(dst, src []byte, h, w int) {
	cos, sin := int64(d.Cos), int64(d.Sin)
	for y := range h {
		dy := int64(2*y - (h - 1))
		for x := range w {
			// Positions are in half pixels with 16 fractional bits.
			dx := int64(2*x - (w - 1))
			px := cos*dx - sin*dy + int64(w-1)<<16
			py := sin*dx + cos*dy + int64(h-1)<<16
			left, top := int(px>>17), int(py>>17)
			fx, fy := int32(px>>10)&127, int32(py>>10)&127
			x0, x1 := mirrorIndex(left, w), mirrorIndex(left+1, w)
			upper, lower := src[mirrorIndex(top, h)*w:], src[mirrorIndex(top+1, h)*w:]
			first := int32(upper[x0])*(128-fx) + int32(upper[x1])*fx
			second := int32(lower[x0])*(128-fx) + int32(lower[x1])*fx
			dst[y*w+x] = byte((first*(128-fy) + second*fy + 1<<13) >> 14)
		}
	}
}

// mirrorIndex returns i, mirrored at 0 or n-1 if it lies outside 0 … n-1. An index that is still
// outside is clamped.
func mirrorIndex(i, n int) int {
	if i < 0 {
		i = -i
	}
	if i >= n {
		i = 2*n - 2 - i
	}
	return min(max(i, 0), n-1)
}
