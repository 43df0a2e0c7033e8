package ros2

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"image"
	"image/png"
	"math"
	"strings"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/video"
)

// compressed decodes sensor_msgs/CompressedImage. The type of an image is determined by its first
// bytes, because the format text is free and often wrong. Messages of foxglove's CompressedVideo
// are always video packets. Messages of CompressedImage are video packets if their format names a
// codec.
type compressed struct {
	onlyType
	compressedLayout
	restored bool
	stream   *video.Stream // used until the size of video is known
}

// compressedLayout holds the properties of the first image.
type compressedLayout struct {
	Codec    video.Codec     `json:"codec,omitempty"` // "" for still images
	Height   int             `json:"height,omitempty"`
	Width    int             `json:"width,omitempty"`
	Channels int             `json:"channels,omitempty"` // 0 before the first image
	DType    robocache.DType `json:"dtype,omitempty"`
	Depth    bool            `json:"depth,omitempty"`
	Varies   bool            `json:"varies,omitempty"` // some still images differ from the first one
}

func (d *compressed) learnedState() any { return &d.compressedLayout }

func (d *compressed) restoreState(fixed bool) (err error) {
	if d.restored = fixed; d.Codec != "" {
		d.stream, err = video.NewStream(d.Codec, video.Limits{})
	}
	return err
}

type compressedMessage struct {
	format, data []byte
}

func (d *compressed) parseCompressed(msg []byte, m *compressedMessage) error {
	c := newCursor(msg)
	c.header() // foxglove's type has the same members under other names
	if d.onlyType == foxgloveVideo {
		m.data = c.take(1, c.count(1))
		m.format = c.str()
	} else {
		m.format = c.str()
		m.data = c.take(1, c.count(1))
	}
	return c.finish("data")
}

// depthHead is the size of the header that compressed_depth_image_transport writes before the PNG:
// a format number and two parameters of the quantization of inverse depth.
const depthHead = 12

// depthPNG returns the PNG of a compressed depth image. float reports whether it holds quantized
// inverse depth (32FC1).
func (m *compressedMessage) depthPNG() (data []byte, float, ok bool) {
	if !bytes.Contains(m.format, []byte("compressedDepth")) || len(m.data) < depthHead ||
		imageFormat(m.data[depthHead:]) != "png" {
		return nil, false, false
	}
	return m.data[depthHead:], bytes.HasPrefix(bytes.TrimSpace(m.format), []byte("32FC1")), true
}

func (m *compressedMessage) unsupportedFormat() error {
	return robocache.Unsupported("cdr", robocache.Where{
		"field": "data",
	}, "compressed image of format %q is not read", clipText(
		strings.ToValidUTF8(string(m.format), "?"),
	)).
		WithHint(
			"JPEG, PNG, TIFF, the PNG of compressedDepth, and H.264 and H.265 in Annex B form are",
		)
}

func (d *compressed) scanMessage(msg []byte, row rowFunc) error {
	var m compressedMessage
	err := d.parseCompressed(msg, &m)
	if err == nil && d.Codec != "" && len(m.data) > 0 {
		return d.addPacket(m.data, row == nil)
	}
	if err != nil || len(m.data) == 0 {
		return err
	}
	if d.Channels > 0 {
		if l, err := m.describeStill(); err == nil && l != d.stillLayout() {
			d.Varies = true
		}
		return nil
	}
	_, _, depth := m.depthPNG()
	codec := codecOf(m.format)
	if d.onlyType == foxgloveVideo && codec == "" {
		return robocache.Unsupported("cdr", robocache.Where{
			"field": "format",
		}, "video of format %q is not read", clipText(strings.ToValidUTF8(string(m.format), "?"))).
			WithHint("h264, h265, av1 and vp9 are")
	}
	if d.onlyType == foxgloveVideo || codec != "" && !depth && video.IsAnnexB(m.data) {
		if d.stream, err = video.NewStream(codec, video.Limits{}); err != nil {
			return err
		}
		d.Codec, d.Channels, d.DType = codec, 3, robocache.Uint8
		return d.addPacket(m.data, row == nil)
	}
	l, err := m.describeStill()
	if err == nil {
		d.compressedLayout = l
	}
	return err
}

// stillLayout returns the properties of the first still image.
func (d *compressed) stillLayout() compressedLayout {
	l := d.compressedLayout
	l.Varies = false
	return l
}

// describeStill reads the properties of a still image from its header.
func (m *compressedMessage) describeStill() (l compressedLayout, err error) {
	data, float, depth := m.depthPNG()
	if !depth {
		if data = m.data; imageFormat(data) == "" {
			return l, m.unsupportedFormat()
		}
	}
	info, err := video.StillSize(data)
	if err != nil && info.Format != "tiff" {
		return l, robocache.Malformed("cdr", robocache.Where{
			"field": "data",
		}, "the image's head is not readable").
			WithCause(err)
	}
	l = compressedLayout{
		Height:   info.Height,
		Width:    info.Width,
		Channels: 3,
		DType:    robocache.Uint8,
		Depth:    depth,
	}
	switch {
	case info.Format == "tiff":
	case info.Format == "png" && info.Channels == 1 && data[24] == 16:
		l.Channels, l.DType = 1, robocache.Uint16
	default:
		l.Channels = info.Channels
	}
	if float {
		l.DType = robocache.Float32
	}
	return l, nil
}

