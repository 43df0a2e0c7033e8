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

// PlaneInfo says how stored planes are to be read. The zero value describes nothing.
type PlaneInfo struct {
	Width, Height int32 // as coded, before rotation
	Format        uint8 // by PlaneFormat
	Matrix        uint8 // the code of H.273
	FullRange     bool
	Rotation      int16 // degrees clockwise that the delivered frame is turned by: 0, 90, 180, 270
}

// PlanarFrame is a Frame whose planes can be kept and converted later.
type PlanarFrame interface {
	Frame
	// PlaneInfo says how the planes are kept; false where they cannot be, and the frame has to be
	// decoded again.
	PlaneInfo() (PlaneInfo, bool)
	// CopyPlanes writes the planes into dst, which must have PlaneInfo's Bytes.
	CopyPlanes(dst []byte) error
}

// PlaneConverter is a Backend that converts kept planes.
type PlaneConverter interface {
	ConvertPlanes(info PlaneInfo, planes []byte, spec *Spec, dst []byte) error
}

// PixelMover is a Backend that moves pixels faster than the language does.
type PixelMover interface {
	CopyPixels(dst, src []byte)
	SplitPixels(r, g, b, rgb []byte) // 3 × len(r) bytes of pixels → planes
}

func mover() PixelMover {
	backendMu.RLock()
	defer backendMu.RUnlock()
	m, _ := backend.(PixelMover)
	return m
}

// CopyPixels copies src into dst, which is as long, or its beginning. Large copies go past the
// processor's caches: right for a batch, which another reads, or this program much later.
func CopyPixels(dst, src []byte) {
	if m := mover(); m != nil && len(src) >= streamFrom && len(dst) >= len(src) {
		m.CopyPixels(dst[:len(src)], src)
		return
	}
	copy(dst, src)
}

// split takes packed pixels apart into planes.
func split(r, g, b, rgb []byte) {
	n := len(r)
	g, b, rgb = g[:n], b[:n], rgb[:3*n]
	if m := mover(); m != nil && n > 0 {
		m.SplitPixels(r, g, b, rgb)
		return
	}
	for i := range r {
		p := rgb[3*i : 3*i+3 : 3*i+3]
		r[i], g[i], b[i] = p[0], p[1], p[2]
	}
}

// streamFrom is the size from which on a copy past the caches is faster.
const streamFrom = 128 << 10

// ConvertPlanes writes into dst what Convert of the frame that the planes came from writes, to the
// bit. dst must have info.Shape().Bytes(spec) bytes. Any number of goroutines may call it, on the
// same planes too.
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
			"the decoders %s convert no kept planes",
			b.Name(),
		)
	}
	if err := info.check(); err != nil {
		return err
	}
	if n := info.Bytes(); len(planes) != n {
		return robocache.Malformed(opConvert, nil, "kept planes of another size").
			Expected(fmt.Sprintf("%d bytes", n), fmt.Sprint(len(planes)))
	}
	return c.ConvertPlanes(info, planes, spec, dst)
}

// planeFormat is a pixel format of plain planes, in libavutil's sense.
type planeFormat struct {
	name     string
	planes   uint8
	shiftX   uint8 // of the second and third plane
	shiftY   uint8
	sample   uint8 // bytes
	lumaBits uint8 // 0 where the first plane is no luma
}

// PlaneFormats is one more than the largest number of a format.
const PlaneFormats = 36

