package video

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"image"
	"image/color"
	"image/jpeg"
	"image/png"
	"io"
	"math"
	"strings"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/video/turbojpeg"
	"golang.org/x/image/draw"
	"golang.org/x/image/tiff"
)

// Still images: PNG, JPEG and TIFF.
//
// JPEG is decoded by libjpeg-turbo if it is linked (video/turbojpeg), bit-identical to PIL.
// Otherwise it is decoded in Go. Chroma is upsampled with a triangle filter, like in libjpeg's
// default. Go's inverse DCT rounds in another way, so pixels differ by a few levels. EXIF orientation is not
// applied, and alpha is dropped without blending, like in PIL's convert("RGB").

const opStill = "decode still image"

// stillRatio limits the pixels per encoded byte: deflate's ratio of 1032, and eight 1-bit pixels
// per byte.
const stillRatio = 1032 * 8

// StillInfo describes a still image, as read from its header.
type StillInfo struct {
	Format        string // "png", "jpeg", "tiff" or "raw"
	Width, Height int
	Channels      int // 3 for color, 1 for grey; alpha does not count
	// element type of a lossless delivery: Uint8, Uint16 or Float32
	DType robocache.DType
}

// Own returns the spec that delivers the image in its own form: color and 8-bit grey as RGB, one
// channel of more bits as 16-bit grey or depth.
func (i StillInfo) Own() *Spec {
	switch {
	case i.DType == robocache.Float32:
		return &Spec{Pixel: DepthM}
	case i.DType == robocache.Uint16:
		return &Spec{Pixel: Gray16}
	}
	return &Spec{}
}

// StillSize parses the header of a still image. It rejects an image that is too large.
func StillSize(encoded []byte) (StillInfo, error) {
	info, err := stillHeader(encoded)
	if err != nil {
		return info, err
	}
	pixels := int64(info.Width) * int64(info.Height)
	if info.Width <= 0 || info.Height <= 0 {
		return info, stillError(
			robocache.ErrMalformed,
			"%s of %d×%d pixels",
			info.Format,
			info.Width,
			info.Height,
		)
	}
	if pixels > MaxImagePixels || pixels > int64(len(encoded))*stillRatio {
		return info, stillError(
			robocache.ErrResourceLimit,
			"%s of %d×%d pixels in %d bytes",
			info.Format,
			info.Width,
			info.Height,
			len(encoded),
		)
	}
	return info, nil
}

// stillError returns an error of a still image.
func stillError(class error, format string, args ...any) error {
	return robocache.NewError(class, opStill, nil, format, args...)
}

// stillHeader parses the header of a PNG, JPEG or TIFF.
func stillHeader(b []byte) (StillInfo, error) {
	switch {
	case bytes.HasPrefix(b, []byte("\x89PNG\r\n\x1a\n")):
		info := StillInfo{Format: "png", Channels: 3, DType: robocache.Uint8}
		if len(b) < 33 || string(b[12:16]) != "IHDR" {
			return info, stillError(robocache.ErrMalformed, "png without a header")
		}
		w, h := be.Uint32(b[16:]), be.Uint32(b[20:])
		if w > math.MaxInt32 || h > math.MaxInt32 {
			return info, stillError(robocache.ErrMalformed, "png of %d×%d pixels", w, h)
		}
		info.Width, info.Height = int(w), int(h)
		depth, colour := b[24], b[25]
		if colour == pngGrey || colour == pngGreyAlpha {
			info.Channels = 1
		}
		if depth == 16 && colour == pngGrey {
			info.DType = robocache.Uint16
		}
		return info, nil
	case bytes.HasPrefix(b, []byte{0xff, 0xd8}):
		info := StillInfo{Format: "jpeg", Channels: 3, DType: robocache.Uint8}
		w, h, n, err := jpegHeader(b)
		if err != nil {
			return info, err
		}
		if info.Width, info.Height = w, h; n == 1 {
			info.Channels = 1
		}
		return info, nil
	case bytes.HasPrefix(b, []byte("II*\x00")), bytes.HasPrefix(b, []byte("MM\x00*")):
		t, err := parseTIFF(b)
		if err != nil {
			return StillInfo{Format: "tiff"}, err
		}
		return t.stillInfo(), nil
	case bytes.HasPrefix(b, []byte("version https://git-lfs")):
		return StillInfo{}, robocache.Malformed(opStill, nil,
			"the data is a git-LFS pointer, not an image (LFS pointer)").
			WithHint("fetch the file contents: git lfs pull")
	case len(b) == 0:
		return StillInfo{}, stillError(robocache.ErrMalformed, "the image has no bytes")
	}
	return StillInfo{}, stillError(
		robocache.ErrUnsupported,
		"the image is not PNG, JPEG or TIFF (it begins with %x)",
		b[:min(len(b), 8)],
	)
}

