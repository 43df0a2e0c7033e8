package video

import "slices"

// The sample entry of a VirtualMP4: the information that a decoder needs before its packets.

// entryKinds lists the sample entry of each codec and the box of its configuration. In hev1,
// parameter sets may also be in the samples.
var entryKinds = map[Codec]struct {
	fourCC, box string
	config      func(*Stream) []byte
}{
	H264: {"avc1", "avcC", (*Stream).avcConfig},
	HEVC: {"hev1", "hvcC", (*Stream).hevcConfig},
	AV1: {"av01", "av1C", func(s *Stream) []byte {
		return append([]byte{0x81, s.av1.config[0], s.av1.config[1], 0}, s.av1.wholeOBU...)
	}},
	// The level 6.2 covers every stream, and the colors are unspecified.
	VP9: {
		"vp09",
		"vpcC",
		func(s *Stream) []byte { return []byte{1, 0, 0, 0, s.vp9[0], 62, s.vp9[1], 2, 2, 2, 0, 0} },
	},
}

// sampleEntry returns the sample entry of the stream.
func (s *Stream) sampleEntry() []byte {
	head := make([]byte, entryHead)
	head[7] = 1
	be.PutUint16(head[24:], uint16(s.firstSet.width))
	be.PutUint16(head[26:], uint16(s.firstSet.height))
	copy(head[28:], bigEndianWords(72<<16, 72<<16, 0, 1<<16))
	copy(head[74:], []byte{0, 24, 0xff, 0xff})
	kind := entryKinds[s.codec]
	var colr []byte
	if c := s.colour; c != nil {
		b := append(
			[]byte("nclx"),
			byte(c.Primaries>>8),
			byte(c.Primaries),
			byte(c.Transfer>>8),
			byte(c.Transfer),
			byte(c.Matrix>>8),
			byte(c.Matrix),
			0,
		)
		if c.FullRange {
			b[10] = 0x80
		}
		colr = boxOf("colr", b)
	}
	return boxOf(kind.fourCC, head, boxOf(kind.box, kind.config(s)), colr)
}

// joinSets returns the parameter sets of a kind, each after its length, and their number.
func (s *Stream) joinSets(kind byte) (b []byte, n int) {
	for _, p := range s.parameterSets {
		if p.kind == kind {
			b = append(be.AppendUint16(b, uint16(len(p.nal))), p.nal...)
			n++
		}
	}
	return b, n
}

// avcConfig returns the avcC box contents: the H.264 parameter sets and their profile. Unused bits
// are 1.
func (s *Stream) avcConfig() []byte {
	sps, spsCount := s.joinSets(h264SPS)
	pps, ppsCount := s.joinSets(h264PPS)
	first := sps[2:] // after its length: NAL unit header, profile, compatibility, level
	profile, compatibility, level := first[1], first[2], first[3]
	const lengthBytes4 = 0xfc | 3 // the lengths of the samples' NAL units have 4 bytes
	b := slices.Concat(
		[]byte{1, profile, compatibility, level, lengthBytes4, 0xe0 | byte(min(spsCount, 31))},
		sps,
		[]byte{byte(ppsCount)},
		pps,
	)
	switch profile {
	case 100, 110, 122, 144: // the profiles for which the standard adds these fields
		b = append(
			b,
			0xfc|byte(s.firstSet.chroma),
			0xf8|byte(s.firstSet.lumaBits),
			0xf8|byte(s.firstSet.chromaBits),
			0,
		)
	}
	return b
}

// hevcConfig returns the hvcC box contents: the HEVC parameter sets and their profile.
func (s *Stream) hevcConfig() []byte {
	h := s.firstSet
	b := append([]byte{1}, h.profile[:]...)
	b = append(b, 0xf0, 0, 0xfc) // no segmentation, parallelism unknown
	b = append(b, 0xfc|byte(h.chroma), 0xf8|byte(h.lumaBits), 0xf8|byte(h.chromaBits))
	b = append(b, 0, 0)                                    // the average frame rate is unknown
	b = append(b, byte(h.layers+1)<<3|byte(h.nested)<<2|3) // and lengths of 4 bytes
	b = append(b, 3)                                       // number of arrays
	for _, kind := range []byte{hevcVPS, hevcSPS, hevcPPS} {
		list, n := s.joinSets(kind)
		b = append(be.AppendUint16(append(b, kind), uint16(n)), list...)
	}
	return b
}
