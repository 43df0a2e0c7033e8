package video

import (
	"bytes"
	"fmt"

	"github.com/goatnote-inc/robocache"
)

const opPackets = "read video packets"

// bad and refuse end the work on packets.
func bad(msg, want, got string) error {
	return badPacket(msg, want, got)
}

func refuse(msg, hint string) error {
	return noPacket(msg, hint)
}

func badPacket(msg, want, got string) error {
	return robocache.Malformed(opPackets, nil, "%s", msg).Expected(want, got)
}

func noPacket(msg, hint string) error {
	return robocache.Unsupported(opPackets, nil, "%s", msg).WithHint("%s", hint)
}

var startCode = []byte{0, 0, 1}

// IsAnnexB says that a packet begins with a start code, as H.264 and HEVC come outside of files.
func IsAnnexB(b []byte) bool {
	return len(b) > 4 &&
		(bytes.HasPrefix(b, startCode) || b[0] == 0 && bytes.HasPrefix(b[1:], startCode))
}

// nals calls fn for each NAL unit of a packet in Annex B form: what stands between start codes,
// without the zeros before the next one.
func nals(b []byte, fn func(nal []byte) error) error {
	if !IsAnnexB(b) {
		return bad(
			"a packet that is not in Annex B form",
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

// nalBits reads the payload of a NAL unit, without its emulation prevention bytes (the 3 of 00 00
// 03). Beyond its end bad is set, and zeros follow.
type nalBits struct {
	b     []byte
	at    int // of the byte
	left  int // bits of cur
	cur   byte
	zeros int
	plain bool // there are no emulation prevention bytes
	bad   bool
}

func (r *nalBits) bit() uint32 {
	if r.left == 0 {
		if !r.plain && r.zeros >= 2 && r.at < len(r.b) && r.b[r.at] == 3 {
			r.at++
			r.zeros = 0
		}
		if r.at >= len(r.b) {
			r.bad = true
			return 0
		}
		r.cur, r.left = r.b[r.at], 8
		r.at++
		if r.zeros++; r.cur != 0 {
			r.zeros = 0
		}
	}
	r.left--
	return uint32(r.cur>>r.left) & 1
}

func (r *nalBits) u(n int) (v uint32) {
	for range n {
		v = v<<1 | r.bit()
	}
	return v
}

func (r *nalBits) skip(n int) {
	for range n {
		r.bit()
	}
}

// ue is an unsigned number in Exp-Golomb code.
func (r *nalBits) ue() uint32 {
	zeros := 0
	for r.bit() == 0 {
		if zeros++; zeros > 31 || r.bad {
			r.bad = true
			return 0
		}
	}
	return 1<<zeros - 1 + r.u(zeros)
}

func (r *nalBits) se() int32 {
	v := r.ue()
	if v&1 == 1 {
		return int32(v/2) + 1
	}
	return -int32(v / 2)
}

// frameSet is what a sequence parameter set says, of both codecs.
type frameSet struct {
	id                       uint32
	width, height            int
	chroma                   uint32 // chroma_format_idc
	lumaBits, chromaBits     uint32 // less 8
	planes                   bool   // colour planes apart
	frameBits                int    // H.264: of frame_num
	gaps                     bool   // H.264: frame_num may skip
	fields                   bool   // H.264: frames may be fields
	reorder                  uint32 // HEVC: frames that may come out before one that precedes them
	layers                   uint32 // HEVC: temporal ones, less 1
	nested                   uint32
	profile                  [12]byte // HEVC: general profile, tier and level
	cropX, cropY             uint32
	left, right, top, bottom uint32
}

func (p *frameSet) crop(maxPixels int64) (*frameSet, error) {
	w, h := int64(
		p.width,
	)-int64(
		p.cropX,
	)*(int64(p.left)+int64(p.right)), int64(
		p.height,
	)-int64(
		p.cropY,
	)*(int64(p.top)+int64(p.bottom))
	if w <= 0 || h <= 0 || w > 65535 || h > 65535 {
		return nil, bad("the size of the frames", "1 to 65535 a side", "")
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

func shortSet() error { return bad("a parameter set ends early", "", "") }

// parseSPS264 reads a sequence parameter set of H.264, its first byte included.
func parseSPS264(nal []byte, maxPixels int64) (*frameSet, error) {
	r := nalBits{b: nal[1:]}
	p := &frameSet{chroma: 1}
	profile := r.u(8)
	r.skip(16)
	p.id = r.ue()
	switch profile {
	case 100, 110, 122, 244, 44, 83, 86, 118, 128, 138, 139, 134, 135:
		if p.chroma = r.ue(); p.chroma == 3 {
			p.planes = r.bit() == 1
		}
		p.lumaBits, p.chromaBits = r.ue(), r.ue()
		r.bit()
		if r.bit() == 1 {
			lists := 8
			if p.chroma == 3 {
				lists = 12
			}
			for i := range lists {
				if r.bit() == 1 {
					size := 16
					if i >= 6 {
						size = 64
					}
					scalingList(&r, size)
				}
			}
		}
	}
	p.frameBits = int(r.ue()) + 4
	switch r.ue() {
	case 0:
		r.ue()
	case 1:
		r.bit()
		r.se()
		r.se()
		n := r.ue()
		for range min(n, 256) {
			r.se()
		}
		if n > 255 {
			r.bad = true
		}
	}
	r.ue()
	p.gaps = r.bit() == 1
	w, h := r.ue(), r.ue()
	p.fields = r.bit() == 0
	unit := uint32(1)
	if p.fields {
		r.bit()
		unit = 2
	}
	r.bit()
	if r.bit() == 1 {
		p.left, p.right, p.top, p.bottom = r.ue(), r.ue(), r.ue(), r.ue()
	}
	if r.bad || p.frameBits > 16 || p.id > 31 || p.chroma > 3 || p.lumaBits > 6 ||
		p.chromaBits > 6 ||
		w > 4096 ||
		h > 4096 {
		return nil, shortSet()
	}
	p.width, p.height = 16*(int(w)+1), 16*int(unit)*(int(h)+1)
	p.cropX, p.cropY = 1, unit
	if !p.planes && (p.chroma == 1 || p.chroma == 2) {
		p.cropX = 2
	}
	if !p.planes && p.chroma == 1 {
		p.cropY *= 2
	}
	return p.crop(maxPixels)
}

func scalingList(r *nalBits, size int) {
	last, next := int32(8), int32(8)
	for range size {
		if next != 0 {
			next = (last + r.se() + 256) % 256
		}
		if next != 0 {
			last = next
		}
	}
}

// parseSPS265 reads a sequence parameter set of HEVC, its two first bytes included.
func parseSPS265(nal []byte, maxPixels int64) (*frameSet, error) {
	if len(nal) < 15 {
		return nil, shortSet()
	}
	r := nalBits{b: nal[2:]}
	p := &frameSet{}
	r.u(4)
	p.layers, p.nested = r.u(3), r.u(1)
	for i := range p.profile {
		p.profile[i] = byte(r.u(8))
	}
	var profiles, levels [8]bool
	for i := range p.layers {
		profiles[i], levels[i] = r.bit() == 1, r.bit() == 1
	}
	if p.layers > 0 {
		r.skip(2 * (8 - int(p.layers)))
	}
	for i := range p.layers {
		if profiles[i] {
			r.skip(88)
		}
		if levels[i] {
			r.skip(8)
		}
	}
	p.id = r.ue()
	if p.chroma = r.ue(); p.chroma == 3 {
		p.planes = r.bit() == 1
	}
	w, h := r.ue(), r.ue()
	if r.bit() == 1 {
		p.left, p.right, p.top, p.bottom = r.ue(), r.ue(), r.ue(), r.ue()
	}
	p.lumaBits, p.chromaBits = r.ue(), r.ue()
	r.ue()
	first := p.layers
	if r.bit() == 1 {
		first = 0
	}
	for range p.layers - first + 1 {
		r.ue()
		p.reorder = r.ue()
		r.ue()
	}
	if r.bad || p.id > 15 || p.chroma > 3 || p.lumaBits > 8 || p.chromaBits > 8 || w > 65535 ||
		h > 65535 {
		return nil, shortSet()
	}
	p.width, p.height, p.cropX, p.cropY = int(w), int(h), 1, 1
	if p.chroma == 1 || p.chroma == 2 {
		p.cropX = 2
	}
	if p.chroma == 1 {
		p.cropY = 2
	}
	return p.crop(maxPixels)
}
