package video

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/goatnote-inc/robocache"
)

// PlaneInfo describes the layout and meaning of stored planes. The zero value is invalid.
type PlaneInfo struct {
	Width, Height int32 // coded size, before rotation
	Format        uint8 // number of the pixel format, see PlaneFormat
	Matrix        uint8 // matrix code of H.273
	FullRange     bool
	// degrees clockwise that the delivered frame is rotated by: 0, 90, 180 or 270
	Rotation int16
}

// PlanarFrame is a Frame whose planes can be stored and converted later.
type PlanarFrame interface {
	Frame
	// PlaneInfo describes the planes. ok is false if they cannot be stored, so that the frame must
	// be decoded again.
	PlaneInfo() (info PlaneInfo, ok bool)
	// CopyPlanes writes the planes to dst, which must have PlaneInfo's Bytes.
	CopyPlanes(dst []byte) error
}

// PlaneConverter is implemented by a Backend that converts stored planes.
type PlaneConverter interface {
	ConvertPlanes(info PlaneInfo, planes []byte, spec *Spec, dst []byte) error
}

// PixelMover is implemented by a Backend that moves pixels faster than Go code does.
type PixelMover interface {
	CopyPixels(dst, src []byte)
	SplitPixels(r, g, b, rgb []byte) // splits 3 × len(r) bytes of pixels into planes
}

// pixelMover returns the registered backend's pixel mover, or nil.
func pixelMover() PixelMover {
	backendMu.RLock()
	defer backendMu.RUnlock()
	m, _ := backend.(PixelMover)
	return m
}

// CopyPixels copies src to the beginning of dst, which must be at least as long. Large copies
// bypass the processor's caches. That suits a batch, which another process reads, or this process
// much later.
func CopyPixels(dst, src []byte) {
	if m := pixelMover(); m != nil && len(src) >= streamFrom && len(dst) >= len(src) {
		m.CopyPixels(dst[:len(src)], src)
		return
	}
	copy(dst, src)
}

// splitPixels splits packed pixels into planes.
func splitPixels(r, g, b, rgb []byte) {
	n := len(r)
	g, b, rgb = g[:n], b[:n], rgb[:3*n]
	if m := pixelMover(); m != nil && n > 0 {
		m.SplitPixels(r, g, b, rgb)
		return
	}
	for i := range r {
		p := rgb[3*i : 3*i+3 : 3*i+3]
		r[i], g[i], b[i] = p[0], p[1], p[2]
	}
}

// streamFrom is the size above which a copy that bypasses the caches is faster.
const streamFrom = 64 << 10

// ConvertPlanes converts stored planes to dst. The bytes are identical to those of Convert of the
// original frame. dst must have info.Shape().Bytes(spec) bytes. Safe for concurrent use, also with
// the same planes.
func ConvertPlanes(info PlaneInfo, planes []byte, spec *Spec, dst []byte) (err error) {
	b, err := ActiveBackend()
	if err != nil {
		return err
	}
	c, ok := b.(PlaneConverter)
	if !ok {
		return robocache.Unsupported(
			opConvert,
			nil,
			"the decoders of %s cannot convert stored planes",
			b.Name(),
		)
	}
	if err := info.validatePlanes(); err != nil {
		return err
	}
	if n := info.Bytes(); len(planes) != n {
		return robocache.Malformed(opConvert, nil, "the stored planes have another size").
			Expected(fmt.Sprintf("%d bytes", n), fmt.Sprint(len(planes)))
	}
	return c.ConvertPlanes(info, planes, spec, dst)
}

// planeFormat is a planar pixel format of libavutil.
type planeFormat struct {
	name     string
	planes   uint8
	shiftX   uint8 // log2 of the subsampling of the second and third plane
	shiftY   uint8
	sample   uint8 // bytes per sample
	lumaBits uint8 // 0 if the first plane is not luma
}

// PlaneFormats is the number of formats, including the invalid format 0.
const PlaneFormats = 36

// planeFormats lists the formats that can be stored. The index is written to caches, so new formats
// are appended. Format 0 is invalid.
var planeFormats = func() (formats [PlaneFormats]planeFormat) {
	shifts := map[string][2]uint8{
		"420": {1, 1},
		"422": {1, 0},
		"440": {0, 1},
		"411": {2, 0},
		"410": {2, 2},
	}
	form := regexp.MustCompile(`^([a-z]+?)(\d{3})?p?(\d*)(le)?$`) // color model, chroma, p, bits
	for i, name := range strings.Fields(`
		yuv420p yuvj420p yuv422p yuvj422p yuv444p yuvj444p yuv440p yuvj440p yuv411p yuv410p
		yuv420p9le yuv422p9le yuv444p9le
		yuv420p10le yuv422p10le yuv444p10le yuv440p10le
		yuv420p12le yuv422p12le yuv444p12le yuv440p12le
		yuv420p14le yuv422p14le yuv444p14le
		gray gray9le gray10le gray12le gray14le gray16le gbrp gbrp9le gbrp10le gbrp12le gbrp14le`) {
		m := form.FindStringSubmatch(name)
		bits, _ := strconv.Atoi(cmp.Or(m[3], "8"))
		f := planeFormat{
			name:     name,
			planes:   3,
			shiftX:   shifts[m[2]][0],
			shiftY:   shifts[m[2]][1],
			sample:   uint8((bits + 7) / 8),
			lumaBits: uint8(bits),
		}
		switch m[1] {
		case "gray":
			f.planes = 1
		case "gbr":
			f.lumaBits = 0
		}
		formats[i+1] = f
	}
	return formats
}()

