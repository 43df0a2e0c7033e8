package video

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"image"
	"image/png"
	"math"

	"github.com/goatnote-inc/robocache"
)

// ImageSize describes the still image of a row: from the header of encoded bytes, or from the
// declared form of raw pixels. It rejects an image that is too large, and raw pixels that are
// incomplete.
func ImageSize(ref *robocache.FrameRef) (StillInfo, error) {
	if ref.Raw == nil {
		if ref.Path != "" || ref.Missing {
			return StillInfo{}, stillError(robocache.ErrUnsupported, "the row has no still image")
		}
		return StillSize(ref.Encoded)
	}
	raw := ref.Raw
	info := StillInfo{
		Format:   "raw",
		Width:    raw.Width,
		Height:   raw.Height,
		Channels: 3,
		DType:    robocache.Uint8,
	}
	size := raw.DType.Size()
	switch {
	case raw.Channels == 1 &&
		(raw.DType == robocache.Uint8 || raw.DType == robocache.Uint16 ||
			raw.DType == robocache.Float32):
		info.Channels, info.DType = 1, raw.DType
	case (raw.Channels == 3 || raw.Channels == 4) &&
		(raw.DType == robocache.Uint8 || raw.DType == robocache.Uint16):
	default:
		return info, stillError(
			robocache.ErrUnsupported,
			"raw images with %d channels of %s are not decoded",
			raw.Channels,
			raw.DType,
		)
	}
	if raw.Width <= 0 || raw.Height <= 0 ||
		raw.Width > math.MaxInt32 || raw.Height > math.MaxInt32 ||
		raw.Stride < 0 {
		return info, stillError(
			robocache.ErrMalformed,
			"raw image of %d×%d pixels, stride %d",
			raw.Width,
			raw.Height,
			raw.Stride,
		)
	}
	if int64(raw.Width)*int64(raw.Height) > MaxImagePixels {
		return info, stillError(
			robocache.ErrResourceLimit,
			"raw image of %d×%d pixels",
			raw.Width,
			raw.Height,
		)
	}
	row := raw.Width * raw.Channels * size
	stride := strideOf(raw)
	isTooShort := stride < row || int64(len(raw.Pix)) < int64(row)
	if !isTooShort { // the last row needs no padding
		completeRows := 1 + (int64(len(raw.Pix))-int64(row))/int64(stride)
		isTooShort = completeRows < int64(raw.Height)
	}
	if isTooShort {
		return info, stillError(
			robocache.ErrMalformed,
			"raw image of %d×%d×%d %s in %d bytes, stride %d",
			raw.Height,
			raw.Width,
			raw.Channels,
			raw.DType,
			len(raw.Pix),
			stride,
		)
	}
	return info, nil
}

// strideOf returns the bytes from one row to the next. A stride of 0 means rows without padding.
func strideOf(r *robocache.Raw) int {
	return cmp.Or(r.Stride, r.Width*r.Channels*r.DType.Size())
}

// DecodeImage writes the still image of a row to dst, which must have the StillBytes of its
// ImageSize. It works like DecodeStill for encoded bytes and for raw pixels. Of 16-bit color it
// uses the high bytes.
func DecodeImage(ref *robocache.FrameRef, spec *Spec, dst []byte) (err error) {
	info, err := ImageSize(ref)
	if err != nil {
		return err
	}
	if ref.Raw == nil {
		return DecodeStill(ref.Encoded, spec, dst)
	}
	if err := checkDelivery(info, spec, dst); err != nil {
		return err
	}
	r := ref.Raw
	if spec.Pixel.isGrey() {
		deliverGrey(r.Pix, strideOf(r), info, spec, dst)
		return nil
	}
	w, h := spec.outputSize(info)
	if n := w * h; spec.Pixel == RGB8 && spec.ChannelsFirst && w == r.Width && h == r.Height &&
		r.Channels == 3 && r.DType == robocache.Uint8 && strideOf(r) == 3*w {
		// The most common case: pixels of the file go directly to the planes of the batch.
		red, green, blue := dst[:n], dst[n:2*n], dst[2*n:3*n]
		if r.BGR {
			red, blue = blue, red
		}
		splitPixels(red, green, blue, r.Pix)
		return nil
	}
	return deliverRGB(func(rgb []byte) error { packRaw(r, rgb); return nil }, spec, info, dst)
}

