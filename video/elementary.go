package video

import "fmt"

// Elementary gives the packets of a file as they come outside of files: H.264 and HEVC in Annex B form with their parameter sets before key frames,
// AV1 as temporal units in the low-overhead format with the sequence header at key frames, VP9 as they are. It is the inverse of Stream.
type Elementary struct {
	codec  Codec
	prefix int    // bytes of the length before a NAL unit
	sets   []byte // parameter sets in Annex B form, or the sequence header
}

// NewElementary reads a sample entry; ErrUnsupported where no such form of its codec is known.
func NewElementary(e *SampleEntry) (*Elementary, error) {
	x := &Elementary{codec: e.Codec}
	c := e.Extradata
	short := badPacket("the codec configuration of the file ends early", "", "")
	switch e.Codec {
	case VP9:
		return x, nil
	case AV1:
		if len(c) < 4 {
			return nil, short
		}
		return x, obus(c[4:], func(kind byte, whole, payload []byte) error {
			if kind == obuSequence {
				x.sets = sized(x.sets, whole, payload)
			}
			return nil
		})
	case H264:
		if len(c) < 7 {
			return nil, short
		}
		x.prefix = int(c[4]&3) + 1
		rest, ok := x.take(c[6:], int(c[5]&31))
		if !ok || len(rest) < 1 {
			return nil, short
		}
		if _, ok = x.take(rest[1:], int(rest[0])); !ok {
			return nil, short
		}
		return x, nil
	case HEVC:
		if len(c) < 23 {
			return nil, short
		}
		x.prefix = int(c[21]&3) + 1
		rest, ok := c[23:], true
		for range c[22] {
			if len(rest) < 3 {
				return nil, short
			}
			if rest, ok = x.take(rest[3:], int(rest[1])<<8|int(rest[2])); !ok {
				return nil, short
			}
		}
		return x, nil
	}
	return nil, noPacket(fmt.Sprintf("video of codec %q has no form for messages", string(e.Codec)), "h264, hevc, av1 and vp9 have")
}

// take reads n parameter sets, each behind its length of two bytes.
func (x *Elementary) take(b []byte, n int) (rest []byte, ok bool) {
	for range n {
		if len(b) < 2 {
			return nil, false
		}
		size := int(b[0])<<8 | int(b[1])
		if size > len(b)-2 {
			return nil, false
		}
		x.sets = append(append(x.sets, 0, 0, 0, 1), b[2:2+size]...)
		b = b[2+size:]
	}
	return b, true
}

// sized appends an OBU with its size, which the last one of a sample need not say.
func sized(dst, whole, payload []byte) []byte {
	if whole[0]&2 != 0 {
		return append(dst, whole...)
	}
	dst = append(dst, whole[0]|2)
	if whole[0]&4 != 0 {
		dst = append(dst, whole[1])
	}
	n := len(payload)
	for ; n > 0x7f; n >>= 7 {
		dst = append(dst, byte(n)|0x80)
	}
	return append(append(dst, byte(n)), payload...)
}

// Packet appends a sample of the file. A key frame comes with its parameter sets.
func (x *Elementary) Packet(dst, sample []byte, key bool) ([]byte, error) {
	switch x.codec {
	case VP9:
		return append(dst, sample...), nil
	case AV1:
		dst = append(dst, obuDelimiter<<3|2, 0)
		own := false
		err := obus(sample, func(kind byte, _, _ []byte) error {
			own = own || kind == obuSequence
			return nil
		})
		if err != nil {
			return nil, err
		}
		if key && !own {
			dst = append(dst, x.sets...)
		}
		return dst, obus(sample, func(kind byte, whole, payload []byte) error {
			if kind != obuDelimiter {
				dst = sized(dst, whole, payload)
			}
			return nil
		})
	}
	// Parameter sets stand before the first unit but a delimiter, unless the sample brings its own.
	missing := key && !x.brings(sample)
	err := x.units(sample, func(nal []byte) error {
		if missing && !x.is(nal, 9, 35) {
			dst, missing = append(dst, x.sets...), false
		}
		dst = append(append(dst, 0, 0, 0, 1), nal...)
		return nil
	})
	return dst, err
}

// brings says that a sample holds a sequence parameter set.
func (x *Elementary) brings(sample []byte) (own bool) {
	_ = x.units(sample, func(nal []byte) error {
		own = own || x.is(nal, 7, 33)
		return nil
	})
	return own
}

// is says that a NAL unit is of a kind, which H.264 and HEVC number apart.
func (x *Elementary) is(nal []byte, h264, hevc byte) bool {
	if x.codec == H264 {
		return nal[0]&31 == h264
	}
	return nal[0]>>1&63 == hevc
}

// units calls fn for each NAL unit of a sample.
func (x *Elementary) units(sample []byte, fn func(nal []byte) error) error {
	for len(sample) > 0 {
		n := 0
		for _, c := range sample[:min(x.prefix, len(sample))] {
			n = n<<8 | int(c)
		}
		if len(sample) < x.prefix || n > len(sample)-x.prefix {
			return badPacket(fmt.Sprintf("a NAL unit of %d bytes in %d", n, len(sample)), "", "")
		}
		if n > 0 {
			if err := fn(sample[x.prefix : x.prefix+n]); err != nil {
				return err
			}
		}
		sample = sample[x.prefix+n:]
	}
	return nil
}
