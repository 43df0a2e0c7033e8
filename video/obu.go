package video

import (
	"bytes"
	"fmt"
)

// Types of OBU.
const (
	obuSequence  = 1
	obuDelimiter = 2
	obuHeader    = 3
	obuFrame     = 6
)

// Bits of the first byte of an OBU. The type is in bits 3 to 6.
const (
	obuHasSize      = 1 << 1
	obuHasExtension = 1 << 2
	obuForbidden    = 1 << 7
)

// obuType returns the type in the first byte of an OBU.
func obuType(first byte) byte { return first >> 3 & 15 }

// eachOBU calls fn for each OBU of a packet in the low-overhead format: with its type, the whole
// OBU, and its payload.
func eachOBU(b []byte, fn func(kind byte, whole, payload []byte) error) error {
	bad := func(what string) error {
		return malformedPacket("an OBU "+what, "the low-overhead bitstream format", "")
	}
	for len(b) > 0 {
		head, n := 1, 0 // bytes of the header and of the payload
		if b[0]&obuForbidden != 0 || obuType(b[0]) == 0 {
			return bad(fmt.Sprintf("with the header %#02x", b[0]))
		}
		if b[0]&obuHasExtension != 0 {
			head++
		}
		if len(b) < head {
			return bad("whose header is truncated")
		}
		n = len(b) - head
		hasSize := b[0]&obuHasSize != 0
		if hasSize {
			size, shift := 0, 0 // LEB128: 7 bits a byte, and a bit that more follow
			for more := true; more; shift += 7 {
				if head >= len(b) || shift > 28 {
					return bad("whose size is truncated")
				}
				size |= int(b[head]&0x7f) << shift
				more = b[head]&0x80 != 0
				head++
			}
			n = size
			if n > len(b)-head {
				return bad(fmt.Sprintf("of %d bytes in %d", n, len(b)-head))
			}
		}
		if err := fn(obuType(b[0]), b[:head+n], b[head:head+n]); err != nil {
			return err
		}
		b = b[head+n:]
	}
	return nil
}

// sequenceHeader holds the fields of an AV1 sequence header.
type sequenceHeader struct {
	wholeOBU      []byte
	config        [2]byte // bytes 1 and 2 of the av1C box
	width, height int
	isReduced     bool // reduced still picture header: frames have no header
}

// parseSequence parses a sequence header. The comments are the names of the fields in the AV1
// specification, section 5.5.
func parseSequence(whole, payload []byte) (*sequenceHeader, error) {
	bits := bitReader{b: payload, noEscapes: true}
	header := &sequenceHeader{wholeOBU: append([]byte(nil), whole...)}
	profile := bits.readBits(3)
	bits.readBit() // still_picture
	header.isReduced = bits.readBit() == 1
	var level, tier uint32
	if header.isReduced {
		level = bits.readBits(5)
	} else {
		level, tier = operatingPoints(&bits)
	}
	widthBits, heightBits := int(bits.readBits(4))+1, int(bits.readBits(4))+1
	header.width, header.height = int(bits.readBits(widthBits))+1, int(bits.readBits(heightBits))+1
	if !header.isReduced && bits.readBit() == 1 {
		bits.skipBits(7) // lengths of frame ids
	}
	bits.skipBits(3) // superblock size, enable_filter_intra, enable_intra_edge_filter
	if !header.isReduced {
		bits.skipBits(4) // enable_interintra_compound to enable_dual_filter
		hasOrderHint := bits.readBit() == 1
		if hasOrderHint {
			bits.skipBits(2) // enable_jnt_comp, enable_ref_frame_mvs
		}
		screenTools := uint32(2) // 2: each frame chooses
		if bits.readBit() == 0 { // seq_choose_screen_content_tools
			screenTools = bits.readBit()
		}
		if screenTools > 0 && bits.readBit() == 0 { // seq_choose_integer_mv
			bits.readBit() // seq_force_integer_mv
		}
		if hasOrderHint {
			bits.skipBits(3) // order_hint_bits_minus_1
		}
	}
	bits.skipBits(3) // enable_superres, enable_cdef, enable_restoration
	colorFields := parseColorConfig(&bits, profile)
	if bits.bad || profile > 2 {
		return nil, malformedPacket("a sequence header is truncated", "", "")
	}
	header.config = [2]byte{byte(profile<<5 | level), byte(tier<<7 | colorFields)}
	return header, nil
}

