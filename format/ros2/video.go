package ros2

import (
	"bytes"

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
		return d.coding
	}
	return ""
}

// Undecided reports whether no message so far determined the type of the topic's images. Callers
// that skip Scan must then read further messages.
func (t *Topic) Undecided() bool {
	d := t.packetDecoder()
	return d != nil && (!d.seen || d.coding != "" && d.height == 0)
}

// Packet returns the packet of a message, which aliases msg and may be empty. It also returns the
// codec that the message names, which may differ from the topic's codec in another recording. The
// codec is "" if it is unknown.
func (t *Topic) Packet(msg []byte) ([]byte, video.Codec, error) {
	d := t.packetDecoder()
	if d == nil || d.coding == "" {
		return nil, "", onlyType(t.schema.Name).unsupportedError("packets of video")
	}
	var m compressedMessage
	err := d.parseCompressed(msg, &m)
	return m.data, codecOf(m.format), err
}

// packetStream holds the image properties that the packets of a topic declare.
type packetStream struct {
	coding video.Codec
	stream *video.Stream // used until the size is known
	height int
	width  int
}

// addPacket parses a packet. For the first packets, it returns an error if they cannot be decoded.
func (f *packetStream) addPacket(data []byte, first bool) error {
	if f.height > 0 && !first {
		return nil
	}
	if _, err := f.stream.Add(data); err != nil {
		return err
	}
	f.width, f.height = f.stream.Size()
	return nil
}

func (f *packetStream) videoFeature() robocache.Feature {
	v := robocache.Feature{
		Kind:     robocache.KindVideo,
		DType:    robocache.Uint8,
		Codec:    string(f.coding),
		Height:   f.height,
		Width:    f.width,
		Channels: 3,
	}
	if f.height > 0 {
		v.Shape = []int{f.height, f.width, 3}
	}
	return v
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
