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

// Still frames: PNG, JPEG and TIFF.
//
// JPEG is decoded by libjpeg-turbo where it is linked (video/turbojpeg: equal to PIL to the bit),
// else in Go: chroma is upsampled as libjpeg does it by default (a triangle filter), so that pixels
// stay within a few levels; the inverse DCT is Go's own. EXIF orientation is not applied, as PIL
// does not. Alpha is dropped, not blended, as PIL's convert("RGB") does.

const opStill = "decode still image"

// stillRatio bounds pixels by encoded bytes: deflate's 1032, eight 1-bit pixels a byte.
const stillRatio = 1032 * 8

// StillInfo is what the header of a still image says.
type StillInfo struct {
	Format        string // "png", "jpeg", "tiff", "raw"
	Width, Height int
	Channels      int // 3 for colour, 1 for grey; alpha is not counted
	// Uint8, Uint16 or Float32: of an element as delivered without loss
	DType robocache.DType
}

// Own is how a frame is decoded as what it is: colour and 8-bit grey as RGB, one deep channel as
// 16-bit grey or depth.
func (i StillInfo) Own() *Spec {
	switch {
	case i.DType == robocache.Float32:
		return &Spec{Pixel: DepthM}
	case i.DType == robocache.Uint16:
		return &Spec{Pixel: Gray16}
	}
	return &Spec{}
}

// StillSize reads the header of a still image, and refuses one that is too large.
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

func stillError(class error, format string, args ...any) error {
	return robocache.NewError(class, opStill, nil, format, args...)
}

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
		if b[25] == 0 || b[25] == 4 {
			info.Channels = 1
		}
		if b[24] == 16 && b[25] == 0 {
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
		t, err := tiffHeader(b)
		if err != nil {
			return StillInfo{Format: "tiff"}, err
		}
		return t.info(), nil
	case bytes.HasPrefix(b, []byte("version https://git-lfs")):
		return StillInfo{}, robocache.Malformed(opStill, nil, "a git-LFS pointer, not a frame (LFS pointer)").
			WithHint("fetch the real bytes: git lfs pull")
	case len(b) == 0:
		return StillInfo{}, stillError(robocache.ErrMalformed, "no bytes")
	}
	return StillInfo{}, stillError(
		robocache.ErrUnsupported,
		"neither PNG, JPEG nor TIFF (begins with %x)",
		b[:min(len(b), 8)],
	)
}

// jpegHeader finds the frame header, past what stands before it.
func jpegHeader(b []byte) (w, h, components int, err error) {
	for i := 2; i+4 <= len(b); {
		if b[i] != 0xff {
			break
		}
		marker := b[i+1]
		if marker == 0xff { // fill
			i++
			continue
		}
		n := int(binary.BigEndian.Uint16(b[i+2:]))
		if marker >= 0xc0 && marker <= 0xcf && marker != 0xc4 && marker != 0xc8 && marker != 0xcc {
			if i+10 > len(b) {
				break
			}
			return int(be.Uint16(b[i+7:])), int(be.Uint16(b[i+5:])), int(b[i+9]), nil
		}
		if marker == 0xd9 || marker == 0xda || n < 2 {
			break
		}
		i += 2 + n
	}
	return 0, 0, 0, stillError(robocache.ErrMalformed, "jpeg without a frame header")
}

// StillBytes is the size that DecodeStill needs for a frame and a spec.
func StillBytes(info StillInfo, spec *Spec) (int, error) {
	w, h := spec.size(info)
	if w <= 0 || h <= 0 || int64(w)*int64(h) > MaxImagePixels {
		return 0, stillError(robocache.ErrResourceLimit, "a frame of %d×%d pixels is wanted", w, h)
	}
	if n := spec.Pixel.bytes(); n > 0 {
		return w * h * n, nil
	}
	return 0, stillError(
		robocache.ErrUnsupported,
		"a still image is delivered as RGB, as 16-bit grey or as depth, not as pixel kind %d",
		spec.Pixel,
	)
}

