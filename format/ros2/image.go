package ros2

import (
	"slices"
	"strconv"

	"github.com/goatnote-inc/robocache"
)

// pixels describes the memory layout of an encoding of sensor_msgs/Image and its decoded form.
type pixels struct {
	name     string
	dtype    robocache.DType
	channels int // as stored
	bgr      bool
	drop     bool   // whether the fourth channel is alpha, which is dropped
	yuv      string // byte order of a pair of pixels: "uyvy" or "yuyv"
	depth    bool
	// orderUnstated marks encodings of colour that do not state the order of their channels.
	orderUnstated bool
}

// encodings lists the supported encodings. Images are written in the first encoding that fits.
var encodings = []pixels{
	{name: "rgb8", dtype: robocache.Uint8, channels: 3},
	{name: "bgr8", dtype: robocache.Uint8, channels: 3, bgr: true},
	{name: "rgba8", dtype: robocache.Uint8, channels: 4, drop: true},
	{name: "bgra8", dtype: robocache.Uint8, channels: 4, bgr: true, drop: true},
	{name: "mono8", dtype: robocache.Uint8, channels: 1},
	{name: "8UC1", dtype: robocache.Uint8, channels: 1},
	{name: "8UC3", dtype: robocache.Uint8, channels: 3, orderUnstated: true},
	{name: "8UC4", dtype: robocache.Uint8, channels: 4, drop: true, orderUnstated: true},
	{name: "16UC1", dtype: robocache.Uint16, channels: 1, depth: true},
	{name: "mono16", dtype: robocache.Uint16, channels: 1},
	{name: "32FC1", dtype: robocache.Float32, channels: 1, depth: true},
	{name: "yuv422", dtype: robocache.Uint8, channels: 2, yuv: "uyvy"},
	{name: "uyvy", dtype: robocache.Uint8, channels: 2, yuv: "uyvy"},
	{name: "yuv422_yuy2", dtype: robocache.Uint8, channels: 2, yuv: "yuyv"},
	{name: "yuyv", dtype: robocache.Uint8, channels: 2, yuv: "yuyv"},
}

// encodingOf returns the encoding of an image.
func encodingOf(r *robocache.Raw) (*pixels, error) {
	i := slices.IndexFunc(encodings, func(p pixels) bool {
		return p.dtype == r.DType && p.channels == r.Channels && p.yuv == "" &&
			p.bgr == (r.BGR && r.Channels > 1)
	})
	if i < 0 {
		return nil, robocache.Unsupported(
			"encode",
			nil,
			"no image encoding for %s images of %d channels",
			r.DType.String(),
			r.Channels,
		)
	}
	return &encodings[i], nil
}

func (p *pixels) outputChannels() int {
	if p.drop || p.yuv != "" {
		return 3
	}
	return p.channels
}

const maxPixels = 256 << 20

// rawImages decodes sensor_msgs/Image. It returns the pixels of the message if possible, or else a
// copy in RGB.
type rawImages struct {
	onlyType
	imageLayout
	restored      bool
	pix           pixels // of Encoding
	changed       int64
	orderUnstated string // the first encoding met that does not state its channel order
}

type imageLayout struct {
	Encoding string `json:"encoding"` // the first image's; "" without an image
	Height   int    `json:"height"`
	Width    int    `json:"width"`
	Varies   bool   `json:"varies,omitempty"` // some images differ from the first one
	// channel order of encodings that do not state it, or of all if ForceOrder is set: "rgb", "bgr"
	// or ""
	Order      string `json:"order,omitempty"`
	ForceOrder bool   `json:"force_order,omitempty"`
}

func (d *rawImages) learnedState() any { return &d.imageLayout }

func (d *rawImages) restoreState(fixed bool) error {
	i := slices.IndexFunc(encodings, func(p pixels) bool { return p.name == d.Encoding })
	switch {
	case d.Encoding == "":
	case i < 0:
		return layoutError("encoding", "an encoding of images", strconv.Quote(clipText(d.Encoding)))
	default:
		d.pix = encodings[i]
	}
	d.restored = fixed
	return nil
}

// describeImage returns encoding and size of an image, for messages.
func describeImage(encoding string, height, width int) string {
	return encoding + ", " + strconv.Itoa(width) + "×" + strconv.Itoa(height)
}

