package video

import (
	"fmt"
)

// Elementary gives the packets of a file as they come outside of files: H.264 and HEVC in Annex B
// form with their parameter sets before key frames,
// AV1 as temporal units in the low-overhead format with the sequence header at key frames, VP9 as
// they are. It is the inverse of Stream.
type Elementary struct {
	codec  Codec
	prefix int    // bytes of the length before a NAL unit
	sets   []byte // parameter sets in Annex B form, or the sequence header
}

// NewElementary reads a sample entry; ErrUnsupported where no such form of its codec is known.
func NewElementary(e *SampleEntry) (_ *Elementary, err error) {
	x := &Elementary{codec: e.Codec}
	c := cursor{b: e.Extradata}
	switch e.Codec {
	case VP9:
	case AV1:
		c.bytes(4)
		if err := obus(c.b, func(kind byte, whole, payload []byte) error {
			if kind == obuSequence {
				x.sets = sized(x.sets, whole, payload)
			}
			return nil
		}); err != nil {
			return nil, err
		}
	case H264:
		c.bytes(4)
		x.prefix = c.u(1)&3 + 1
		x.take(&c, c.u(1)&31)
		x.take(&c, c.u(1))
	case HEVC:
		c.bytes(21)
		x.prefix = c.u(1)&3 + 1
		for range c.u(1) {
			c.u(1)
			x.take(&c, c.u(2))
		}
	default:
		return nil, noPacket(
			fmt.Sprintf("video of codec %q has no form for messages", string(e.Codec)),
			"h264, hevc, av1 and vp9 have",
		)
	}
	if c.bad {
		return nil, badPacket("the codec configuration of the file ends early", "", "")
	}
	return x, nil
}

// cursor takes bytes off a slice. Beyond its end bad is set, and zeros follow.
type cursor struct {
	b   []byte
	bad bool
}

func (c *cursor) bytes(n int) []byte {
	if n > len(c.b) {
		c.b, c.bad = nil, true
		return nil
	}
	p := c.b[:n]
	c.b = c.b[n:]
	return p
}

// u is a number of n bytes.
func (c *cursor) u(n int) (v int) {
	for _, x := range c.bytes(n) {
		v = v<<8 | int(x)
	}
	return v
}

// take reads n parameter sets, each behind its length of two bytes.
func (x *Elementary) take(c *cursor, n int) {
	for range n {
		x.sets = append(append(x.sets, 0, 0, 0, 1), c.bytes(c.u(2))...)
	}
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
func (x *Elementary) Packet(dst, sample []byte, key bool) (_ []byte, err error) {
	switch x.codec {
	case VP9:
		return append(dst, sample...), nil
	case AV1:
		dst = append(dst, obuDelimiter<<3|2, 0)
		own := false
		if err := obus(sample, func(kind byte, _, _ []byte) error {
			own = own || kind == obuSequence
			return nil
		}); err != nil {
			return nil, err
		}
		if key && !own {
			dst = append(dst, x.sets...)
		}
		if err := obus(sample, func(kind byte, whole, payload []byte) error {
			if kind != obuDelimiter {
				dst = sized(dst, whole, payload)
			}
			return nil
		}); err != nil {
			return nil, err
		}
		return dst, nil
	}
	// Parameter sets stand before the first unit but a delimiter, unless the sample brings its own.
	holds := key
	if holds {
		brings, err := x.brings(sample)
		if err != nil {
			return nil, err
		}
		holds = !brings
	}
	missing := holds
	if err := x.units(sample, func(nal []byte) {
		if missing && !x.is(nal, 9, 35) {
			dst, missing = append(dst, x.sets...), false
		}
		dst = append(append(dst, 0, 0, 0, 1), nal...)
	}); err != nil {
		return nil, err
	}
	return dst, nil
}

// brings says that a sample holds a sequence parameter set.
func (x *Elementary) brings(sample []byte) (own bool, err error) {
	if err := x.units(sample, func(nal []byte) { own = own || x.is(nal, 7, 33) }); err != nil {
		return own, err
	}
	return own, nil
}

// is says that a NAL unit is of a kind, which H.264 and HEVC number apart.
func (x *Elementary) is(nal []byte, h264, hevc byte) bool {
	if x.codec == H264 {
		return nal[0]&31 == h264
	}
	return nal[0]>>1&63 == hevc
}

// units calls fn for each NAL unit of a sample.
func (x *Elementary) units(sample []byte, fn func(nal []byte)) error {
	c := cursor{b: sample}
	for len(c.b) > 0 {
		size := c.u(x.prefix)
		nal := c.bytes(size)
		if c.bad {
			return bad(fmt.Sprintf("a NAL unit of %d bytes", size), "one inside its sample", "")
		}
		if size > 0 {
			fn(nal)
		}
	}
	return nil
}
