package ros2

import (
	"bytes"
	"cmp"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/video"
)

// packetDecoder returns the decoder of a topic whose messages may be video packets, or nil.
func (t *Topic) packetDecoder() *compressed {
	d, _ := t.decoder.(*compressed)
	return d
}

// Codec returns the codec of a topic of video packets, or "" for other topics.
func (t *Topic) Codec() video.Codec {
	if d := t.packetDecoder(); d != nil {
		return d.Codec
	}
	return ""
}

// Undecided reports whether no message so far determined the type of the topic's images. Callers
// that skip Scan must then read further messages.
func (t *Topic) Undecided() bool {
	d := t.packetDecoder()
	return d != nil && (d.Channels == 0 || d.Codec != "" && d.Height == 0)
}

// Packet returns the packet of a message, which aliases msg and may be empty. It also returns the
// codec that the message names, which may differ from the topic's codec in another recording. The
// codec is "" if it is unknown.
func (t *Topic) Packet(msg []byte) ([]byte, video.Codec, error) {
	d := t.packetDecoder()
	if d == nil || d.Codec == "" {
		return nil, "", onlyType(t.schema.Name).unsupportedError("packets of video")
	}
	var m compressedMessage
	err := d.parseCompressed(msg, &m)
	codec := codecOf(m.format)
	if err == nil && d.restored {
		err = d.checkPacket(m.data, codec)
	}
	return m.data, codec, err
}

// addPacket parses a packet. For the first packets, it returns an error if they cannot be decoded.
func (d *compressed) addPacket(data []byte, first bool) error {
	if d.Height > 0 && !first {
		return nil
	}
	if _, err := d.stream.Add(data); err != nil {
		return err
	}
	d.Width, d.Height = d.stream.Size()
	return nil
}

// checkPacket returns an error if a packet is not of the recording's codec and size, or if its
// frames cannot be read from messages.
func (d *compressed) checkPacket(data []byte, codec video.Codec) error {
	got := compressedLayout{Codec: cmp.Or(codec, d.Codec), Channels: 3, DType: robocache.Uint8}
	// The stream is discarded, because it keeps the sizes of all packets.
	s, err := video.NewStream(got.Codec, video.Limits{})
	if err == nil && len(data) > 0 {
		_, err = s.Add(data)
	}
	if err != nil {
		return err
	}
	if got.Width, got.Height = s.Size(); got.Height == 0 { // no key frame
		got.Width, got.Height = d.Width, d.Height
	}
	if got != d.compressedLayout {
		return layoutError("data", d.compressedLayout.describe(), got.describe())
	}
	return nil
}

// codecOf returns the codec that a format text names.
func codecOf(format []byte) video.Codec {
	text := bytes.ReplaceAll(bytes.ToLower(format), []byte("."), nil) // also matches "H.264"
	for _, c := range []struct {
		name  string
		codec video.Codec
	}{
		{"h264", video.H264},
		{"avc", video.H264},
		{"h265", video.HEVC},
		{"hevc", video.HEVC},
		{"vp9", video.VP9},
		{"av1", video.AV1},
	} {
		if bytes.Contains(text, []byte(c.name)) {
			return c.codec
		}
	}
	return ""
}

// Name and text of foxglove's type.
const (
	foxgloveVideo     = "foxglove_msgs/CompressedVideo"
	foxgloveVideoText = "builtin_interfaces/Time timestamp\nstring frame_id\nuint8[] " +
		"data\nstring format\n"
)
