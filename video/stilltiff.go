package video

import (
	"bytes"
	"compress/zlib"
	"encoding/binary"
	"image"
	"io"
	"math"
	"slices"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/video/turbojpeg"
	"golang.org/x/image/tiff/lzw"
)

// tiffFile is the first directory of a TIFF, with the fields that grey images of 32-bit floats
// need. Such images carry depth, and golang.org/x/image/tiff does not decode floats.
type tiffFile struct {
	data             []byte
	order            binary.ByteOrder
	width, height    int
	bits             int
	samples          int
	compression      int
	photometric      int
	predictor        int
	float            bool
	rowsPerStrip     int
	offsets, lengths []uint32
	tiled            bool
}

// parseTIFF parses the first directory of a TIFF.
func parseTIFF(b []byte) (_ *tiffFile, err error) {
	bad := func(format string, args ...any) (*tiffFile, error) {
		return nil, stillError(robocache.ErrMalformed, "tiff: "+format, args...)
	}
	t := &tiffFile{
		data:        b,
		order:       binary.LittleEndian,
		samples:     1,
		bits:        1,
		compression: 1,
		predictor:   1,
	}
	if b[0] == 'M' {
		t.order = binary.BigEndian
	}
	if len(b) < 8 {
		return bad("the header is truncated")
	}
	at := int64(t.order.Uint32(b[4:])) // offset of the first directory
	if at+2 > int64(len(b)) {
		return bad("the directory is beyond the end")
	}
	n := int64(t.order.Uint16(b[at:]))
	if at+2+12*n > int64(len(b)) {
		return bad("the directory of %d entries is truncated", n)
	}
	const tagTileWidth, formatFloat = 322, 3
	var tileWidth, sampleFormat int
	// The first value of a tag goes to first, and all values of a tag to lists.
	first := map[uint16]*int{
		256:          &t.width,
		257:          &t.height,
		258:          &t.bits,
		259:          &t.compression,
		262:          &t.photometric,
		277:          &t.samples,
		278:          &t.rowsPerStrip,
		317:          &t.predictor,
		tagTileWidth: &tileWidth,
		339:          &sampleFormat,
	}
	lists := map[uint16]*[]uint32{273: &t.offsets, 279: &t.lengths}
	for i := range n {
		e := b[at+2+12*i:][:12]
		tag := t.order.Uint16(e)
		if first[tag] == nil && lists[tag] == nil {
			continue
		}
		v, err := t.entryValues(e)
		if err != nil {
			return nil, err
		}
		if len(v) == 0 {
			return bad("tag %d is empty", tag)
		}
		if lists[tag] != nil {
			*lists[tag] = v
		} else {
			*first[tag] = int(v[0])
		}
		t.tiled = t.tiled || tag == tagTileWidth
	}
	t.float = sampleFormat == formatFloat
	if t.width > math.MaxInt32 || t.height > math.MaxInt32 {
		return bad("%d×%d pixels", t.width, t.height)
	}
	return t, nil
}

// entryValues reads the BYTE, SHORT or LONG values of an entry. An entry has 12 bytes: tag, type,
// count, and the values or their offset.
func (t *tiffFile) entryValues(e []byte) ([]uint32, error) {
	kind, count := t.order.Uint16(e[2:]), int64(t.order.Uint32(e[4:]))
	width := map[uint16]int64{1: 1, 3: 2, 4: 4}[kind]
	if width == 0 {
		return nil, stillError(
			robocache.ErrMalformed,
			"tiff: tag %d of type %d",
			t.order.Uint16(e),
			kind,
		)
	}
	d := e[8:]
	if count*width > 4 { // the values do not fit into the entry
		off := int64(t.order.Uint32(d))
		if count*width > int64(len(t.data))-off {
			return nil, stillError(
				robocache.ErrMalformed,
				"tiff: %d values of tag %d are beyond the end",
				count,
				t.order.Uint16(e),
			)
		}
		d = t.data[off:]
	}
	v := make([]uint32, count)
	for i := range v {
		switch width {
		case 1:
			v[i] = uint32(d[i])
		case 2:
			v[i] = uint32(t.order.Uint16(d[2*i:]))
		case 4:
			v[i] = t.order.Uint32(d[4*i:])
		}
	}
	return v, nil
}

// stillInfo returns the description of the image.
func (t *tiffFile) stillInfo() StillInfo {
	info := StillInfo{
		Format:   "tiff",
		Width:    t.width,
		Height:   t.height,
		Channels: 3,
		DType:    robocache.Uint8,
	}
	if t.photometric <= 1 && t.samples <= 2 {
		info.Channels = 1
		switch {
		case t.bits == 16 && !t.float:
			info.DType = robocache.Uint16
		case t.bits == 32 && t.float:
			info.DType = robocache.Float32
		}
	}
	return info
}