// jpegHeader parses the frame header and skips the segments before it.
func jpegHeader(b []byte) (w, h, components int, err error) {
	for i := 2; i+4 <= len(b); {
		if b[i] != 0xff {
			break
		}
		marker := b[i+1]
		if marker == 0xff { // fill byte
			i++
			continue
		}
		n := int(binary.BigEndian.Uint16(b[i+2:])) // bytes of the segment without its marker
		// The frame headers are SOF0 to SOF15. DHT, JPG and DAC have numbers between them.
		isFrameHeader := marker >= 0xc0 && marker <= 0xcf &&
			marker != 0xc4 && marker != 0xc8 && marker != 0xcc
		if isFrameHeader {
			if i+10 > len(b) {
				break
			}
			return int(be.Uint16(b[i+7:])), int(be.Uint16(b[i+5:])), int(b[i+9]), nil
		}
		if marker == 0xd9 || marker == 0xda || n < 2 { // end of image, start of scan
			break
		}
		i += 2 + n
	}
	return 0, 0, 0, stillError(robocache.ErrMalformed, "jpeg without a frame header")
}

// StillBytes returns the number of bytes that DecodeStill writes for a frame and a spec.
func StillBytes(info StillInfo, spec *Spec) (int, error) {
	w, h := spec.outputSize(info)
	if w <= 0 || h <= 0 || int64(w)*int64(h) > MaxImagePixels {
		return 0, stillError(
			robocache.ErrResourceLimit,
			"the requested frame of %d×%d pixels is too large",
			w,
			h,
		)
	}
	if n := spec.Pixel.bytesPerPixel(); n > 0 {
		return w * h * n, nil
	}
	return 0, stillError(
		robocache.ErrUnsupported,
		"a still image is delivered as RGB, as 16-bit grey or as depth, not as pixel kind %d",
		spec.Pixel,
	)
}

// outputSize returns the requested size, or the image's own size.
func (s *Spec) outputSize(info StillInfo) (w, h int) {
	return cmp.Or(s.Width, info.Width), cmp.Or(s.Height, info.Height)
}

// checkDelivery returns an error if a frame cannot be delivered to dst in the form of spec.
func checkDelivery(info StillInfo, spec *Spec, dst []byte) error {
	need, err := StillBytes(info, spec)
	if err != nil {
		return err
	}
	if len(dst) != need {
		return robocache.Misuse(opStill, nil, "").
			Expected(fmt.Sprintf("%d bytes for the frame", need), fmt.Sprint(len(dst)))
	}
	grey := spec.Pixel.isGrey()
	switch {
	case grey && info.Channels != 1:
		return stillError(robocache.ErrUnsupported, "a color image cannot be delivered as grey")
	case !grey && info.DType != robocache.Uint8:
		return robocache.Unsupported(opStill, nil, "a grey %s image cannot be delivered as RGB",
			info.DType).
			WithHint("request it as 16-bit grey or as depth")
	case spec.Pixel == Gray16 && info.DType == robocache.Float32:
		return robocache.Unsupported(opStill, nil,
			"a float image cannot be delivered as 16-bit grey").
			WithHint("request it as depth")
	}
	return nil
}

