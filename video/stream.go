package video

import (
	"fmt"
	"slices"

	"github.com/goatnote-inc/robocache"
)

// Stream collects the packets of a video that comes as messages, one frame each (H.264 and HEVC in
// Annex B form, AV1 as temporal units in the low-overhead format, VP9 as frames or superframes),
// and makes a VirtualMP4 of those that can be decoded: from a key frame on, until one is missing.
//
// Frames must come in the order in which they are shown: B frames, frames of two fields, several in
// a packet or parts of one are ErrUnsupported; a packet that cannot be walked is ErrMalformed.
// After Unsupported the stream is of no use.
type Stream struct {
	codec Codec
	lim   Limits

	sets    []parameterSet
	spsOf   map[uint32]*frameSet
	spsOfP  map[uint32]uint32 // H.264: frame parameter set → sequence parameter set
	head    *frameSet         // of the first sequence parameter set
	av1     *sequence         // AV1: the first sequence header
	vp9     [2]byte           // VP9: profile, and depth with subsampling as vpcC has them
	colour  *Colour
	changed bool   // a parameter set came again with other content
	bare    bool   // a key frame came without parameter sets
	open    bool   // the last frame was one that can be decoded
	frame   uint32 // H.264: frame_num of the last frame that others refer to
	sizes   []uint32
	sync    []uint32 // decode indexes + 1
	media   int64

	early, cut int
}

type parameterSet struct {
	kind byte
	id   uint32
	nal  []byte
}

const maxSets = 64

// NewStream makes a stream; ErrUnsupported where packets of the codec are not read.
func NewStream(codec Codec, lim Limits) (*Stream, error) {
	switch codec {
	case H264, HEVC, AV1, VP9:
	default:
		return nil, noPacket(
			fmt.Sprintf("video in messages of codec %q", string(codec)),
			"h264, h265, av1 and vp9 are read",
		)
	}
	return &Stream{
		codec:  codec,
		lim:    lim.orDefaults(),
		spsOf:  map[uint32]*frameSet{},
		spsOfP: map[uint32]uint32{},
	}, nil
}

// Size is that of the frames; 0 before the first parameter sets.
func (s *Stream) Size() (width, height int) {
	if s.head == nil {
		return 0, 0
	}
	return s.head.width, s.head.height
}

// Colour is what a file said of its colours beside the packets (colr nclx; 2 = unspecified).
type Colour struct {
	Primaries int  `json:"primaries"`
	Transfer  int  `json:"transfer"`
	Matrix    int  `json:"matrix"`
	FullRange bool `json:"full_range,omitempty"`
}

// SetColour says the colours of the VirtualMP4; nil: as the packets have it.
func (s *Stream) SetColour(c *Colour) { s.colour = c }

// Absent counts the frames that are in no VirtualMP4: those before the first key frame, and those
// after a frame that is missing.
func (s *Stream) Absent() (early, cut int) { return s.early, s.cut }

// Lost says that a packet is missing here.
func (s *Stream) Lost() { s.open = false }

// ready says that there is a parameter set of each kind.
func (s *Stream) ready() bool {
	if s.codec == AV1 || s.codec == VP9 {
		return s.head != nil
	}
	need := []byte{7, 8}
	if s.codec == HEVC {
		need = []byte{32, 33, 34}
	}
	for _, kind := range need {
		if !slices.ContainsFunc(s.sets, func(p parameterSet) bool { return p.kind == kind }) {
			return false
		}
	}
	return true
}

// unit is what one NAL unit is.
type unit struct {
	set, slice, first, key, b, leading, refers bool
	frame                                      uint32
}

// packet is what one message holds.
type packet struct {
	images, size     int
	key, own, refers bool // own: it has the parameter sets with it
	frame            uint32
}

// unitNAL looks at a packet in Annex B form.
func (s *Stream) unitNAL(b []byte, p *packet) error {
	return nals(b, func(nal []byte) error {
		p.size += 4 + len(nal)
		u, err := s.unit(nal)
		if err != nil {
			return err
		}
		p.own = p.own || u.set
		if !u.slice {
			return nil
		}
		switch {
		case u.b:
			return refuse(
				"video in messages with B frames: they are not shown in the order in which they come",
				"record without B-frames (x264: bframes=0, tune zerolatency)",
			)
		case u.leading:
			return refuse(
				"video in messages with open groups of frames",
				"record with closed groups of frames",
			)
		case u.first:
			p.images++
		case p.images == 0:
			return refuse("a message with a part of a frame", "one frame a message")
		}
		p.key, p.refers, p.frame = p.key || u.key, p.refers || u.refers, u.frame
		return nil
	})
}

// look says what a packet holds.
func (s *Stream) look(data []byte) (p packet, err error) {
	switch s.codec {
	case AV1:
		if err := s.unitAV1(data, &p); err != nil {
			return p, err
		}
	case VP9:
		if err := s.unitVP9(data, &p); err != nil {
			return p, err
		}
	default:
		if err := s.unitNAL(data, &p); err != nil {
			return p, err
		}
	}
	if p.images > 1 {
		return p, refuse(
			"a message with several frames, or with a frame's two fields",
			"one frame a message",
		)
	}
	return p, nil
}