// imageMessage is a parsed Image.
type imageMessage struct {
	height, width int
	encoding      []byte
	big           bool // byte order of 16- and 32-bit pixels
	step          int
	data          []byte
}

func parseImage(msg []byte) (m imageMessage, err error) {
	c := newCursor(msg)
	c.header()
	m.height, m.width = int(c.u32()), int(c.u32())
	m.encoding = c.str()
	m.big = c.u8() != 0
	m.step = int(c.u32())
	m.data = c.take(1, c.count(1))
	return m, c.finish("data")
}

// checkImage finds the encoding and checks the sizes against the bytes.
func (m *imageMessage) checkImage() (p pixels, err error) {
	i := slices.IndexFunc(encodings, func(p pixels) bool { return p.name == string(m.encoding) })
	if i < 0 {
		return p, robocache.Unsupported(
			"cdr",
			robocache.Where{"field": "encoding"},
			"image encoding %q is not read",
			clipText(string(m.encoding)),
		)
	}
	// Both numbers have 32 bits, so the product does not overflow.
	if p = encodings[i]; uint64(m.height)*uint64(m.width) > maxPixels {
		return p, robocache.ResourceLimit(
			"cdr",
			robocache.Where{"field": "width"},
			"an image of %d × %d",
			m.width,
			m.height,
		)
	}
	row := m.width * p.channels * p.dtype.Size()
	if m.height == 0 || m.width == 0 {
		return p, robocache.Malformed(
			"cdr",
			robocache.Where{"field": "height"},
			"an image without pixels",
		)
	}
	if m.step < row || int64(m.step)*int64(m.height-1)+int64(row) > int64(len(m.data)) {
		return p, robocache.Malformed("cdr", robocache.Where{"field": "data"}, "").
			Expected(
				strconv.Itoa(m.height)+
					" rows of "+strconv.Itoa(m.step)+
					" bytes, each at least "+strconv.Itoa(row),
				strconv.Itoa(len(m.data))+" bytes",
			)
	}
	return p, nil
}

func (d *rawImages) scanMessage(msg []byte, row rowFunc) error {
	m, err := parseImage(msg)
	if err != nil {
		return err
	}
	if d.Encoding != "" {
		sameEncoding := string(m.encoding) == d.Encoding
		if m.height != d.Height || m.width != d.Width || !sameEncoding {
			d.Varies = true
			if row != nil {
				d.changed++
			}
		}
		if !sameEncoding && d.orderUnstated == "" {
			if p, err := m.checkImage(); err == nil && p.orderUnstated {
				d.orderUnstated = p.name
			}
		}
		return nil
	}
	p, err := m.checkImage()
	if err != nil {
		return err
	}
	d.Encoding, d.pix, d.Height, d.Width = p.name, p, m.height, m.width
	if p.orderUnstated {
		d.orderUnstated = p.name
	}
	return nil
}

// isBGR reports whether the channels of an image in encoding p are blue, green, red.
func (d *rawImages) isBGR(p *pixels) bool {
	if d.Order != "" &&
		(p.orderUnstated || d.ForceOrder && p.outputChannels() == 3 && p.yuv == "") {
		return d.Order == "bgr"
	}
	return p.bgr
}

// UnstatedChannelOrder returns the encoding of the topic's colour images if that encoding does not
// state the order of the channels, else "".
func (t *Topic) UnstatedChannelOrder() string {
	if d, ok := t.decoder.(*rawImages); ok {
		return d.orderUnstated
	}
	return ""
}

// HasRawColour reports whether the topic holds sensor_msgs/Image with channels of colour.
func (t *Topic) HasRawColour() bool {
	d, ok := t.decoder.(*rawImages)
	return ok && (d.orderUnstated != "" || d.pix.outputChannels() == 3 && d.pix.yuv == "")
}

// SetChannelOrder states that the channels of images are in the order "rgb" or "bgr". It overrides
// an encoding that states the order only if force is true. It reports whether HasRawColour. It must
// not be called concurrently with Image.
func (t *Topic) SetChannelOrder(order string, force bool) bool {
	if !t.HasRawColour() {
		return false
	}
	d, _ := t.decoder.(*rawImages)
	d.Order, d.ForceOrder = order, force
	return true
}

