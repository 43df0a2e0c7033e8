package video

// The sample entry of a VirtualMP4: what a decoder must know ahead of its packets.

func (s *Stream) fourCC() string {
	switch s.codec {
	case HEVC:
		return "hev1" // parameter sets may stand among the samples too
	case AV1:
		return "av01"
	case VP9:
		return "vp09"
	}
	return "avc1"
}

func (s *Stream) entry() []byte {
	return nest(nil, s.fourCC(), func(b []byte) []byte {
		b = append(b, 0, 0, 0, 0, 0, 0, 0, 1)
		b = append(b, make([]byte, 16)...)
		b = be.AppendUint16(be.AppendUint16(b, uint16(s.head.width)), uint16(s.head.height))
		b = u32s(b, 72<<16, 72<<16, 0)
		b = append(append(b, 0, 1), make([]byte, 32)...)
		b = append(b, 0, 24, 0xff, 0xff)
		switch s.codec {
		case HEVC:
			b = nest(b, "hvcC", s.config265)
		case AV1:
			b = nest(b, "av1C", s.configAV1)
		case VP9:
			b = nest(b, "vpcC", s.configVP9)
		default:
			b = nest(b, "avcC", s.config264)
		}
		if c := s.colour; c != nil {
			b = nest(b, "colr", func(b []byte) []byte {
				full := byte(0)
				if c.FullRange {
					full = 0x80
				}
				b = be.AppendUint16(append(b, "nclx"...), uint16(c.Primaries))
				return append(be.AppendUint16(be.AppendUint16(b, uint16(c.Transfer)), uint16(c.Matrix)), full)
			})
		}
		return b
	})
}

// list appends the parameter sets of a kind, each behind its length.
func (s *Stream) list(b []byte, kind byte) (out []byte, n int) {
	for _, p := range s.sets {
		if p.kind == kind {
			b = append(be.AppendUint16(b, uint16(len(p.nal))), p.nal...)
			n++
		}
	}
	return b, n
}

func (s *Stream) config264(b []byte) []byte {
	first := s.sets[0].nal
	for _, p := range s.sets {
		if p.kind == 7 {
			first = p.nal
			break
		}
	}
	sps, n := s.list(nil, 7)
	b = append(b, 1, first[1], first[2], first[3], 0xff, 0xe0|byte(min(n, 31)))
	b = append(b, sps...)
	pps, n := s.list(nil, 8)
	b = append(append(b, byte(n)), pps...)
	switch first[1] {
	case 100, 110, 122, 144:
		b = append(b, 0xfc|byte(s.head.chroma), 0xf8|byte(s.head.lumaBits), 0xf8|byte(s.head.chromaBits), 0)
	}
	return b
}

func (s *Stream) config265(b []byte) []byte {
	h := s.head
	b = append(append(b, 1), h.profile[:]...)
	b = append(b, 0xf0, 0, 0xfc, 0xfc|byte(h.chroma), 0xf8|byte(h.lumaBits), 0xf8|byte(h.chromaBits), 0, 0, byte(h.layers+1)<<3|byte(h.nested)<<2|3, 3)
	for _, kind := range []byte{32, 33, 34} {
		list, n := s.list(nil, kind)
		b = append(be.AppendUint16(append(b, kind), uint16(n)), list...)
	}
	return b
}
