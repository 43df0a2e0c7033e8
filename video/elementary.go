package video

import "fmt"

// Elementary converts samples of a file to the packet form used outside of files. H.264 and HEVC
// become Annex B, with the parameter sets before key frames. AV1 becomes temporal units in the
// low-overhead format, with the sequence header at key frames. VP9 is unchanged. It is the inverse
// of Stream.
type Elementary struct {
	codec         Codec
	lengthBytes   int    // bytes of the length before a NAL unit
	parameterSets []byte // parameter sets in Annex B form, or the AV1 sequence header
}

// NewElementary reads a sample entry. It returns ErrUnsupported if the codec has no packet form.
func NewElementary(e *SampleEntry) (_ *Elementary, err error) {
	x := &Elementary{codec: e.Codec}
	c := byteCursor{b: e.Extradata}
	switch e.Codec {
	case VP9:
	case AV1:
		c.takeBytes(4)
		if err := eachOBU(c.b, func(kind byte, whole, payload []byte) error {
			if kind == obuSequence {
				x.parameterSets = appendSizedOBU(x.parameterSets, whole, payload)
			}
			return nil
		}); err != nil {
			return nil, err
		}
	case H264: // avcC
		c.takeBytes(4) // version, profile and level
		x.lengthBytes = c.takeNumber(1)&3 + 1
		x.readSets(&c, c.takeNumber(1)&31) // sequence parameter sets
		x.readSets(&c, c.takeNumber(1))    // picture parameter sets
	case HEVC: // hvcC
		c.takeBytes(21) // version, profile, level and format
		x.lengthBytes = c.takeNumber(1)&3 + 1
		for range c.takeNumber(1) { // arrays of parameter sets
			c.takeNumber(1) // NAL unit type
			x.readSets(&c, c.takeNumber(2))
		}
	default:
		return nil, unsupportedPacket(
			fmt.Sprintf("video of codec %q cannot be sent in messages", string(e.Codec)),
			"use h264, hevc, av1 or vp9",
		)
	}
	if c.bad {
		return nil, malformedPacket("the codec configuration of the file is truncated", "", "")
	}
	return x, nil
}

// byteCursor reads bytes from a slice. Beyond the end it sets bad and returns zeros.
type byteCursor struct {
	b   []byte
	bad bool
}

// takeBytes returns the next n bytes, or nil beyond the end.
func (c *byteCursor) takeBytes(n int) []byte {
	if n > len(c.b) {
		c.b, c.bad = nil, true
		return nil
	}
	p := c.b[:n]
	c.b = c.b[n:]
	return p
}

// takeNumber reads a big-endian number of n bytes.
func (c *byteCursor) takeNumber(n int) (v int) {
	for _, x := range c.takeBytes(n) {
		v = v<<8 | int(x)
	}
	return v
}

// readSets reads n parameter sets, each after its length of two bytes.
func (x *Elementary) readSets(c *byteCursor, n int) {
	for range n {
		x.parameterSets = append(
			append(x.parameterSets, 0, 0, 0, 1),
			c.takeBytes(c.takeNumber(2))...)
	}
}

// appendSizedOBU appends an OBU with its size field. The last OBU of a sample may lack it.
func appendSizedOBU(dst, whole, payload []byte) []byte {
	if whole[0]&obuHasSize != 0 {
		return append(dst, whole...)
	}
	dst = append(dst, whole[0]|obuHasSize)
	if whole[0]&obuHasExtension != 0 {
		dst = append(dst, whole[1])
	}
	n := len(payload) // in LEB128: 7 bits a byte, and a bit that more follow
	for ; n > 0x7f; n >>= 7 {
		dst = append(dst, byte(n)|0x80)
	}
	return append(append(dst, byte(n)), payload...)
}

// Packet appends the packet of a sample to dst. If key is set, the packet includes parameter sets:
// those of the sample if it has them, otherwise those of the sample entry.
func (x *Elementary) Packet(dst, sample []byte, key bool) (_ []byte, err error) {
	switch x.codec {
	case VP9:
		return append(dst, sample...), nil
	case AV1:
		dst = append(dst, obuDelimiter<<3|obuHasSize, 0)
		own := false // the sample contains a sequence header
		if err := eachOBU(sample, func(kind byte, _, _ []byte) error {
			own = own || kind == obuSequence
			return nil
		}); err != nil {
			return nil, err
		}
		if key && !own {
			dst = append(dst, x.parameterSets...)
		}
		if err := eachOBU(sample, func(kind byte, whole, payload []byte) error {
			if kind != obuDelimiter {
				dst = appendSizedOBU(dst, whole, payload)
			}
			return nil
		}); err != nil {
			return nil, err
		}
		return dst, nil
	}
	// The parameter sets go before the first unit that is not a delimiter, unless the sample has
	// its own.
	missing := key // the parameter sets are still to be added
	if key {
		hasOwn, err := x.hasOwnSets(sample)
		if err != nil {
			return nil, err
		}
		missing = !hasOwn
	}
	if err := x.eachUnit(sample, func(nal []byte) {
		if missing && !x.isKind(nal, h264Delimiter, hevcDelimiter) {
			dst, missing = append(dst, x.parameterSets...), false
		}
		dst = append(append(dst, 0, 0, 0, 1), nal...)
	}); err != nil {
		return nil, err
	}
	return dst, nil
}

// hasOwnSets reports whether a sample contains a sequence parameter set.
func (x *Elementary) hasOwnSets(sample []byte) (own bool, err error) {
	err = x.eachUnit(sample, func(nal []byte) { own = own || x.isKind(nal, h264SPS, hevcSPS) })
	return own, err
}

// isKind reports whether a NAL unit has a type, given in the numbering of H.264 and of HEVC.
func (x *Elementary) isKind(nal []byte, h264, hevc byte) bool {
	if x.codec == H264 {
		return nal[0]&31 == h264
	}
	return nal[0]>>1&63 == hevc
}

// eachUnit calls fn for each NAL unit of a sample.
func (x *Elementary) eachUnit(sample []byte, fn func(nal []byte)) error {
	c := byteCursor{b: sample}
	for len(c.b) > 0 {
		size := c.takeNumber(x.lengthBytes)
		nal := c.takeBytes(size)
		if c.bad {
			return malformedPacket(
				fmt.Sprintf("a NAL unit of %d bytes", size),
				"one inside its sample",
				"",
			)
		}
		if size > 0 {
			fn(nal)
		}
	}
	return nil
}