func (s *Spec) size(info StillInfo) (w, h int) {
	return cmp.Or(s.Width, info.Width), cmp.Or(s.Height, info.Height)
}

// checkDelivery says why a frame cannot be delivered into dst as spec asks.
func checkDelivery(info StillInfo, spec *Spec, dst []byte) error {
	need, err := StillBytes(info, spec)
	if err != nil {
		return err
	}
	if len(dst) != need {
		return robocache.Misuse(opStill, nil, "").
			Expected(fmt.Sprintf("%d bytes for the frame", need), fmt.Sprint(len(dst)))
	}
	grey := spec.Pixel.grey()
	switch {
	case grey && info.Channels != 1:
		return stillError(robocache.ErrUnsupported, "a colour frame as grey")
	case !grey && info.DType != robocache.Uint8:
		return robocache.Unsupported(opStill, nil, "a grey %s frame as RGB", info.DType).
			WithHint("ask for it as 16-bit grey or as depth")
	case spec.Pixel == Gray16 && info.DType == robocache.Float32:
		return robocache.Unsupported(opStill, nil, "a float frame as 16-bit grey").
			WithHint("ask for it as depth")
	}
	return nil
}

// DecodeStill decodes a frame into dst, which must have StillBytes bytes.
//
// Colour is scaled bilinearly where spec asks for another size; grey of 16 bits and depth by the
// nearest pixel, because the mean of two depths is neither. Gray16 wants a grey image and keeps its
// numbers. DepthMM and DepthM take uint16 as millimetres and float32 as metres, unless
// spec.Depth.Unit says otherwise; what is stored in the unit that is asked for stays as it is, to
// the bit. A 16-bit or float grey image is not made RGB.
func DecodeStill(encoded []byte, spec *Spec, dst []byte) (err error) {
	info, err := StillSize(encoded)
	if err != nil {
		return err
	}
	if err := checkDelivery(info, spec, dst); err != nil {
		return err
	}
	if spec.Pixel.grey() {
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

// decodeImage decodes by image/png, image/jpeg or golang.org/x/image/tiff.
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

// libraryImage decodes an image. A panic inside the library is bad data and not an internal error:
// golang.org/x/image/tiff has panicked on damaged files several times (TestTileTooBig and others in
// its reader_test.go), and image/png and image/jpeg are held to the same rule. No code of RoboCache
// runs inside the decoders.
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
			// libjpeg also reads whole data without its end marker.
			img, err = jpeg.Decode(
				io.MultiReader(bytes.NewReader(encoded), strings.NewReader("\xff\xd9")),
			)
		}
		return img, err
	default:
		return tiff.Decode(r)
	}
}

// deliverRGB brings a frame, that pack writes as R, G, B row by row, to what spec asks for.
func deliverRGB(pack func(rgb []byte) error, spec *Spec, info StillInfo, dst []byte) error {
	w, h := spec.size(info)
	n := 3 * info.Width * info.Height
	direct := spec.Pixel == RGB8 && !spec.ChannelsFirst && w == info.Width && h == info.Height
	rgb := dst
	if !direct {
		rgb = make([]byte, n)
	}
	if err := pack(rgb); err != nil {
		return err
	}
	if w != info.Width || h != info.Height {
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
		split(dst[:plane], dst[plane:2*plane], dst[2*plane:3*plane], rgb)
	default:
		for i := range plane {
			for c := range 3 {
				at := 3*i + c
				if spec.ChannelsFirst {
					at = c*plane + i
				}
				binary.LittleEndian.PutUint32(dst[4*at:], unitBits[rgb[3*i+c]])
			}
		}
	}
	return nil
}

// unitBits holds the float32 bits of v/255, by a real division.
var unitBits = func() (t [256]uint32) {
	for v := range t {
		t[v] = math.Float32bits(float32(v) / 255)
	}
	return t
}()

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
	case *image.RGBA: // from PNG and TIFF opaque
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
					// its alpha dropped
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
