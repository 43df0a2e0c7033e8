package ros2

import (
	"bytes"
	"encoding/binary"
	"image"
	_ "image/jpeg" // sizes of JPEG images
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
	packetStream
	seen                 bool
	rows, cols, channels int
	dtype                robocache.DType
	depth                bool
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
	if err == nil && d.coding != "" && len(m.data) > 0 {
		return d.addPacket(m.data, row == nil)
	}
	if err != nil || d.seen || len(m.data) == 0 {
		return err
	}
	data, float, depth := m.depthPNG()
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
		d.seen, d.coding = true, codec
		return d.addPacket(m.data, row == nil)
	}
	if !depth {
		if data = m.data; imageFormat(data) == "" {
			return m.unsupportedFormat()
		}
	}
	d.dtype, d.channels, d.depth = robocache.Uint8, 3, depth
	if cfg, kind, err := image.DecodeConfig(bytes.NewReader(data)); err == nil {
		d.rows, d.cols = cfg.Height, cfg.Width
		// The color type is gray, possibly with alpha.
		if kind == "png" && len(data) > 25 && data[25]&^4 == 0 {
			d.channels = 1
			if data[24] == 16 {
				d.dtype = robocache.Uint16
			}
		}
		if kind == "jpeg" && isGreyJPEG(data) {
			d.channels = 1
		}
	} else if imageFormat(data) != "tiff" {
		return robocache.Malformed("cdr", robocache.Where{
			"field": "data",
		}, "the image's head is not readable").
			WithCause(err)
	}
	if float {
		d.dtype = robocache.Float32
	}
	d.seen = true
	return nil
}

// isGreyJPEG reports whether the frame header has one component.
func isGreyJPEG(data []byte) bool {
	for at := 2; at+9 < len(data) && data[at] == 0xff; {
		marker, size := data[at+1], int(binary.BigEndian.Uint16(data[at+2:]))
		if marker >= 0xc0 && marker <= 0xcf && marker != 0xc4 && marker != 0xc8 && marker != 0xcc {
			return data[at+9] == 1
		}
		if marker == 0xff {
			at++
			continue
		}
		at += 2 + size
	}
	return false
}

func (d *compressed) streamLayout(key string) ([]Field, []string) {
	if d.coding != "" || d.onlyType == foxgloveVideo {
		return []Field{{Feature: d.videoFeature(), Partial: true}}, []string{key}
	}
	f := robocache.Feature{Kind: robocache.KindImage, DType: robocache.Uint8}
	if d.seen {
		f.DType, f.Height, f.Width, f.Channels = d.dtype, d.rows, d.cols, d.channels
		if d.rows > 0 {
			f.Shape = []int{f.Height, f.Width, f.Channels}
		}
		if d.depth {
			f.Unit = depthUnit(&pixels{dtype: d.dtype, depth: true})
		}
	}
	return []Field{{Feature: f}}, []string{key}
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
