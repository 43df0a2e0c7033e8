package video

import "bytes"

const containerHint = "Write it as mp4: ffmpeg -i FILE -c copy NEW.mp4; " +
	"leave out -c copy if mp4 does not take its codec."

// otherContainer returns the name of the container that the first bytes of a file belong to, or ""
// if they match no known container.
func otherContainer(head []byte) string {
	for _, c := range []struct{ start, name string }{
		{"OggS", "Ogg"},
		{"FLV\x01", "Flash video"},
		{"GIF8", "a GIF"},
		{"\x30\x26\xb2\x75\x8e\x66\xcf\x11", "ASF (WMV)"},
		{"\x89PNG\r\n", "a PNG image"},
		{"\xff\xd8\xff", "a JPEG image"},
		{"\x00\x00\x01\xba", "an MPEG program stream"},
		{"DKIF", "IVF"},
		{"YUV4MPEG2", "raw video (y4m)"},
		{"\x89MCAP0\r\n", "an MCAP recording"},
	} {
		if bytes.HasPrefix(head, []byte(c.start)) {
			return c.name
		}
	}
	// hasPackets reports whether packets of size bytes begin at offset, as far as head reaches.
	hasPackets := func(offset, size int) bool {
		return len(head) > offset+size && head[offset] == 0x47 && head[offset+size] == 0x47
	}
	switch {
	case bytes.HasPrefix(head, []byte("\x1a\x45\xdf\xa3")):
		if bytes.Contains(head, []byte("webm")) {
			return "WebM"
		}
		return "Matroska (mkv)"
	case len(head) >= 12 && string(head[:4]) == "RIFF":
		if string(head[8:11]) == "AVI" {
			return "AVI"
		}
		return "a RIFF file"
	case hasPackets(0, 188), hasPackets(4, 192):
		return "an MPEG transport stream (ts)"
	case isAnnexB(head):
		return "a raw H.264 or HEVC stream without a container"
	}
	return ""
}

// isAnnexB reports whether head begins with a start code and a NAL unit that begins a stream: a
// parameter set or an access unit delimiter.
func isAnnexB(head []byte) bool {
	rest, ok := bytes.CutPrefix(head, []byte{0, 0, 0, 1})
	if !ok {
		rest, ok = bytes.CutPrefix(head, []byte{0, 0, 1})
	}
	if !ok || len(rest) < 2 || rest[0]&0x80 != 0 {
		return false
	}
	h264, hevc := rest[0]&31, rest[0]>>1&63 // type of the unit in each codec
	return h264 == h264SPS || h264 == h264Delimiter || hevc == hevcVPS || hevc == hevcDelimiter
}
