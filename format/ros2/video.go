package ros2

import (
	"bytes"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/video"
)

// packets is the decoder of a topic whose messages may be packets of video; nil of others.
func (t *Topic) packets() *compressed {
	d, _ := t.dec.(*compressed)
	return d
}

// Codec is the coding of a topic whose messages are packets of video; "" where they are not.
func (t *Topic) Codec() video.Codec {
	if d := t.packets(); d != nil {
		return d.coding
	}
	return ""
}

// Undecided says that no message so far said what the topic's images are: who skips Scan of every
// message reads on.
func (t *Topic) Undecided() bool {
	d := t.packets()
	return d != nil && (!d.seen || d.coding != "" && d.height == 0)
}

// Packet gives the packet of a message, bytes of msg, none where the message holds none; and the
// coding that the message itself names, which in another recording may be another than the topic's;
// "" where it names none that is known.
func (t *Topic) Packet(msg []byte) ([]byte, video.Codec, error) {
	d := t.packets()
	if d == nil || d.coding == "" {
		return nil, "", onlyType(t.schema.Name).noSuch("packets of video")
	}
	var m compressedMessage
	err := d.parse(msg, &m)
	return m.data, codingOf(m.format), err
}

// packetStream is what the packets of a topic say of its images.
type packetStream struct {
	coding video.Codec
	stream *video.Stream // until the size is known
	height int
	width  int
}

// look takes a packet. Of the first ones it says whether they can be decoded at all.
func (f *packetStream) look(data []byte, first bool) error {
	if f.height > 0 && !first {
		return nil
	}
	if _, err := f.stream.Add(data); err != nil {
		return err
	}
	f.width, f.height = f.stream.Size()
	return nil
}

func (f *packetStream) feature() robocache.Feature {
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
