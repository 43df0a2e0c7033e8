package ros2

import (
	"bytes"
	"strconv"
	"strings"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/video"
)

// packets is a decoder whose messages may be packets of video.
type packets interface {
	codec() video.Codec // "" where they are not
	packet(msg []byte) ([]byte, video.Codec, error)
	undecided() bool // no message so far said what its images are
}

// Codec is the coding of a topic whose messages are packets of video; "" where they are not.
func (t *Topic) Codec() video.Codec {
	if p, ok := t.dec.(packets); ok {
		return p.codec()
	}
	return ""
}

// Undecided says that no message so far said what the topic's images are: whoever skips Scan of every message reads on.
func (t *Topic) Undecided() bool {
	p, ok := t.dec.(packets)
	return ok && p.undecided()
}

// Packet gives the packet of a message, bytes of msg, none where the message holds none; and the coding that the message itself names, which in
// another recording may be another than the topic's; "" where it names none that is known.
func (t *Topic) Packet(msg []byte) ([]byte, video.Codec, error) {
	if p, ok := t.dec.(packets); ok && p.codec() != "" {
		return p.packet(msg)
	}
	return nil, "", noSuch(t.schema.Name, "packets of video")
}

// film is what the packets of a topic say of its images.
type film struct {
	coding video.Codec
	stream *video.Stream // until the size is known
	height int
	width  int
}

// look takes a packet. Of the first ones it says whether they can be decoded at all.
func (f *film) look(data []byte, first bool) error {
	if f.height > 0 && !first {
		return nil
	}
	if _, err := f.stream.Add(data); err != nil {
		return err
	}
	f.width, f.height = f.stream.Size()
	return nil
}

func (f *film) feature() robocache.Feature {
	v := robocache.Feature{Kind: robocache.KindVideo, DType: robocache.Uint8, Codec: string(f.coding), Height: f.height, Width: f.width, Channels: 3}
	if f.height > 0 {
		v.Shape = []int{f.height, f.width, 3}
	}
	return v
}

// codingOf finds the codec that a format text names.
func codingOf(format []byte) video.Codec {
	text := bytes.ReplaceAll(bytes.ToLower(format), []byte("."), nil) // "H.264" too
	for _, c := range []struct {
		name  string
		codec video.Codec
	}{{"h264", video.H264}, {"avc", video.H264}, {"h265", video.HEVC}, {"hevc", video.HEVC}, {"vp9", video.VP9}, {"av1", video.AV1}} {
		if bytes.Contains(text, []byte(c.name)) {
			return c.codec
		}
	}
	return ""
}

// foxglove's type, and its text.
const (
	foxgloveVideo     = "foxglove_msgs/CompressedVideo"
	foxgloveVideoText = "builtin_interfaces/Time timestamp\nstring frame_id\nuint8[] data\nstring format\n"
)

// compressedVideo decodes foxglove_msgs/CompressedVideo: a packet a message, which holds one image.
type compressedVideo struct{ film }

type compressedVideoMessage struct {
	timestamp    int64
	data, format []byte
}

func parseCompressedVideo(msg []byte, m *compressedVideoMessage) error {
	c, err := open(msg)
	if err != nil {
		return err
	}
	m.timestamp = c.timestamp()
	c.str()
	m.data = c.take(1, c.count(1))
	m.format = c.str()
	return c.end("data")
}

func (d *compressedVideo) scan(msg []byte, row func(clock, entry int, timestamp int64, stamped bool)) error {
	var m compressedVideoMessage
	err := parseCompressedVideo(msg, &m)
	if row != nil {
		row(0, 0, m.timestamp, err == nil || m.timestamp != 0)
	}
	if err != nil || len(m.data) == 0 {
		return err
	}
	if d.stream == nil {
		codec := codingOf(m.format)
		if codec == "" {
			return &robocache.Error{Class: robocache.ErrUnsupported, Op: "cdr", Where: robocache.Where{"field": "format"},
				Msg: "video of format " + strconv.Quote(clip(strings.ToValidUTF8(string(m.format), "?"))) + " is not read", Hint: "h264, h265, av1 and vp9 are"}
		}
		if d.stream, err = video.NewStream(codec, video.Limits{}); err != nil {
			return err
		}
		d.coding = codec
	}
	return d.look(m.data, row == nil)
}

func (d *compressedVideo) codec() video.Codec { return d.coding }

func (d *compressedVideo) undecided() bool { return d.height == 0 }

func (d *compressedVideo) packet(msg []byte) ([]byte, video.Codec, error) {
	var m compressedVideoMessage
	err := parseCompressedVideo(msg, &m)
	return m.data, codingOf(m.format), err
}

func (d *compressedVideo) layout(key string) ([]Field, []string) {
	return []Field{{Feature: d.feature(), Partial: true}}, []string{key}
}

func (d *compressedVideo) pic([]byte, int, int) (robocache.FrameRef, error) {
	return robocache.FrameRef{}, noSuch(foxgloveVideo, "still images")
}
func (d *compressedVideo) findings() []robocache.Finding { return nil }
func (d *compressedVideo) numeric([]byte, int, int, []byte) (bool, error) {
	return false, noSuch(foxgloveVideo, "numeric fields")
}
func (d *compressedVideo) columns([][]byte, []int32, []int, [][]byte, [][]uint8) (int, error) {
	return 0, noSuch(foxgloveVideo, "numeric fields")
}
func (d *compressedVideo) ragged([]byte, int, int, []byte) ([]byte, int, error) {
	return nil, 0, noSuch(foxgloveVideo, "ragged fields")
}
func (d *compressedVideo) text([]byte, int, int) (string, error) {
	return "", noSuch(foxgloveVideo, "texts")
}