// Add takes the next packet, and gives the number of its frame in the VirtualMP4; -1 where it has
// none, or none that can be decoded.
func (s *Stream) Add(data []byte) (number int, err error) {
	p, err := s.look(data)
	if err != nil {
		s.open = false
		return -1, err
	}
	if p.images == 0 {
		return -1, nil
	}
	if s.codec == H264 && s.open && !p.key && !s.head.gaps {
		s.open = p.frame == s.frame || p.frame == (s.frame+1)&(1<<s.head.frameBits-1)
	}
	switch {
	case p.key && !s.ready():
		s.early++
		return -1, nil // without parameter sets nobody can decode it
	case p.key:
		s.open = true
		s.bare = s.bare || !p.own
	case !s.open && len(s.sizes) == 0:
		s.early++
		return -1, nil
	case !s.open:
		s.cut++
		return -1, nil
	}
	if len(s.sizes) >= s.lim.MaxSamples {
		return -1, robocache.ResourceLimit(opPackets, nil, "more than %d frames", s.lim.MaxSamples)
	}
	if p.size > maxPacket {
		return -1, robocache.ResourceLimit(
			opPackets,
			nil,
			"a packet of %d bytes, limit %d",
			p.size,
			maxPacket,
		)
	}
	if p.refers {
		s.frame = p.frame
	}
	s.sizes = append(s.sizes, uint32(p.size))
	s.media += int64(p.size)
	if p.key {
		s.sync = append(s.sync, uint32(len(s.sizes)))
	}
	return len(s.sizes) - 1, nil
}

// unit looks at a NAL unit, and notes parameter sets.
func (s *Stream) unit(nal []byte) (u unit, err error) {
	if s.codec == H264 {
		switch kind := nal[0] & 31; kind {
		case 7, 8:
			u.set = true
			if err := s.set(kind, nal, 1); err != nil {
				return u, err
			}
		case 1, 2, 5:
			if err := s.slice264(nal, kind, &u); err != nil {
				return u, err
			}
		}
		return u, nil
	}
	if len(nal) < 3 {
		return u, nil
	}
	kind := nal[0] >> 1 & 63
	switch {
	case kind >= 32 && kind <= 34:
		u.set = true
		if err := s.set(kind, nal, 2); err != nil {
			return u, err
		}
	case kind <= 9, kind >= 16 && kind <= 21:
		u.slice, u.first, u.refers = true, nal[2]&0x80 != 0, true
		u.key = kind >= 16 && kind <= 21
		u.leading = kind >= 6 && kind <= 9
		u.b = s.head != nil && s.head.reorder > 0
	}
	return u, nil
}

func (s *Stream) slice264(nal []byte, kind byte, u *unit) error {
	r := nalBits{b: nal[1:min(len(nal), 64)]}
	u.slice, u.key, u.refers = true, kind == 5, nal[0]&0x60 != 0
	u.first = r.ue() == 0
	u.b = r.ue()%5 == 1
	id := r.ue()
	sps := s.spsOf[s.spsOfP[id]]
	if sps == nil {
		sps = s.head
	}
	if sps == nil {
		return nil // nothing can be said of it, and it will not be decoded
	}
	if sps.planes {
		r.u(2)
	}
	u.frame = r.u(sps.frameBits)
	if sps.fields && r.bit() == 1 {
		return refuse("interlaced video in messages", "record whole frames")
	}
	if r.bad {
		return bad("a slice ends in its head", "", "")
	}
	return nil
}

// set reads a parameter set behind its head: of H.264 (7 sequence, 8 picture) or of HEVC (32 video,
// 33 sequence, 34 picture).
func (s *Stream) set(kind byte, nal []byte, head int) error {
	if len(nal) < 4 {
		return shortSet()
	}
	r := nalBits{b: nal[head:]}
	var id uint32
	switch kind {
	case 7, 33:
		parse := parseSPS264
		if kind == 33 {
			parse = parseSPS265
		}
		p, err := parse(nal, s.lim.MaxPixels)
		if err != nil {
			return err
		}
		if err := s.sized(p); err != nil {
			return err
		}
		s.spsOf[p.id], id = p, p.id
	case 32:
		id = r.u(4)
	case 8:
		var sps uint32
		if id, sps = r.ue(), r.ue(); r.bad || id > 255 || sps > 31 {
			return shortSet()
		}
		s.spsOfP[id] = sps
	case 34:
		if id = r.ue(); r.bad || id > 63 {
			return shortSet()
		}
	}
	return s.note(kind, id, nal)
}

// sized notes the size of the frames: all of a stream have one.
func (s *Stream) sized(p *frameSet) error {
	if s.head == nil {
		s.head = p
	}
	if p.width != s.head.width || p.height != s.head.height {
		return refuse(
			fmt.Sprintf(
				"video in messages whose frames change their size, from %d×%d to %d×%d",
				s.head.width,
				s.head.height,
				p.width,
				p.height,
			),
			"cut the recording there",
		)
	}
	return nil
}

func (s *Stream) note(kind byte, id uint32, nal []byte) error {
	for _, o := range s.sets {
		if o.kind == kind && o.id == id {
			s.changed = s.changed || string(o.nal) != string(nal)
			return nil
		}
	}
	if len(s.sets) >= maxSets || len(nal) > 4096 {
		return robocache.ResourceLimit(
			opPackets,
			nil,
			"parameter sets: more than %d, or one of %d bytes",
			maxSets,
			len(nal),
		)
	}
	if len(s.sizes) > 0 {
		s.changed = true // one that the first frames did not have
	}
	s.sets = append(s.sets, parameterSet{kind, id, append([]byte(nil), nal...)})
	return nil
}