// DecodeStill decodes a still image to dst, which must have StillBytes bytes.
//
// If spec has another size, color is scaled bilinearly. 16-bit grey and depth use the nearest
// pixel, because the mean of two depths is not a depth. Gray16 requires a grey image and keeps its
// values. DepthMM and DepthM read uint16 as millimeters and float32 as meters, unless
// spec.Depth.Unit is set. Values that are stored in the requested unit are returned unchanged. A
// 16-bit or float grey image is not converted to RGB.
func DecodeStill(encoded []byte, spec *Spec, dst []byte) (err error) {
	info, err := StillSize(encoded)
	if err != nil {
		return err
	}
	if err := checkDelivery(info, spec, dst); err != nil {
		return err
	}
	if spec.Pixel.isGrey() {
		if err := decodeGrey(encoded, info, spec, dst); err != nil {
			return err
		}
		return nil
	}
	if err := deliverRGB(func(rgb []byte) error {
		if info.Format == "jpeg" && turbojpeg.Native() {
			return turbojpeg.Decode(rgb, encoded, info.Width, info.Height, 3)
		}
		if info.Format == "png" && fastPNG(encoded, info, rgb) {
			return nil
		}
		img, err := decodeImage(encoded, info)
		if err == nil {
			packRGB(img, rgb)
		}
		return err
	}, spec, info, dst); err != nil {
		return err
	}
	return nil
}

// decodeImage decodes with image/png, image/jpeg or golang.org/x/image/tiff.
func decodeImage(encoded []byte, info StillInfo) (image.Image, error) {
	img, err := libraryImage(encoded, info.Format)
	if err != nil {
		class := robocache.ErrMalformed
		switch err.(type) {
		case png.UnsupportedError, jpeg.UnsupportedError, tiff.UnsupportedError:
			class = robocache.ErrUnsupported
		}
		return nil, robocache.NewError(class, opStill, nil, "%s", info.Format).WithCause(err)
	}
	if b := img.Bounds(); b.Dx() != info.Width || b.Dy() != info.Height {
		return nil, stillError(
			robocache.ErrMalformed,
			"%s of %d×%d pixels, its header says %d×%d",
			info.Format,
			b.Dx(),
			b.Dy(),
			info.Width,
			info.Height,
		)
	}
	return img, nil
}

// libraryImage decodes an image. A panic in the library is reported as bad data, not as an internal
// error: golang.org/x/image/tiff has panicked on damaged files several times (TestTileTooBig and
// others in its reader_test.go). image/png and image/jpeg get the same treatment. The decoders run
// no code of RoboCache.
func libraryImage(encoded []byte, format string) (img image.Image, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the decoder stopped: %v", p)
		}
	}()
	r := bytes.NewReader(encoded)
	switch format {
	case "png":
		return png.Decode(r)
	case "jpeg":
		if img, err = jpeg.Decode(r); errors.Is(err, io.ErrUnexpectedEOF) {
			// libjpeg also accepts complete data without an end marker.
			img, err = jpeg.Decode(
				io.MultiReader(bytes.NewReader(encoded), strings.NewReader("\xff\xd9")),
			)
		}
		return img, err
	default:
		return tiff.Decode(r)
	}
}

