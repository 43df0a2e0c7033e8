package video

import "fmt"

// Kinds of OBU.
const (
	obuSequence  = 1
	obuDelimiter = 2
	obuHeader    = 3
	obuFrame     = 6
)

// obus calls fn for each OBU of a packet in the low-overhead format: its kind, itself whole, and
// what it holds.
func obus(b []byte, fn func(kind byte, whole, payload []byte) error) error {
	bad := func(what string) error {
		return bad("an OBU "+what, "the low-overhead bitstream format", "")
	}
	for len(b) > 0 {
		head, n := 1, 0
		if b[0]&0x80 != 0 || b[0]>>3&15 == 0 {
			if err := bad(fmt.Sprintf("with the head %#02x", b[0])); err != nil {
				return err
			}
		}
		if b[0]&4 != 0 {
			head++
		}
		if len(b) < head {
			if err := bad("that ends in its head"); err != nil {
				return err
			}
		}
		if n = len(b) - head; b[0]&2 != 0 {
			size, shift := 0, 0
			for more := true; more; shift += 7 {
				if head >= len(b) || shift > 28 {
					if err := bad("whose size is cut short"); err != nil {
						return err
					}
				}
				size |= int(b[head]&0x7f) << shift
				more = b[head]&0x80 != 0
				head++
			}
			if n = size; n > len(b)-head {
				if err := bad(fmt.Sprintf("of %d bytes in %d", n, len(b)-head)); err != nil {
					return err
				}
			}
		}
		if err := fn(b[0]>>3&15, b[:head+n], b[head:head+n]); err != nil {
			return err
		}
		b = b[head+n:]
	}
	return nil
}

// sequence is what a sequence header of AV1 says.
type sequence struct {
	obu           []byte // whole
	config        [2]byte
	width, height int
	reduced       bool // a reduced still image header: frames have no head of their own
}

// parseSequence reads a sequence header.
func parseSequence(whole, payload []byte) (*sequence, error) {
	r := nalBits{b: payload, plain: true}
	s := &sequence{obu: append([]byte(nil), whole...)}
	profile := r.u(3)
	r.bit() // a still image
	s.reduced = r.bit() == 1
	var level, tier uint32
	if s.reduced {
		level = r.u(5)
	} else {
		level, tier = operatingPoints(&r)
	}
	wide, high := int(r.u(4))+1, int(r.u(4))+1
	s.width, s.height = int(r.u(wide))+1, int(r.u(high))+1
	if !s.reduced && r.bit() == 1 {
		r.skip(7) // lengths of frame ids
	}
	r.skip(3)
	if !s.reduced {
		r.skip(4)
		order := r.bit() == 1
		if order {
			r.skip(2)
		}
		screen := uint32(2)
		if r.bit() == 0 {
			screen = r.bit()
		}
		if screen > 0 && r.bit() == 0 {
			r.bit()
		}
		if order {
			r.skip(3)
		}
	}
	r.skip(3)
	deep := r.bit()
	twelve, mono := uint32(0), uint32(0)
	if profile == 2 && deep == 1 {
		twelve = r.bit()
	}
	if profile != 1 {
		mono = r.bit()
	}
	primaries, transfer, matrix := uint32(2), uint32(2), uint32(2)
	if r.bit() == 1 {
		primaries, transfer, matrix = r.u(8), r.u(8), r.u(8)
	}
	subX, subY, place := uint32(1), uint32(1), uint32(0)
	switch {
	case mono == 1:
		r.bit()
	case primaries == 1 && transfer == 13 && matrix == 0: // sRGB
		subX, subY = 0, 0
	default:
		r.bit() // the range
		switch {
		case profile == 1:
			subX, subY = 0, 0
		case profile == 2 && twelve == 1:
			if subX = r.bit(); subX == 1 {
				subY = r.bit()
			} else {
				subY = 0
			}
		case profile == 2:
			subY = 0
		}
		if subX == 1 && subY == 1 {
			place = r.u(2)
		}
	}
	if r.bad || profile > 2 {
		return nil, bad("a sequence header that ends early", "", "")
	}
	s.config = [2]byte{
		byte(profile<<5 | level),
		byte(tier<<7 | deep<<6 | twelve<<5 | mono<<4 | subX<<3 | subY<<2 | place),
	}
	return s, nil
}