// checkDeepGrey returns an error if a grey image of 16 or 32 bits has an unsupported form.
func (t *tiffFile) checkDeepGrey() error {
	if t.samples != 1 || t.photometric != 1 || t.float && (t.tiled || t.predictor != 1) {
		return stillError(
			robocache.ErrUnsupported,
			"tiff: grey of %d bits with %d samples, photometric %d, predictor %d, tiles %v",
			t.bits,
			t.samples,
			t.photometric,
			t.predictor,
			t.tiled,
		)
	}
	return nil
}

// readFloats decodes a one-channel image of 32-bit floats into little-endian rows.
func (t *tiffFile) readFloats() ([]byte, error) {
	row := 4 * t.width
	if t.rowsPerStrip <= 0 || t.rowsPerStrip > t.height {
		t.rowsPerStrip = t.height
	}
	strips := (t.height + t.rowsPerStrip - 1) / t.rowsPerStrip
	if len(t.offsets) != strips || len(t.lengths) != strips {
		return nil, stillError(
			robocache.ErrMalformed,
			"tiff: %d offsets and %d lengths for %d strips",
			len(t.offsets),
			len(t.lengths),
			strips,
		)
	}
	out := make([]byte, row*t.height)
	for s := range strips {
		off, n := int64(t.offsets[s]), int64(t.lengths[s])
		if off+n > int64(len(t.data)) {
			return nil, stillError(robocache.ErrMalformed, "tiff: strip %d exceeds the file", s)
		}
		firstRow, endRow := s*t.rowsPerStrip, min((s+1)*t.rowsPerStrip, t.height)
		to := out[firstRow*row : endRow*row]
		packed := bytes.NewReader(t.data[off : off+n])
		var r io.Reader
		switch t.compression {
		case 1: // none
			r = packed
		case 8, 32946: // Deflate, in its two numbers
			z, err := zlib.NewReader(packed)
			if err != nil {
				return nil, robocache.Malformed(opStill, nil, "tiff: strip %d", s).WithCause(err)
			}
			r = z
		case 5: // LZW
			r = lzw.NewReader(packed, lzw.MSB, 8)
		default:
			return nil, stillError(
				robocache.ErrUnsupported,
				"tiff: compression %d for grey of %d bits",
				t.compression,
				t.bits,
			)
		}
		if _, err := io.ReadFull(r, to); err != nil {
			return nil, robocache.Malformed(opStill, nil, "tiff: strip %d is truncated", s).
				WithCause(err)
		}
	}
	if t.order == binary.BigEndian {
		for i := 0; i < len(out); i += 4 {
			slices.Reverse(out[i : i+4])
		}
	}
	return out, nil
}

// decodeGrey decodes an image to Gray16, DepthMM or DepthM.
func decodeGrey(encoded []byte, info StillInfo, spec *Spec, dst []byte) error {
	le := binary.LittleEndian
	var t *tiffFile
	var raw []byte // little-endian rows of info.DType
	var err error
	if info.Format == "tiff" && info.DType != robocache.Uint8 {
		if t, err = parseTIFF(encoded); err == nil {
			err = t.checkDeepGrey()
		}
		if err != nil {
			return err
		}
	}
	switch {
	case t != nil && t.float:
		raw, err = t.readFloats()
	case info.Format == "jpeg" && turbojpeg.Native():
		raw = make([]byte, info.Width*info.Height)
		err = turbojpeg.Decode(raw, encoded, info.Width, info.Height, 1)
	default:
		raw = make([]byte, info.Width*info.Height*info.DType.Size())
		if info.Format == "png" && fastGreyPNG(encoded, info, raw) {
			break
		}
		img, failed := decodeImage(encoded, info)
		if failed != nil {
			return failed
		}
		switch m := img.(type) {
		case *image.Gray16:
			for i := range info.Width * info.Height {
				x, y := i%info.Width, i/info.Width
				le.PutUint16(raw[2*i:], be.Uint16(m.Pix[y*m.Stride+2*x:]))
			}
		case *image.Gray:
			for y := range info.Height {
				copy(raw[y*info.Width:], m.Pix[y*m.Stride:][:info.Width])
			}
		default:
			return stillError(
				robocache.ErrUnsupported,
				"a grey %s with transparency cannot be delivered as depth",
				info.Format,
			)
		}
	}
	if err == nil {
		deliverGrey(raw, info.Width*info.DType.Size(), info, spec, dst)
	}
	return err
}
