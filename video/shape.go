package video

import (
	"fmt"

	"github.com/goatnote-inc/robocache"
)

// MaxImagePixels is the largest frame or still image that is decoded or made.
const MaxImagePixels = 256 << 20

const opConvert = "convert a frame"

// Shape is what the size of a converted frame follows from.
type Shape struct {
	Width, Height int    // upright
	Format        string // libavutil's name
	LumaBits      int    // of the first plane; 0 where it is no luma
	PlanesBytes   int    // of all planes, tightly packed
}

// Size gives the result's size, or the reason why there is none.
func (s *Shape) Size(spec *Spec) (width, height int, err error) {
	if spec.Width == 0 && spec.Height == 0 || spec.Width == s.Width && spec.Height == s.Height {
		return s.Width, s.Height, nil
	}
	if spec.Width <= 0 || spec.Height <= 0 ||
		int64(spec.Width)*int64(spec.Height) > MaxImagePixels {
		return 0, 0, robocache.Misuse(opConvert, nil, "").
			Expected("a width and a height above 0, at most 256 Mpixel", fmt.Sprintf("%d×%d", spec.Width, spec.Height))
	}
	if spec.Pixel != RGB8 && spec.Pixel != RGBFloat32 {
		return 0, 0, robocache.Unsupported(opConvert, nil, "depth codes and raw planes are not scaled: a mean of codes is no depth").
			WithHint("ask for the stored size")
	}
	return spec.Width, spec.Height, nil
}

// Bytes is the size of the result.
func (s *Shape) Bytes(spec *Spec) (int, error) {
	w, h, err := s.Size(spec)
	if err != nil {
		return 0, err
	}
	var missing error
	switch {
	case spec.Pixel.grey() && s.LumaBits == 0:
		missing = robocache.Unsupported(
			opConvert,
			nil,
			"pixel format %s has no luma plane to read codes from",
			s.Format,
		)
	case spec.Pixel.grey() && spec.Pixel != Gray16 && spec.Depth == nil:
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
	case spec.Pixel.bytes() == 0:
		missing = robocache.Misuse(opConvert, nil, "unknown pixel kind %d", spec.Pixel)
	}
	return w * h * spec.Pixel.bytes(), missing
}

// Check says whether dst is as long as the result.
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