// deliverRGB converts a frame to the form of spec. pack writes the frame as R, G, B, row by row.
func deliverRGB(pack func(rgb []byte) error, spec *Spec, info StillInfo, dst []byte) error {
	w, h := spec.outputSize(info)
	isScaled := w != info.Width || h != info.Height
	direct := spec.Pixel == RGB8 && !spec.ChannelsFirst && !isScaled // pack writes to dst
	rgb := dst
	if !direct {
		rgb = make([]byte, 3*info.Width*info.Height)
	}
	if err := pack(rgb); err != nil {
		return err
	}
	if isScaled {
		rgb = scaleRGB(rgb, info.Width, info.Height, w, h)
	}
	if direct {
		return nil
	}
	plane := w * h
	switch {
	case spec.Pixel == RGB8 && !spec.ChannelsFirst:
		copy(dst, rgb)
	case spec.Pixel == RGB8:
		splitPixels(dst[:plane], dst[plane:2*plane], dst[2*plane:3*plane], rgb)
	default: // RGBFloat32
		for i := range plane {
			for c := range 3 {
				element := 3*i + c
				if spec.ChannelsFirst {
					element = c*plane + i
				}
				binary.LittleEndian.PutUint32(dst[4*element:], unitBits[rgb[3*i+c]])
			}
		}
	}
	return nil
}

// unitBits holds the float32 bits of v/255, computed by division.
var unitBits = func() (t [256]uint32) {
	for v := range t {
		t[v] = math.Float32bits(float32(v) / 255)
	}
	return t
}()

// scaleRGB scales packed pixels bilinearly.
func scaleRGB(rgb []byte, w, h, toW, toH int) []byte {
	src := image.NewRGBA(image.Rect(0, 0, w, h))
	for i := range w * h {
		copy(src.Pix[4*i:4*i+3], rgb[3*i:])
		src.Pix[4*i+3] = 255
	}
	to := image.NewRGBA(image.Rect(0, 0, toW, toH))
	draw.BiLinear.Scale(to, to.Bounds(), src, src.Bounds(), draw.Src, nil)
	out := make([]byte, 3*toW*toH)
	for i := range toW * toH {
		copy(out[3*i:3*i+3], to.Pix[4*i:])
	}
	return out
}

// packRGB writes the pixels as R, G, B, row by row.
func packRGB(img image.Image, out []byte) {
	b := img.Bounds()
	w, h := b.Dx(), b.Dy()
	switch m := img.(type) {
	case *image.YCbCr:
		packYCbCr(m, out)
	case *image.Gray:
		packPixels(out, m.Pix, m.Stride, w, h, 1, 0, 0, 0)
	case *image.RGBA: // opaque PNG or TIFF
		packPixels(out, m.Pix, m.Stride, w, h, 4, 0, 1, 2)
	case *image.NRGBA:
		packPixels(out, m.Pix, m.Stride, w, h, 4, 0, 1, 2)
	case *image.NRGBA64:
		packPixels(out, m.Pix, m.Stride, w, h, 8, 0, 2, 4)
	case *image.RGBA64:
		packPixels(out, m.Pix, m.Stride, w, h, 8, 0, 2, 4)
	default:
		palette, _ := img.(*image.Paletted)
		for y := range h {
			for x := range w {
				p := out[3*(y*w+x):]
				if palette != nil {
					// drops its alpha
					c := color.NRGBAModel.Convert(palette.At(b.Min.X+x, b.Min.Y+y)).(color.NRGBA)
					p[0], p[1], p[2] = c.R, c.G, c.B
					continue
				}
				r, g, bl, _ := img.At(b.Min.X+x, b.Min.Y+y).RGBA()
				p[0], p[1], p[2] = byte(r>>8), byte(g>>8), byte(bl>>8)
			}
		}
	}
}

// packPixels writes the bytes r, g and b of each pixel of step bytes, row by row.
func packPixels(out, pix []byte, stride, w, h, step, r, g, b int) {
	for y := range h {
		in, to := pix[y*stride:][:w*step], out[3*w*y:][:3*w]
		if step == 3 && r == 0 {
			copy(to, in)
			continue
		}
		for len(in) >= step && len(to) >= 3 {
			to[0], to[1], to[2] = in[r], in[g], in[b]
			in, to = in[step:], to[3:]
		}
	}
}
