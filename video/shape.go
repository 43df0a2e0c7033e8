package video

import (
	"fmt"

	"github.com/goatnote-inc/robocache"
)

// MaxImagePixels is the maximum size of a frame or still image.
const MaxImagePixels = 256 << 20

const opConvert = "convert a frame"

// Shape contains the properties of a frame that determine the size of a converted frame.
type Shape struct {
	Width, Height int    // after rotation
	Format        string // libavutil's name
	LumaBits      int    // bits per sample of the first plane; 0 if it is not luma
	PlanesBytes   int    // bytes of all planes, tightly packed
}

// Size returns the size of the result, or an error if the frame cannot be converted to spec.
func (s *Shape) Size(spec *Spec) (width, height int, err error) {
	if spec.Width == 0 && spec.Height == 0 || spec.Width == s.Width && spec.Height == s.Height {
		return s.Width, s.Height, nil
	}
	if spec.Width <= 0 || spec.Height <= 0 ||
		int64(spec.Width)*int64(spec.Height) > MaxImagePixels {
		return 0, 0, robocache.Misuse(opConvert, nil, "").
			Expected(
				"a width and a height above 0, at most 256 Mpixel",
				fmt.Sprintf("%d×%d", spec.Width, spec.Height),
			)
	}
	if spec.Pixel != RGB8 && spec.Pixel != RGBFloat32 {
		return 0, 0, robocache.Unsupported(opConvert, nil,
			"depth codes and raw planes are not scaled: a mean of codes is not a depth").
			WithHint("request the stored size")
	}
	return spec.Width, spec.Height, nil
}

// Bytes returns the number of bytes of the result.
func (s *Shape) Bytes(spec *Spec) (int, error) {
	w, h, err := s.Size(spec)
	if err != nil {
		return 0, err
	}
	var missing error
	switch {
	case spec.Pixel.isGrey() && s.LumaBits == 0:
		missing = robocache.Unsupported(
			opConvert,
			nil,
			"pixel format %s has no luma plane to read codes from",
			s.Format,
		)
	case spec.Pixel.isGrey() && spec.Pixel != Gray16 && spec.Depth == nil:
		missing = robocache.Misuse(opConvert, nil, "depth needs the stream's depth code")
	case spec.Pixel == YUVPlanes && s.PlanesBytes <= 0:
		missing = robocache.Unsupported(
			opConvert,
			nil,
			"pixel format %s has no plain planes",
			s.Format,
		)
	case spec.Pixel == YUVPlanes:
		return s.PlanesBytes, nil
	case spec.Pixel.bytesPerPixel() == 0:
		missing = robocache.Misuse(opConvert, nil, "unknown pixel kind %d", spec.Pixel)
	}
	return w * h * spec.Pixel.bytesPerPixel(), missing
}

// Check returns an error if dst does not have the length of the result.
func (s *Shape) Check(spec *Spec, dst []byte) error {
	need, err := s.Bytes(spec)
	if err != nil {
		return err
	}
	if len(dst) != need {
		return robocache.Misuse(opConvert, nil, "").
			Expected(fmt.Sprintf("a destination of %d bytes", need), fmt.Sprint(len(dst)))
	}
	return nil
}