// parseColorConfig parses the color_config of a sequence header. It returns the fields from
// high_bitdepth to chroma_sample_position as the low bits of a byte, as an av1C box stores them.
func parseColorConfig(bits *bitReader, profile uint32) (fields uint32) {
	highDepth := bits.readBit()
	twelve, mono := uint32(0), uint32(0)
	if profile == 2 && highDepth == 1 {
		twelve = bits.readBit()
	}
	if profile != 1 {
		mono = bits.readBit()
	}
	primaries, transfer, matrix := uint32(2), uint32(2), uint32(2) // unspecified
	if bits.readBit() == 1 {                                       // color_description_present_flag
		primaries, transfer, matrix = bits.readBits(8), bits.readBits(8), bits.readBits(8)
	}
	// Color planes of half the width, of half the height, and the position of their samples.
	subX, subY, samplePosition := uint32(1), uint32(1), uint32(0)
	switch {
	case mono == 1:
		bits.readBit() // color_range
	case primaries == 1 && transfer == 13 && matrix == 0: // sRGB
		subX, subY = 0, 0
	default:
		bits.readBit() // color_range
		switch {
		case profile == 1:
			subX, subY = 0, 0
		case profile == 2 && twelve == 1:
			if subX = bits.readBit(); subX == 1 {
				subY = bits.readBit()
			} else {
				subY = 0
			}
		case profile == 2:
			subY = 0
		}
		if subX == 1 && subY == 1 {
			samplePosition = bits.readBits(2)
		}
	}
	return highDepth<<6 | twelve<<5 | mono<<4 | subX<<3 | subY<<2 | samplePosition
}

// operatingPoints reads a sequence header from its timing fields to its operating points. It
// returns level and tier of the first operating point.
func operatingPoints(r *bitReader) (level, tier uint32) {
	hasModel, delayBits := false, 0 // the decoder model, and the bits of its buffer delays
	if r.readBit() == 1 {           // timing_info_present_flag
		r.skipBits(64)        // num_units_in_display_tick, time_scale
		if r.readBit() == 1 { // equal_picture_interval
			r.readUnsigned() // uvlc has the same form as ue(v)
		}
		if hasModel = r.readBit() == 1; hasModel {
			delayBits = int(r.readBits(5)) + 1
			r.skipBits(42) // the other fields of decoder_model_info
		}
	}
	hasDisplayDelay := r.readBit() == 1
	for i := range r.readBits(5) + 1 {
		r.skipBits(12) // operating_point_idc
		l, t := r.readBits(5), uint32(0)
		if l > 7 {
			t = r.readBit()
		}
		if i == 0 {
			level, tier = l, t
		}
		if hasModel && r.readBit() == 1 {
			r.skipBits(2*delayBits + 1) // operating_parameters_info
		}
		if hasDisplayDelay && r.readBit() == 1 {
			r.skipBits(4) // initial_display_delay_minus_1
		}
	}
	return level, tier
}