// packRaw writes raw pixels as R, G, B, row by row.
func packRaw(r *robocache.Raw, out []byte) {
	size := r.DType.Size()
	red, green, blue := size-1, 2*size-1, 3*size-1 // little-endian: the high bytes of the elements
	switch {
	case r.Channels == 1:
		green, blue = red, red
	case r.BGR:
		red, blue = blue, red
	}
	packPixels(out, r.Pix, strideOf(r), r.Width, r.Height, r.Channels*size, red, green, blue)
}

// EncodeImage returns the still image of a row as the bytes of a file, without loss. Encoded bytes
// are returned unchanged. Raw pixels become PNG, or TIFF if they are float32. 16-bit color keeps
// its high bytes only.
func EncodeImage(ref *robocache.FrameRef) ([]byte, error) {
	info, err := ImageSize(ref)
	if err != nil || ref.Raw == nil {
		return ref.Encoded, err
	}
	raw := ref.Raw
	bounds := image.Rect(0, 0, raw.Width, raw.Height)
	var img image.Image
	switch {
	case info.DType == robocache.Float32:
		return floatTIFF(raw), nil
	case info.DType == robocache.Uint16:
		pixels := image.NewGray16(bounds)
		for y := range raw.Height {
			in, out := raw.Pix[y*strideOf(raw):], pixels.Pix[y*pixels.Stride:]
			for x := range raw.Width { // image.Gray16 is big-endian
				out[2*x], out[2*x+1] = in[2*x+1], in[2*x]
			}
		}
		img = pixels
	case info.Channels == 1:
		pixels := image.NewGray(bounds)
		for y := range raw.Height {
			copy(pixels.Pix[y*pixels.Stride:][:raw.Width], raw.Pix[y*strideOf(raw):])
		}
		img = pixels
	default:
		rgb := make([]byte, 3*raw.Width*raw.Height)
		packRaw(raw, rgb)
		pixels := image.NewRGBA(bounds)
		for i := range raw.Width * raw.Height {
			copy(pixels.Pix[4*i:4*i+3], rgb[3*i:])
			pixels.Pix[4*i+3] = 255
		}
		img = pixels
	}
	var out bytes.Buffer
	if err := (&png.Encoder{CompressionLevel: png.BestSpeed}).Encode(&out, img); err != nil {
		return nil, robocache.Malformed("encode still image", nil, "raw image of %d×%d pixels",
			raw.Width, raw.Height).
			WithCause(err)
	}
	return out.Bytes(), nil
}

// floatTIFF returns an uncompressed little-endian TIFF with one strip of 32-bit floats.
func floatTIFF(r *robocache.Raw) []byte {
	type entry struct {
		tag, kind    uint16
		count, value uint32
	}
	const entries = 9
	const head = 8 + 2 + 12*entries + 4 // header, and directory: count, entries, offset of the next
	const short, long = 3, 4            // types of values
	row := 4 * r.Width
	le := binary.LittleEndian
	out := make([]byte, 0, head+row*r.Height)
	out = append(out, "II*\x00"...)
	out = le.AppendUint32(out, 8) // offset of the directory
	out = le.AppendUint16(out, entries)
	for _, e := range [entries]entry{
		{256, long, 1, uint32(r.Width)},        // ImageWidth
		{257, long, 1, uint32(r.Height)},       // ImageLength
		{258, short, 1, 32},                    // BitsPerSample
		{259, short, 1, 1},                     // Compression: none
		{262, short, 1, 1},                     // PhotometricInterpretation: black is zero
		{273, long, 1, head},                   // StripOffsets
		{278, long, 1, uint32(r.Height)},       // RowsPerStrip
		{279, long, 1, uint32(row * r.Height)}, // StripByteCounts
		{339, short, 1, 3},                     // SampleFormat: float
	} {
		out = le.AppendUint16(out, e.tag)
		out = le.AppendUint16(out, e.kind)
		out = le.AppendUint32(out, e.count)
		out = le.AppendUint32(out, e.value)
	}
	out = le.AppendUint32(out, 0) // no further directory
	for y := range r.Height {
		out = append(out, r.Pix[y*strideOf(r):][:row]...)
	}
	return out
}
