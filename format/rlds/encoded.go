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

// value is the byte string of a row.
func (l *leaf) value(r *record, row int) []byte {
	sp := r.lists[l.slot].spans[row]
	return r.data[sp.from:sp.to:sp.to]
}

// encoded copies a tensor that is kept as a byte string into dst.
func (l *leaf) encoded(r *record, row int, dst []byte) error {
	b := l.value(r, row)
	if l.coding == rawBytes {
		if len(b) != len(dst) {
			return l.miscount(len(b), fmt.Sprintf("%d bytes", len(dst)))
		}
		copy(dst, b)
		return nil
	}
	out, err := unzlib(b, int64(len(dst)))
	if err == nil && len(out) != len(dst) {
		err = l.miscount(len(out), fmt.Sprintf("%d bytes and no more", len(dst)))
	}
	copy(dst, out)
	return err
}

// unzlib gives at most so many bytes of a stream, and where it goes on one more.
func unzlib(b []byte, most int64) (out []byte, err error) {
	z, err := zlib.NewReader(bytes.NewReader(b))
	if err == nil {
		out, err = io.ReadAll(io.LimitReader(z, most+1))
	}
	if err != nil {
		err = robocache.Malformed("rlds", nil, "a damaged or short zlib stream").WithCause(err)
	}
	return out, err
}

// open gives the bytes of a tensor of open length.
func (l *leaf) open(r *record, row int, limit int64) []byte {
	b := l.value(r, row)
	if l.coding == rawBytes {
		return b
	}
	most := min(limit, int64(len(b))*maxRatio)
	out := guard.Must(unzlib(b, most))
	if int64(len(out)) > most {
		guard.Fail(robocache.ResourceLimit("rlds", nil, "").
			Expected(fmt.Sprintf("at most %d bytes", most), "a stream that goes on"))
	}
	return out
}

// innerLengths gives the inner row lengths of a row as int64.
func (c *column) innerLengths(row int) []byte {
	var out []byte
	for _, n := range c.inner[c.outer[row]:c.outer[row+1]] {
		out = binary.LittleEndian.AppendUint64(out, uint64(n))
	}
	return out
}

// maxPixels bounds an image before memory is taken for it.
const maxPixels = 256 << 20

// depth decodes a PNG of four 8-bit channels whose bytes are those of a float32.
func (l *leaf) depth(b []byte) *robocache.Raw {
	bad := func(want, got string, err error) {
		guard.Fail(robocache.Malformed("rlds", nil, "a float32 image").Expected(want, got).
			WithCause(err))
	}
	info := guard.Must(video.StillSize(b))
	if int64(info.Width)*int64(info.Height) > maxPixels/4 {
		guard.Fail(robocache.ResourceLimit("rlds", nil, "").
			Expected(fmt.Sprintf("at most %d pixels", maxPixels/4), fmt.Sprintf("%d × %d", info.Width, info.Height)),
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
	case *image.RGBA: // without a fourth channel, which is then 255
		raw.Pix, raw.Stride = p.Pix, p.Stride
	case *image.NRGBA: // as stored: alpha is a byte of the number, and must not weigh on the others
		raw.Pix, raw.Stride = p.Pix, p.Stride
	default:
		bad("a PNG of 8-bit RGB or RGBA", fmt.Sprintf("%T", m), nil)
	}
	return raw
}
