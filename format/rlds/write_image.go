package rlds

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"slices"

	"github.com/klauspost/compress/zlib"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/guard"
	"github.com/goatnote-inc/robocache/video"
)

// encodeImage returns the bytes of an image. JPEG and PNG are unchanged, and others become PNG
// without loss.
func encodeImage(l *outLeaf, ref *robocache.FrameRef) (_ []byte, err error) {
	defer guard.Recover("rlds", &err)
	if ref.Missing {
		return nil, robocache.Malformed(
			"write rlds",
			nil,
			"the row has no image, which RLDS cannot store",
		).WithHint("leave the episode out")
	}
	info := guard.Must(video.ImageSize(ref))
	f := l.feature
	if f.Height > 0 && f.Width > 0 && (info.Height != f.Height || info.Width != f.Width) {
		return nil, robocache.Malformed("write rlds", nil, "the size of an image").
			Expected(
				fmt.Sprintf("%d × %d", f.Height, f.Width),
				fmt.Sprintf("%d × %d", info.Height, info.Width),
			)
	}
	if l.how == outDepth {
		return encodeDepth(ref, info), nil
	}
	switch {
	case info.Format == "png" || info.Format == "jpeg":
		return slices.Clone(ref.Encoded), nil
	case ref.Raw != nil && ref.Raw.DType == robocache.Uint16 && ref.Raw.Channels > 1:
		return nil, robocache.Unsupported("write rlds", nil, "raw 16-bit colour")
	case info.DType == robocache.Float32:
		return nil, robocache.Unsupported(
			"write rlds",
			nil,
			"float32 images in a stream of %s",
			f.DType.String(),
		)
	case ref.Raw == nil: // TIFF
		spec := &video.Spec{Pixel: video.RGB8}
		raw := &robocache.Raw{
			Height:   info.Height,
			Width:    info.Width,
			Channels: 3,
			DType:    robocache.Uint8,
		}
		if info.DType == robocache.Uint16 {
			spec.Pixel = video.Gray16
			raw.Channels, raw.DType = 1, robocache.Uint16
		}
		raw.Pix = make([]byte, guard.Must(video.StillBytes(info, spec)))
		guard.Check(video.DecodeImage(ref, spec, raw.Pix))
		return video.EncodeImage(&robocache.FrameRef{Raw: raw})
	}
	return video.EncodeImage(ref)
}

// encodeDepth returns a PNG of four 8-bit channels that are the bytes of a float32.
func encodeDepth(ref *robocache.FrameRef, info video.StillInfo) []byte {
	if info.DType != robocache.Float32 {
		guard.Fail(robocache.Malformed("write rlds", nil, "a depth image").
			Expected("float32", info.DType.String()))
	}
	pix, stride := []byte(nil), info.Width*4
	if ref.Raw != nil {
		pix = ref.Raw.Pix
		if ref.Raw.Stride != 0 {
			stride = ref.Raw.Stride
		}
	} else { // TIFF: depth declared in millimetres is decoded to millimetres without change
		pix = make([]byte, info.Width*info.Height*4)
		guard.Check(video.DecodeImage(
			ref,
			&video.Spec{Pixel: video.DepthMM, Depth: &robocache.Depth{Unit: "mm"}},
			pix,
		))
	}
	return guard.Must(rgbaPNG(pix, stride, info.Width, info.Height))
}

// rgbaPNG encodes four 8-bit channels as a PNG. image/png cannot be used, because it drops an alpha
// channel of 255 and premultiplies others.
func rgbaPNG(pix []byte, stride, w, h int) (out []byte, err error) {
	defer guard.Recover("rlds", &err)
	out = []byte("\x89PNG\r\n\x1a\n")
	chunk := func(name string, data []byte) {
		be := binary.BigEndian
		out = be.AppendUint32(out, uint32(len(data)))
		at := len(out)
		out = append(append(out, name...), data...)
		out = be.AppendUint32(out, crc32.ChecksumIEEE(out[at:]))
	}
	head := binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(nil, uint32(w)), uint32(h))
	chunk("IHDR", append(head, 8, 6, 0, 0, 0)) // 8 bits, RGBA
	var z bytes.Buffer
	d := guard.Must(zlib.NewWriterLevel(&z, zlib.BestSpeed))
	for y := range h {
		guard.Must(d.Write([]byte{0})) // no filter
		guard.Must(d.Write(pix[y*stride:][:4*w]))
	}
	guard.Check(d.Close())
	chunk("IDAT", z.Bytes())
	chunk("IEND", nil)
	return out, nil
}