// planeFormats are the formats that can be kept. The index is stored: append only. Number 0 is
// none.
var planeFormats = func() (formats [PlaneFormats]planeFormat) {
	shifts := map[string][2]uint8{
		"420": {1, 1},
		"422": {1, 0},
		"440": {0, 1},
		"411": {2, 0},
		"410": {2, 2},
	}
	form := regexp.MustCompile(`^([a-z]+?)(\d{3})?p?(\d*)(le)?$`) // of colour, chroma, p, bits
	for i, name := range strings.Fields(`
		yuv420p yuvj420p yuv422p yuvj422p yuv444p yuvj444p yuv440p yuvj440p yuv411p yuv410p
		yuv420p9le yuv422p9le yuv444p9le
		yuv420p10le yuv422p10le yuv444p10le yuv440p10le yuv420p12le yuv422p12le yuv444p12le yuv440p12le yuv420p14le yuv422p14le yuv444p14le
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

// PlaneFormatName gives libavutil's name of a format; "" where there is none of that number.
func PlaneFormatName(format uint8) string {
	if int(format) >= len(planeFormats) {
		return ""
	}
	return planeFormats[format].name
}

// PlaneFormat is the number of a format, by libavutil's name; 0 where its planes are not kept.
func PlaneFormat(name string) uint8 {
	for i := range planeFormats {
		if planeFormats[i].name == name && name != "" {
			return uint8(i)
		}
	}
	return 0
}

func (i PlaneInfo) format() *planeFormat {
	if int(i.Format) >= len(planeFormats) {
		return &planeFormats[0]
	}
	return &planeFormats[i.Format]
}

// Plane is where one plane lies in kept planes.
type Plane struct {
	Offset, Stride int // bytes; offsets are multiples of 64, strides of 16
	RowBytes, Rows int // what is used of it
}

// The rows are padded so that vector code, which works in blocks of up to 16 bytes of a row, reads
// nothing outside; the planes so that they begin at a cache line.
const (
	rowAlign   = 16
	planeAlign = 64
)

// Planes gives the planes' places, and how many there are.
func (i PlaneInfo) Planes() (planes [3]Plane, count int) {
	f := i.format()
	offset := 0
	for k := range int(f.planes) {
		w, h := int(i.Width), int(i.Height)
		if k > 0 {
			w, h = (w+1<<f.shiftX-1)>>f.shiftX, (h+1<<f.shiftY-1)>>f.shiftY
		}
		p := &planes[k]
		p.Offset, p.RowBytes, p.Rows = offset, w*int(f.sample), h
		p.Stride = (p.RowBytes + rowAlign - 1) &^ (rowAlign - 1)
		offset += (p.Stride*h + planeAlign - 1) &^ (planeAlign - 1)
	}
	return planes, int(f.planes)
}

// Bytes is the size of the kept planes: a multiple of 64.
func (i PlaneInfo) Bytes() int {
	planes, n := i.Planes()
	if n == 0 {
		return 0
	}
	last := &planes[n-1]
	return last.Offset + (last.Stride*last.Rows+planeAlign-1)&^(planeAlign-1)
}

// Shape is that of the frame.
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

// LumaBits is the depth of the first plane; 0 where it is no luma.
func (i PlaneInfo) LumaBits() int { return int(i.format().lumaBits) }

// planeInfoBytes is the length of a stored PlaneInfo.
const planeInfoBytes = 16

// Append stores info behind b: 16 bytes.
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

// ParsePlaneInfo reads what Append stored.
func ParsePlaneInfo(b []byte) (_ PlaneInfo, err error) {
	if len(b) != planeInfoBytes {
		return PlaneInfo{}, robocache.Malformed("read plane info", nil, "").
			Expected(fmt.Sprintf("%d bytes", planeInfoBytes), fmt.Sprint(len(b)))
	}
	i := PlaneInfo{
		Width: int32(
			binary.LittleEndian.Uint32(b),
		),
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
			"bytes that must be zero are not",
		)
	}
	if err := i.check(); err != nil {
		return PlaneInfo{}, err
	}
	return i, nil
}

func (i PlaneInfo) check() error {
	switch {
	case i.Format == 0 || int(i.Format) >= len(planeFormats):
	case i.Width <= 0 || i.Height <= 0 || int64(i.Width)*int64(i.Height) > MaxImagePixels:
	case i.Rotation != 0 && i.Rotation != 90 && i.Rotation != 180 && i.Rotation != 270:
	default:
		return nil
	}
	return robocache.Malformed("read plane info", nil, "").
		Expected("a known format, at most 256 Mpixel, a rotation of 0, 90, 180 or 270 degrees", fmt.Sprintf("format %d, %d×%d, %d degrees", i.Format, i.Width, i.Height, i.Rotation))
}