// PlaneFormatName returns libavutil's name of a format, or "" if the number is unknown.
func PlaneFormatName(format uint8) string {
	if int(format) >= len(planeFormats) {
		return ""
	}
	return planeFormats[format].name
}

// PlaneFormat returns the number of a format by libavutil's name, or 0 if its planes cannot be
// stored.
func PlaneFormat(name string) uint8 {
	for i := range planeFormats {
		if planeFormats[i].name == name && name != "" {
			return uint8(i)
		}
	}
	return 0
}

// planeFormat returns the description of the format, or of the invalid format 0.
func (i PlaneInfo) planeFormat() *planeFormat {
	if int(i.Format) >= len(planeFormats) {
		return &planeFormats[0]
	}
	return &planeFormats[i.Format]
}

// Plane is the layout of one stored plane.
type Plane struct {
	Offset, Stride int // in bytes; offsets are multiples of 64, strides of 16
	RowBytes, Rows int // used bytes and rows
}

// Rows are padded so that vector code, which processes blocks of up to 16 bytes of a row, reads
// nothing outside. Planes are padded so that each begins at a cache line.
const (
	rowAlign   = 16
	planeAlign = 64
)

// Planes returns the layouts of the planes and their number.
func (i PlaneInfo) Planes() (planes [3]Plane, count int) {
	f := i.planeFormat()
	offset := 0
	for k := range int(f.planes) {
		w, h := int(i.Width), int(i.Height)
		if k > 0 {
			// A chroma plane is smaller by a power of two, rounded up.
			factorX, factorY := 1<<f.shiftX, 1<<f.shiftY
			w, h = (w+factorX-1)>>f.shiftX, (h+factorY-1)>>f.shiftY
		}
		p := &planes[k]
		p.Offset, p.RowBytes, p.Rows = offset, w*int(f.sample), h
		// Strides and offsets are rounded up to powers of two.
		p.Stride = (p.RowBytes + rowAlign - 1) &^ (rowAlign - 1)
		offset += (p.Stride*h + planeAlign - 1) &^ (planeAlign - 1)
	}
	return planes, int(f.planes)
}

// Bytes returns the size of the stored planes, a multiple of 64.
func (i PlaneInfo) Bytes() int {
	planes, n := i.Planes()
	if n == 0 {
		return 0
	}
	last := &planes[n-1]
	return last.Offset + (last.Stride*last.Rows+planeAlign-1)&^(planeAlign-1)
}

// Shape returns the shape of the frame.
func (i PlaneInfo) Shape() Shape {
	s := Shape{Width: int(i.Width), Height: int(i.Height), Format: PlaneFormatName(i.Format)}
	if i.Rotation%180 != 0 {
		s.Width, s.Height = s.Height, s.Width
	}
	planes, n := i.Planes()
	for k := range n {
		s.PlanesBytes += planes[k].RowBytes * planes[k].Rows
	}
	s.LumaBits = i.LumaBits()
	return s
}

// LumaBits returns the bits per sample of the first plane, or 0 if it is not luma.
func (i PlaneInfo) LumaBits() int { return int(i.planeFormat().lumaBits) }

// planeInfoBytes is the length of an encoded PlaneInfo.
const planeInfoBytes = 16

// Append appends the encoded info to b: 16 bytes.
func (i PlaneInfo) Append(b []byte) []byte {
	le := binary.LittleEndian
	b = append(
		le.AppendUint32(le.AppendUint32(b, uint32(i.Width)), uint32(i.Height)),
		i.Format,
		i.Matrix,
		0,
		0,
	)
	if i.FullRange {
		b[len(b)-2] = 1
	}
	return append(le.AppendUint16(b, uint16(i.Rotation)), 0, 0)
}

// ParsePlaneInfo parses the bytes that Append wrote.
func ParsePlaneInfo(b []byte) (_ PlaneInfo, err error) {
	if len(b) != planeInfoBytes {
		return PlaneInfo{}, robocache.Malformed("read plane info", nil, "").
			Expected(fmt.Sprintf("%d bytes", planeInfoBytes), fmt.Sprint(len(b)))
	}
	i := PlaneInfo{
		Width:     int32(binary.LittleEndian.Uint32(b)),
		Height:    int32(binary.LittleEndian.Uint32(b[4:])),
		Format:    b[8],
		Matrix:    b[9],
		FullRange: b[10] == 1,
		Rotation:  int16(binary.LittleEndian.Uint16(b[12:])),
	}
	if b[10] > 1 || b[11]|b[14]|b[15] != 0 {
		return PlaneInfo{}, robocache.Malformed(
			"read plane info",
			nil,
			"bytes that must be zero are not zero",
		)
	}
	if err := i.validatePlanes(); err != nil {
		return PlaneInfo{}, err
	}
	return i, nil
}

// validatePlanes returns an error if the format, the size or the rotation is invalid.
func (i PlaneInfo) validatePlanes() error {
	switch {
	case i.Format == 0 || int(i.Format) >= len(planeFormats):
	case i.Width <= 0 || i.Height <= 0 || int64(i.Width)*int64(i.Height) > MaxImagePixels:
	case i.Rotation != 0 && i.Rotation != 90 && i.Rotation != 180 && i.Rotation != 270:
	default:
		return nil
	}
	return robocache.Malformed("read plane info", nil, "").
		Expected(
			"a known format, at most 256 Mpixel, a rotation of 0, 90, 180 or 270 degrees",
			fmt.Sprintf("format %d, %d×%d, %d degrees", i.Format, i.Width, i.Height, i.Rotation),
		)
}