// checkStill returns an error if a still image differs from those of the recording.
func (d *compressed) checkStill(m *compressedMessage) error {
	if !d.restored || d.Varies {
		return nil
	}
	got, err := m.describeStill()
	if want := d.stillLayout(); err == nil && got != want {
		return layoutError("data", want.describe(), got.describe())
	}
	return err
}

// describe returns the properties of an image, for messages.
func (l *compressedLayout) describe() string {
	kind := "images"
	switch {
	case l.Codec != "":
		kind = "video of " + string(l.Codec)
	case l.Depth:
		kind = "depth"
	}
	return fmt.Sprintf("%s, %d×%d×%d of %s", kind, l.Width, l.Height, l.Channels, l.DType)
}

func (d *compressed) streamLayout(key string) ([]Field, []string) {
	f := robocache.Feature{Kind: robocache.KindImage, DType: robocache.Uint8}
	if d.Channels > 0 {
		f.DType, f.Height, f.Width, f.Channels = d.DType, d.Height, d.Width, d.Channels
		if d.Height > 0 {
			f.Shape = []int{f.Height, f.Width, f.Channels}
		}
		if d.Depth {
			f.Unit = depthUnit(&pixels{dtype: d.DType, depth: true})
		}
	}
	isVideo := d.Codec != "" || d.onlyType == foxgloveVideo
	if isVideo {
		f.Kind, f.Codec, f.Channels = robocache.KindVideo, string(d.Codec), 3
	}
	return []Field{{Feature: f, Partial: isVideo}}, []string{key}
}

func (d *compressed) decodeFrame(msg []byte, _, _ int) (robocache.FrameRef, error) {
	var m compressedMessage
	if err := d.parseCompressed(msg, &m); err != nil {
		return robocache.FrameRef{}, err
	}
	if d.onlyType == foxgloveVideo {
		return robocache.FrameRef{}, d.unsupportedError("still images")
	}
	if len(m.data) == 0 {
		return robocache.FrameRef{Missing: true}, nil
	}
	if err := d.checkStill(&m); err != nil {
		return robocache.FrameRef{}, err
	}
	data, float, depth := m.depthPNG()
	switch {
	case float:
		raw, err := inverseDepth(data, m.data[:depthHead])
		return robocache.FrameRef{Raw: raw}, err
	case depth:
		return robocache.FrameRef{Encoded: data}, nil
	case imageFormat(m.data) == "":
		return robocache.FrameRef{}, m.unsupportedFormat()
	}
	return robocache.FrameRef{Encoded: m.data}, nil
}

// inverseDepth converts quantized inverse depth to meters: a / (v − b), or NaN for 0.
func inverseDepth(data, head []byte) (*robocache.Raw, error) {
	bad := func(err error) (*robocache.Raw, error) {
		return nil, robocache.Malformed("cdr", robocache.Where{
			"field": "data",
		}, "the depth PNG is not readable").
			WithCause(err)
	}
	cfg, err := png.DecodeConfig(bytes.NewReader(data))
	if err != nil {
		return bad(err)
	}
	// Deflate compresses at most 1,032 to 1, so a larger size is wrong.
	if n := int64(cfg.Width) * int64(cfg.Height); n > maxPixels || 2*n > 1100*int64(len(data)) {
		return nil, robocache.ResourceLimit(
			"cdr",
			nil,
			"a depth image of %d × %d",
			cfg.Width,
			cfg.Height,
		)
	}
	img, err := png.Decode(bytes.NewReader(data))
	if err != nil {
		return bad(err)
	}
	grey, ok := img.(*image.Gray16)
	if !ok {
		return bad(nil)
	}
	a := math.Float32frombits(binary.LittleEndian.Uint32(head[4:]))
	b := math.Float32frombits(binary.LittleEndian.Uint32(head[8:]))
	w, h := grey.Rect.Dx(), grey.Rect.Dy()
	out := make([]byte, 4*w*h)
	for y := range h {
		row := grey.Pix[y*grey.Stride:]
		for x := range w {
			v := binary.BigEndian.Uint16(row[2*x:])
			z := float32(math.NaN())
			if v != 0 {
				z = a / (float32(v) - b)
			}
			binary.LittleEndian.PutUint32(out[4*(y*w+x):], math.Float32bits(z))
		}
	}
	return &robocache.Raw{Pix: out, Height: h, Width: w, Channels: 1, DType: robocache.Float32}, nil
}
