package rlds

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"image"
	"image/png"
	"io"

	"github.com/klauspost/compress/zlib"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/guard"
	"github.com/goatnote-inc/robocache/video"
)

// byteString returns the byte string of a row.
func (l *leaf) byteString(r *record, row int) []byte {
	sp := r.lists[l.slot].spans[row]
	return r.data[sp.from:sp.to:sp.to]
}

// copyTensor copies a tensor that is stored as a byte string into dst.
func (l *leaf) copyTensor(r *record, row int, dst []byte) error {
	b := l.byteString(r, row)
	if l.coding == rawBytes {
		if len(b) != len(dst) {
			return l.countError(len(b), fmt.Sprintf("%d bytes", len(dst)))
		}
		copy(dst, b)
		return nil
	}
	out, err := inflate(b, int64(len(dst)))
	if err == nil && len(out) != len(dst) {
		err = l.countError(len(out), fmt.Sprintf("%d bytes and no more", len(dst)))
	}
	copy(dst, out)
	return err
}

// inflate decompresses at most limit bytes of a zlib stream. It returns one more byte if the stream
// is longer.
func inflate(b []byte, limit int64) (out []byte, err error) {
	z, err := zlib.NewReader(bytes.NewReader(b))
	if err == nil {
		out, err = io.ReadAll(io.LimitReader(z, limit+1))
	}
	if err != nil {
		err = robocache.Malformed("rlds", nil, "a damaged or short zlib stream").WithCause(err)
	}
	return out, err
}

// openTensor returns the bytes of a tensor whose length varies.
func (l *leaf) openTensor(r *record, row int, limit int64) []byte {
	b := l.byteString(r, row)
	if l.coding == rawBytes {
		return b
	}
	allowed := min(limit, int64(len(b))*maxRatio)
	out := guard.Must(inflate(b, allowed))
	if int64(len(out)) > allowed {
		guard.Fail(robocache.ResourceLimit("rlds", nil, "").
			Expected(fmt.Sprintf("at most %d bytes", allowed), "a longer stream"))
	}
	return out
}

// innerLengths returns the inner row lengths of a row as int64.
func (c *column) innerLengths(row int) []byte {
	var out []byte
	for _, n := range c.inner[c.outer[row]:c.outer[row+1]] {
		out = binary.LittleEndian.AppendUint64(out, uint64(n))
	}
	return out
}

// maxPixels bounds an image before memory is allocated for it.
const maxPixels = 256 << 20

// decodeDepth decodes a PNG of four 8-bit channels whose bytes are those of a float32.
func (l *leaf) decodeDepth(b []byte) *robocache.Raw {
	bad := func(want, got string, err error) {
		guard.Fail(robocache.Malformed("rlds", nil, "a float32 image").Expected(want, got).
			WithCause(err))
	}
	info := guard.Must(video.StillSize(b))
	if int64(info.Width)*int64(info.Height) > maxPixels/4 {
		guard.Fail(robocache.ResourceLimit("rlds", nil, "").
			Expected(
				fmt.Sprintf("at most %d pixels", maxPixels/4),
				fmt.Sprintf("%d × %d", info.Width, info.Height),
			),
		)
	}
	if l.shape[0] != 0 && l.shape[0] != info.Height || l.shape[1] != 0 && l.shape[1] != info.Width {
		bad(
			fmt.Sprintf("%d × %d", l.shape[0], l.shape[1]),
			fmt.Sprintf("%d × %d", info.Height, info.Width),
			nil,
		)
	}
	m, err := png.Decode(bytes.NewReader(b))
	if err != nil {
		bad("a PNG", "none that can be read", err)
	}
	raw := &robocache.Raw{
		Height:   info.Height,
		Width:    info.Width,
		Channels: 1,
		DType:    robocache.Float32,
	}
	switch p := m.(type) {
	case *image.RGBA: // the fourth channel is missing and decoded as 255
		raw.Pix, raw.Stride = p.Pix, p.Stride
	case *image.NRGBA: // not premultiplied, because alpha is a byte of the number
		raw.Pix, raw.Stride = p.Pix, p.Stride
	default:
		bad("a PNG of 8-bit RGB or RGBA", fmt.Sprintf("%T", m), nil)
	}
	return raw
}