// operatingPoints passes over what a sequence header says of times, and gives level and tier of the
// first operating point.
func operatingPoints(r *nalBits) (level, tier uint32) {
	model, delay := false, 0
	if r.bit() == 1 {
		r.skip(64)
		if r.bit() == 1 {
			r.ue() // uvlc has the form of ue(v)
		}
		if model = r.bit() == 1; model {
			delay = int(r.u(5)) + 1
			r.skip(42)
		}
	}
	display := r.bit() == 1
	for i := range r.u(5) + 1 {
		r.skip(12)
		l, t := r.u(5), uint32(0)
		if l > 7 {
			t = r.bit()
		}
		if i == 0 {
			level, tier = l, t
		}
		if model && r.bit() == 1 {
			r.skip(2*delay + 1)
		}
		if display && r.bit() == 1 {
			r.skip(4)
		}
	}
	return level, tier
}

// unitAV1 looks at a temporal unit.
func (s *Stream) unitAV1(b []byte, p *packet) error {
	frames := 0
	if err := obus(b, func(kind byte, whole, payload []byte) error {
		if kind == obuDelimiter {
			return nil // a file has none
		}
		p.size += len(whole)
		switch kind {
		case obuSequence:
			q, err := parseSequence(whole, payload)
			if err != nil {
				return err
			}
			p.own = true
			if s.av1 == nil {
				s.av1 = q
			} else if string(s.av1.obu) != string(q.obu) {
				s.changed = true
			}
			crop, err := (&frameSet{width: q.width, height: q.height}).crop(s.lim.MaxPixels)
			if err != nil {
				return err
			}
			if err := s.sized(crop); err != nil {
				return err
			}
		case obuHeader, obuFrame:
			if len(payload) == 0 {
				return bad("a frame without a head", "", "")
			}
			frames++
			switch h := payload[0]; {
			case s.av1 != nil && s.av1.reduced:
				p.images, p.key = p.images+1, true
			case h&0x80 != 0: // shows a frame that was decoded before
				p.images++
			default:
				if h&0x10 != 0 {
					p.images++
				}
				// Decoding begins at a key frame that is shown, the first of its unit.
				p.key = p.key || frames == 1 && h&0x60 == 0 && h&0x10 != 0
			}
		}
		return nil
	}); err != nil {
		return err
	}
	if frames > 0 && p.images != 1 {
		return refuse(
			fmt.Sprintf("a message of AV1 that shows %d frames", p.images),
			"one frame a message",
		)
	}
	return nil
}

// unitVP9 looks at a frame or a superframe, of which the last frame is shown.
func (s *Stream) unitVP9(b []byte, p *packet) error {
	r := nalBits{b: b, plain: true}
	marker, profile := r.u(2), r.bit()|r.bit()<<1
	if profile == 3 {
		r.bit()
	}
	if marker != 2 || r.bad {
		return bad("a frame of VP9 without its marker", "", "")
	}
	p.size, p.images = len(b), 1
	if r.bit() == 1 {
		return nil // shows a frame that was decoded before
	}
	key, shown := r.bit() == 0, r.bit() == 1
	r.bit()
	if super := b[len(b)-1]&0xe0 == 0xc0; !shown && !super {
		return refuse("a message of VP9 that shows no frame", "one frame a message")
	}
	if !key {
		return nil
	}
	if r.u(24) != 0x498342 {
		return bad("a key frame of VP9 without its sync code", "", "")
	}
	deep := uint32(0)
	if profile >= 2 {
		deep = 1 + r.bit()
	}
	sub := uint32(1) // 4:2:0
	if space := r.u(3); space != 7 {
		r.bit()
		if profile&1 == 1 {
			x, y := r.bit(), r.bit()
			r.bit()
			if sub = 3; x == 1 { // 4:4:4, else 4:2:2
				sub = 2 + y
			}
		}
	} else {
		sub = 3
		if profile&1 == 1 {
			r.bit()
		}
	}
	w, h := int(r.u(16))+1, int(r.u(16))+1
	if r.bad {
		return bad("a key frame of VP9 that ends in its head", "", "")
	}
	p.key, p.own = shown, true
	s.vp9 = [2]byte{byte(profile), byte((8+2*deep)<<4 | sub<<1)}
	crop, err := (&frameSet{width: w, height: h}).crop(s.lim.MaxPixels)
	if err != nil {
		return err
	}
	return s.sized(crop)
}