// inspectAV1 fills p from a temporal unit.
func (s *Stream) inspectAV1(b []byte, p *packetInfo) error {
	frames := 0
	if err := eachOBU(b, func(kind byte, whole, payload []byte) error {
		if kind == obuDelimiter {
			return nil // samples of a file have none
		}
		p.size += len(whole)
		switch kind {
		case obuSequence:
			p.hasOwnSets = true
			if s.av1 != nil && !s.setsChanged && bytes.Equal(s.av1.wholeOBU, whole) {
				return nil
			}
			q, err := parseSequence(whole, payload)
			if err != nil {
				return err
			}
			if s.av1 == nil {
				s.av1 = q
			} else if string(s.av1.wholeOBU) != string(q.wholeOBU) {
				s.setsChanged = true
			}
			crop, err := (&sequenceSet{width: q.width, height: q.height}).applyCrop(s.lim.MaxPixels)
			if err != nil {
				return err
			}
			if err := s.checkSize(crop); err != nil {
				return err
			}
		case obuHeader, obuFrame:
			if len(payload) == 0 {
				return malformedPacket("a frame has no header", "", "")
			}
			frames++
			// The header begins with show_existing_frame, frame_type (0 is a key frame) and
			// show_frame.
			h := payload[0]
			showsExisting, isKeyType, isShown := h&0x80 != 0, h&0x60 == 0, h&0x10 != 0
			switch {
			case s.av1 != nil && s.av1.isReduced:
				p.shownFrames, p.isKey = p.shownFrames+1, true
			case showsExisting:
				p.shownFrames++
			default:
				if isShown {
					p.shownFrames++
				}
				// Decoding starts at a key frame that is shown and is the first of its unit.
				p.isKey = p.isKey || frames == 1 && isKeyType && isShown
			}
		}
		return nil
	}); err != nil {
		return err
	}
	if frames > 0 && p.shownFrames != 1 {
		return unsupportedPacket(
			fmt.Sprintf("a message of AV1 shows %d frames", p.shownFrames),
			"send one frame per message",
		)
	}
	return nil
}

// inspectVP9 fills p from a frame, or from a superframe whose last frame is shown. The comments are
// the names of the fields in the VP9 specification, section 6.2.
func (s *Stream) inspectVP9(b []byte, p *packetInfo) error {
	r := bitReader{b: b, noEscapes: true}
	marker, profile := r.readBits(2), r.readBit()|r.readBit()<<1
	if profile == 3 {
		r.readBit() // reserved_zero
	}
	if marker != 2 || r.bad {
		return malformedPacket("a frame of VP9 has no frame marker", "", "")
	}
	p.size, p.shownFrames = len(b), 1
	if r.readBit() == 1 {
		return nil // displays a frame that was decoded before
	}
	key, shown := r.readBit() == 0, r.readBit() == 1
	r.readBit() // error_resilient_mode
	if super := b[len(b)-1]&0xe0 == 0xc0; !shown && !super {
		return unsupportedPacket("a message of VP9 shows no frame", "send one frame per message")
	}
	if !key {
		return nil
	}
	const syncCode = 0x498342 // frame_sync_code
	if r.readBits(24) != syncCode {
		return malformedPacket("a key frame of VP9 has no sync code", "", "")
	}
	depth := uint32(0) // 0, 1, 2 for 8, 10, 12 bits
	if profile >= 2 {
		depth = 1 + r.readBit()
	}
	sub := uint32(1) // chroma subsampling in the form of vpcC; 1: 4:2:0
	const spaceRGB = 7
	if space := r.readBits(3); space != spaceRGB {
		r.readBit() // color_range
		if profile&1 == 1 {
			x, y := r.readBit(), r.readBit()
			r.readBit()          // reserved_zero
			if sub = 3; x == 1 { // 4:4:4, otherwise 4:2:2
				sub = 2 + y
			}
		}
	} else {
		sub = 3
		if profile&1 == 1 {
			r.readBit() // reserved_zero
		}
	}
	w, h := int(r.readBits(16))+1, int(r.readBits(16))+1
	if r.bad {
		return malformedPacket("the header of a VP9 key frame is truncated", "", "")
	}
	p.isKey, p.hasOwnSets = shown, true
	s.vp9 = [2]byte{byte(profile), byte((8+2*depth)<<4 | sub<<1)}
	if s.firstSet != nil && s.firstSet.width == w && s.firstSet.height == h {
		return nil
	}
	crop, err := (&sequenceSet{width: w, height: h}).applyCrop(s.lim.MaxPixels)
	if err != nil {
		return err
	}
	return s.checkSize(crop)
}