func (d *rawImages) streamLayout(key string) ([]Field, []string) {
	f := robocache.Feature{Kind: robocache.KindImage, DType: robocache.Uint8}
	if d.Encoding != "" {
		f.DType, f.Channels = d.pix.dtype, d.pix.outputChannels()
		f.Height, f.Width = d.Height, d.Width
		f.Shape = []int{f.Height, f.Width, f.Channels}
		f.Unit = depthUnit(&d.pix)
	}
	return []Field{{Feature: f}}, []string{key}
}

// depthUnit returns the unit according to REP 118: 16-bit depth is in millimeters, float depth in
// meters.
func depthUnit(p *pixels) string {
	switch {
	case p.depth && p.dtype == robocache.Uint16:
		return "mm"
	case p.depth:
		return "m"
	}
	return ""
}

func (d *rawImages) decodeFrame(msg []byte, _, _ int) (robocache.FrameRef, error) {
	m, err := parseImage(msg)
	if err != nil {
		return robocache.FrameRef{}, err
	}
	p, err := m.checkImage()
	if d.restored && !d.Varies && err == nil &&
		(p.name != d.Encoding || m.height != d.Height || m.width != d.Width) {
		err = layoutError("encoding", describeImage(d.Encoding, d.Height, d.Width),
			describeImage(p.name, m.height, m.width))
	}
	if err != nil {
		return robocache.FrameRef{}, err
	}
	raw := &robocache.Raw{
		Pix:      m.data,
		Height:   m.height,
		Width:    m.width,
		Channels: p.outputChannels(),
		DType:    p.dtype,
		Stride:   m.step,
		BGR:      d.isBGR(&p),
	}
	switch {
	case p.yuv != "":
		if m.width%2 != 0 {
			return robocache.FrameRef{}, robocache.Malformed("cdr", nil, "").
				Expected("an even width of a YUV 4:2:2 image", strconv.Itoa(m.width))
		}
		raw.Pix, raw.Stride = rgbFromYUV(&m, p.yuv), 0
	case p.drop:
		raw.Pix, raw.Stride = dropAlpha(&m), 0
	case m.big && p.dtype.Size() > 1:
		size := p.dtype.Size()
		raw.Pix, raw.Stride = make([]byte, m.height*m.width*size), 0
		for y := range m.height {
			swapBytes(raw.Pix[y*m.width*size:], m.data[y*m.step:y*m.step+m.width*size], size)
		}
	}
	return robocache.FrameRef{Raw: raw}, nil
}

func dropAlpha(m *imageMessage) []byte {
	out := make([]byte, m.height*m.width*3)
	o := out
	for y := range m.height {
		src := m.data[y*m.step : y*m.step+4*m.width]
		for len(src) >= 4 && len(o) >= 3 {
			o[0], o[1], o[2] = src[0], src[1], src[2]
			src, o = src[4:], o[3:]
		}
	}
	return out
}

// rgbFromYUV converts like OpenCV (BT.601, limited range, 20-bit fixed point), so that the result
// equals that of cv_bridge.
func rgbFromYUV(m *imageMessage, order string) []byte {
	y0, u, y1, v := 1, 0, 3, 2
	if order == "yuyv" {
		y0, u, y1, v = 0, 1, 2, 3
	}
	out := make([]byte, 0, m.height*m.width*3)
	for y := range m.height {
		src := m.data[y*m.step : y*m.step+2*m.width]
		for x := 0; x+4 <= len(src); x += 4 {
			cu, cv := int(src[x+u])-128, int(src[x+v])-128
			const half = 1 << 19
			r, g, b := half+1673527*cv, half-852492*cv-409993*cu, half+2116026*cu
			for _, l := range [2]int{y0, y1} {
				luma := max(0, int(src[x+l])-16) * 1220542
				out = append(
					out,
					clampToByte((luma+r)>>20),
					clampToByte((luma+g)>>20),
					clampToByte((luma+b)>>20),
				)
			}
		}
	}
	return out
}

func clampToByte(v int) byte { return byte(max(0, min(255, v))) }

func (d *rawImages) scanFindings() []robocache.Finding {
	return countedFinding(
		d.changed,
		robocache.Finding{
			Severity: robocache.SeverityWarning,
			Code:     "image-changed",
			Message:  "images differ in size or encoding from the first one",
		},
	)
}
