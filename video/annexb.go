package video

import (
	"bytes"
	"fmt"

	"github.com/goatnote-inc/robocache"
)

const opPackets = "read video packets"

// malformedPacket returns the error for a damaged packet.
func malformedPacket(msg, want, got string) error {
	return robocache.Malformed(opPackets, nil, "%s", msg).Expected(want, got)
}

// unsupportedPacket returns the error for a packet of an unsupported form.
func unsupportedPacket(msg, hint string) error {
	return robocache.Unsupported(opPackets, nil, "%s", msg).WithHint("%s", hint)
}

var startCode = []byte{0, 0, 1}

// IsAnnexB reports whether a packet begins with a start code, as H.264 and HEVC packets outside of
// files do.
func IsAnnexB(b []byte) bool {
	return len(b) > 4 &&
		(bytes.HasPrefix(b, startCode) || b[0] == 0 && bytes.HasPrefix(b[1:], startCode))
}

// eachNAL calls fn for each NAL unit of a packet in Annex B form: the bytes between start codes,
// without trailing zeros.
func eachNAL(b []byte, fn func(nal []byte) error) error {
	if !IsAnnexB(b) {
		return malformedPacket(
			"the packet is not in Annex B form",
			"a start code (00 00 01) at its beginning",
			fmt.Sprintf("% x", b[:min(4, len(b))]),
		)
	}
	b = b[bytes.Index(b, startCode)+3:]
	for b != nil {
		nal, rest := b, []byte(nil)
		if i := bytes.Index(b, startCode); i >= 0 {
			nal, rest = b[:i], b[i+3:]
		}
		if nal = bytes.TrimRight(nal, "\x00"); len(nal) > 0 {
			if err := fn(nal); err != nil {
				return err
			}
		}
		b = rest
	}
	return nil
}

// bitReader reads bits of a NAL unit's payload. It skips the emulation prevention bytes (the 3 of
// 00 00 03). Beyond the end it sets bad and returns zeros.
type bitReader struct {
	b         []byte
	next      int // index of the next byte
	bitsLeft  int // bits of cur that are not read yet
	cur       byte
	zeros     int
	noEscapes bool // the payload has no emulation prevention bytes
	bad       bool
}

// readBit returns the next bit.
func (r *bitReader) readBit() uint32 {
	if r.bitsLeft == 0 {
		if !r.noEscapes && r.zeros >= 2 && r.next < len(r.b) && r.b[r.next] == 3 {
			r.next++
			r.zeros = 0
		}
		if r.next >= len(r.b) {
			r.bad = true
			return 0
		}
		r.cur, r.bitsLeft = r.b[r.next], 8
		r.next++
		if r.zeros++; r.cur != 0 {
			r.zeros = 0
		}
	}
	r.bitsLeft--
	return uint32(r.cur>>r.bitsLeft) & 1
}

// readBits returns a number of n bits.
func (r *bitReader) readBits(n int) (v uint32) {
	for range n {
		v = v<<1 | r.readBit()
	}
	return v
}

// skipBits skips n bits.
func (r *bitReader) skipBits(n int) {
	for range n {
		r.readBit()
	}
}

// readUnsigned reads an unsigned number in Exp-Golomb code.
func (r *bitReader) readUnsigned() uint32 {
	zeros := 0
	for r.readBit() == 0 {
		if zeros++; zeros > 31 || r.bad {
			r.bad = true
			return 0
		}
	}
	return 1<<zeros - 1 + r.readBits(zeros)
}

// readSigned reads a signed number in Exp-Golomb code.
func (r *bitReader) readSigned() int32 {
	v := r.readUnsigned()
	if v&1 == 1 {
		return int32(v/2) + 1
	}
	return -int32(v / 2)
}

// sequenceSet holds the fields of a sequence parameter set of H.264 or HEVC.
type sequenceSet struct {
	id                       uint32
	width, height            int
	chroma                   uint32 // chroma_format_idc
	lumaBits, chromaBits     uint32 // bits minus 8
	planes                   bool   // color planes are coded separately
	frameBits                int    // H.264: bits of frame_num
	gaps                     bool   // H.264: frame_num may have gaps
	fields                   bool   // H.264: frames may be coded as fields
	reorder                  uint32 // HEVC: maximum number of frames that are reordered
	layers                   uint32 // HEVC: temporal layers minus 1
	nested                   uint32
	profile                  [12]byte // HEVC: general profile, tier and level
	cropX, cropY             uint32
	left, right, top, bottom uint32
}

// applyCrop subtracts the cropped area from the size, and returns an error if the result is invalid
// or exceeds maxPixels.
func (p *sequenceSet) applyCrop(maxPixels int64) (*sequenceSet, error) {
	w := int64(p.width) - int64(p.cropX)*(int64(p.left)+int64(p.right))
	h := int64(p.height) - int64(p.cropY)*(int64(p.top)+int64(p.bottom))
	if w <= 0 || h <= 0 || w > 65535 || h > 65535 {
		return nil, malformedPacket("the size of the frames", "1 to 65535 a side", "")
	}
	if w*h > maxPixels {
		return nil, robocache.ResourceLimit(
			opPackets,
			nil,
			"%s×%s pixels, limit %s",
			itoa(int(w)),
			itoa(int(h)),
			itoa(int(maxPixels)),
		)
	}
	p.width, p.height = int(w), int(h)
	return p, nil
}

func truncatedSet() error { return malformedPacket("a parameter set is truncated", "", "") }

// parseSPS264 parses a sequence parameter set of H.264, including its first byte.
func parseSPS264(nal []byte, maxPixels int64) (*sequenceSet, error) {
	r := bitReader{b: nal[1:]}
	p := &sequenceSet{chroma: 1}
	profile := r.readBits(8)
	r.skipBits(16)
	p.id = r.readUnsigned()
	switch profile {
	case 100, 110, 122, 244, 44, 83, 86, 118, 128, 138, 139, 134, 135:
		if p.chroma = r.readUnsigned(); p.chroma == 3 {
			p.planes = r.readBit() == 1
		}
		p.lumaBits, p.chromaBits = r.readUnsigned(), r.readUnsigned()
		r.readBit()
		if r.readBit() == 1 {
			lists := 8
			if p.chroma == 3 {
				lists = 12
			}
			for i := range lists {
				if r.readBit() == 1 {
					size := 16
					if i >= 6 {
						size = 64
					}
					scalingList(&r, size)
				}
			}
		}
	}
	p.frameBits = int(r.readUnsigned()) + 4
	switch r.readUnsigned() {
	case 0:
		r.readUnsigned()
	case 1:
		r.readBit()
		r.readSigned()
		r.readSigned()
		n := r.readUnsigned()
		for range min(n, 256) {
			r.readSigned()
		}
		if n > 255 {
			r.bad = true
		}
	}
	r.readUnsigned()
	p.gaps = r.readBit() == 1
	w, h := r.readUnsigned(), r.readUnsigned()
	p.fields = r.readBit() == 0
	unit := uint32(1)
	if p.fields {
		r.readBit()
		unit = 2
	}
	r.readBit()
	if r.readBit() == 1 {
		p.left, p.right = r.readUnsigned(), r.readUnsigned()
		p.top, p.bottom = r.readUnsigned(), r.readUnsigned()
	}
	if r.bad || p.frameBits > 16 || p.id > 31 || p.chroma > 3 || p.lumaBits > 6 ||
		p.chromaBits > 6 || w > 4096 || h > 4096 {
		return nil, truncatedSet()
	}
	p.width, p.height = 16*(int(w)+1), 16*int(unit)*(int(h)+1)
	p.cropX, p.cropY = 1, unit
	if !p.planes && (p.chroma == 1 || p.chroma == 2) {
		p.cropX = 2
	}
	if !p.planes && p.chroma == 1 {
		p.cropY *= 2
	}
	return p.applyCrop(maxPixels)
}

// scalingList skips a scaling list of H.264.
func scalingList(r *bitReader, size int) {
	last, next := int32(8), int32(8)
	for range size {
		if next != 0 {
			next = (last + r.readSigned() + 256) % 256
		}
		if next != 0 {
			last = next
		}
	}
}

// parseSPS265 parses a sequence parameter set of HEVC, including its first two bytes.
func parseSPS265(nal []byte, maxPixels int64) (*sequenceSet, error) {
	if len(nal) < 15 {
		return nil, truncatedSet()
	}
	r := bitReader{b: nal[2:]}
	p := &sequenceSet{}
	r.readBits(4)
	p.layers, p.nested = r.readBits(3), r.readBits(1)
	for i := range p.profile {
		p.profile[i] = byte(r.readBits(8))
	}
	var profiles, levels [8]bool
	for i := range p.layers {
		profiles[i], levels[i] = r.readBit() == 1, r.readBit() == 1
	}
	if p.layers > 0 {
		r.skipBits(2 * (8 - int(p.layers)))
	}
	for i := range p.layers {
		if profiles[i] {
			r.skipBits(88)
		}
		if levels[i] {
			r.skipBits(8)
		}
	}
	p.id = r.readUnsigned()
	if p.chroma = r.readUnsigned(); p.chroma == 3 {
		p.planes = r.readBit() == 1
	}
	w, h := r.readUnsigned(), r.readUnsigned()
	if r.readBit() == 1 {
		p.left, p.right = r.readUnsigned(), r.readUnsigned()
		p.top, p.bottom = r.readUnsigned(), r.readUnsigned()
	}
	p.lumaBits, p.chromaBits = r.readUnsigned(), r.readUnsigned()
	r.readUnsigned()
	first := p.layers
	if r.readBit() == 1 {
		first = 0
	}
	for range p.layers - first + 1 {
		r.readUnsigned()
		p.reorder = r.readUnsigned()
		r.readUnsigned()
	}
	if r.bad || p.id > 15 || p.chroma > 3 || p.lumaBits > 8 || p.chromaBits > 8 || w > 65535 ||
		h > 65535 {
		return nil, truncatedSet()
	}
	p.width, p.height, p.cropX, p.cropY = int(w), int(h), 1, 1
	if p.chroma == 1 || p.chroma == 2 {
		p.cropX = 2
	}
	if p.chroma == 1 {
		p.cropY = 2
	}
	return p.applyCrop(maxPixels)
}
