package video

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/goatnote-inc/robocache"
)

// Stream collects the packets of a video that is received as messages, one frame per message. H.264
// and HEVC are in Annex B form, AV1 as temporal units in the low-overhead format, VP9 as frames or
// superframes. The frames that can be decoded form a VirtualMP4: from a key frame until a frame is
// missing.
//
// Frames must be received in presentation order. B-frames, frames of two fields, and packets with
// several frames or a part of one are ErrUnsupported. A packet that cannot be parsed is
// ErrMalformed. After ErrUnsupported the stream must not be used.
type Stream struct {
	codec Codec
	lim   Limits

	parameterSets     []parameterSet
	sequenceSets      map[uint32]*sequenceSet
	sequenceOfPicture map[uint32]uint32 // H.264: picture parameter set → sequence parameter set
	firstSet          *sequenceSet      // the first sequence parameter set
	av1               *sequenceHeader   // AV1: the first sequence header
	// VP9: profile, and depth with subsampling in the form of vpcC
	vp9           [2]byte
	colour        *Colour
	setsChanged   bool     // a parameter set was repeated with other content
	hasBareKey    bool     // a key frame had no parameter sets
	decodable     bool     // the last frame can be decoded
	lastReference uint32   // H.264: frame_num of the last reference frame
	hasFrames     bool     // a frame could be decoded
	sizes         []uint32 // size of each frame as a sample of the file
	sync          []uint32 // decode indexes + 1
	media         int64    // sum of sizes

	framesBeforeKey, framesAfterLoss int
}

// parameterSet is a parameter set of H.264 or HEVC. kind is its NAL unit type.
type parameterSet struct {
	kind byte
	id   uint32
	nal  []byte
}

// maxSets limits the number of parameter sets that a stream keeps.
const maxSets = 64

// NewStream returns an empty stream. It returns ErrUnsupported if packets of the codec are not
// supported.
func NewStream(codec Codec, lim Limits) (*Stream, error) {
	switch codec {
	case H264, HEVC, AV1, VP9:
	default:
		return nil, unsupportedPacket(
			fmt.Sprintf("packets of codec %q are not supported in messages", string(codec)),
			"use h264, h265, av1 or vp9",
		)
	}
	return &Stream{
		codec:             codec,
		lim:               lim.orDefaults(),
		sequenceSets:      map[uint32]*sequenceSet{},
		sequenceOfPicture: map[uint32]uint32{},
	}, nil
}

// Size returns the size of the frames, or 0 before the first parameter sets.
func (s *Stream) Size() (width, height int) {
	if s.firstSet == nil {
		return 0, 0
	}
	return s.firstSet.width, s.firstSet.height
}

// Colour is the color description of a file outside its packets (colr nclx; 2 = unspecified).
type Colour struct {
	Primaries int  `json:"primaries"`
	Transfer  int  `json:"transfer"`
	Matrix    int  `json:"matrix"`
	FullRange bool `json:"full_range,omitempty"`
}

// SetColour sets the colors of the VirtualMP4. nil uses those of the packets.
func (s *Stream) SetColour(c *Colour) { s.colour = c }

// Absent returns how many frames the VirtualMP4 leaves out: early counts those before the first key
// frame, and cut counts those after a missing frame.
func (s *Stream) Absent() (early, cut int) { return s.framesBeforeKey, s.framesAfterLoss }

// Lost reports to the stream that a packet is missing here.
func (s *Stream) Lost() { s.decodable = false }

// hasParameterSets reports whether the stream has received a parameter set of each kind, so that a
// key frame can be decoded.
func (s *Stream) hasParameterSets() bool {
	if s.codec == AV1 || s.codec == VP9 {
		return s.firstSet != nil
	}
	need := []byte{h264SPS, h264PPS}
	if s.codec == HEVC {
		need = []byte{hevcVPS, hevcSPS, hevcPPS}
	}
	for _, kind := range need {
		hasKind := func(p parameterSet) bool { return p.kind == kind }
		if !slices.ContainsFunc(s.parameterSets, hasKind) {
			return false
		}
	}
	return true
}

// nalInfo describes one NAL unit.
type nalInfo struct {
	isSet, isSlice, isFirst, isKey, isB, isLeading, isReference bool
	frameNum                                                    uint32
}

// packetInfo describes the content of one message.
type packetInfo struct {
	shownFrames, size              int
	isKey, hasOwnSets, isReference bool // hasOwnSets: the packet contains its parameter sets
	frameNum                       uint32
}

// inspectAnnexB fills p from a packet in Annex B form.
func (s *Stream) inspectAnnexB(b []byte, p *packetInfo) error {
	return eachNAL(b, func(nal []byte) error {
		p.size += 4 + len(nal)
		u, err := s.inspectNAL(nal)
		if err != nil {
			return err
		}
		p.hasOwnSets = p.hasOwnSets || u.isSet
		if !u.isSlice {
			return nil
		}
		switch {
		case u.isB:
			return unsupportedPacket(
				"the video in messages has B frames: they are not sent in presentation order",
				"record without B-frames (x264: bframes=0, tune zerolatency)",
			)
		case u.isLeading:
			return unsupportedPacket(
				"the video in messages has open groups of frames",
				"record with closed groups of frames",
			)
		case u.isFirst:
			p.shownFrames++
		case p.shownFrames == 0:
			return unsupportedPacket(
				"a message holds only a part of a frame",
				"send one frame per message",
			)
		}
		p.isKey = p.isKey || u.isKey
		p.isReference = p.isReference || u.isReference
		p.frameNum = u.frameNum
		return nil
	})
}

// inspectPacket returns the description of a packet.
func (s *Stream) inspectPacket(data []byte) (p packetInfo, err error) {
	switch s.codec {
	case AV1:
		if err := s.inspectAV1(data, &p); err != nil {
			return p, err
		}
	case VP9:
		if err := s.inspectVP9(data, &p); err != nil {
			return p, err
		}
	default:
		if err := s.inspectAnnexB(data, &p); err != nil {
			return p, err
		}
	}
	if p.shownFrames > 1 {
		return p, unsupportedPacket(
			"a message holds several frames, or the two fields of a frame",
			"send one frame per message",
		)
	}
	return p, nil
}

// Add adds the next packet. It returns the number of its frame in the VirtualMP4, or -1 if it has
// none or cannot be decoded.
func (s *Stream) Add(data []byte) (number int, err error) {
	p, ok, err := s.inspectNext(data)
	if !ok {
		return -1, err
	}
	if len(s.sizes) >= s.lim.MaxSamples {
		return -1, robocache.ResourceLimit(opPackets, nil, "more than %d frames", s.lim.MaxSamples)
	}
	s.sizes = append(s.sizes, uint32(p.size))
	s.media += int64(p.size)
	if p.isKey {
		s.sync = append(s.sync, uint32(len(s.sizes)))
	}
	return len(s.sizes) - 1, nil
}

// inspectNext describes the next packet of the stream. ok reports whether its frame can be decoded.
func (s *Stream) inspectNext(data []byte) (p packetInfo, ok bool, err error) {
	if p, err = s.inspectPacket(data); err != nil {
		s.decodable = false
		return p, false, err
	}
	if p.shownFrames == 0 {
		return p, false, nil
	}
	if s.codec == H264 && s.decodable && !p.isKey && !s.firstSet.gaps {
		// frame_num is that of the last reference frame or the next one. Otherwise a reference
		// frame is missing.
		frameNumMask := uint32(1<<s.firstSet.frameBits - 1)
		next := (s.lastReference + 1) & frameNumMask
		s.decodable = p.frameNum == s.lastReference || p.frameNum == next
	}
	switch {
	case p.isKey && !s.hasParameterSets():
		s.framesBeforeKey++
		return p, false, nil // it cannot be decoded without parameter sets
	case p.isKey:
		s.decodable = true
		s.hasBareKey = s.hasBareKey || !p.hasOwnSets
	case !s.decodable && !s.hasFrames:
		s.framesBeforeKey++
		return p, false, nil
	case !s.decodable:
		s.framesAfterLoss++
		return p, false, nil
	}
	if p.size > maxPacket {
		return p, false, robocache.ResourceLimit(
			opPackets,
			nil,
			"a packet of %d bytes, limit %d",
			p.size,
			maxPacket,
		)
	}
	if p.isReference {
		s.lastReference = p.frameNum
	}
	s.hasFrames = true
	return p, true, nil
}

// checkSets returns an error if the frames need more parameter sets than one sample entry and the
// packets of key frames contain.
func (s *Stream) checkSets() error {
	if s.setsChanged && s.hasBareKey {
		return unsupportedPacket(
			"the parameter sets of the video in messages change, and key frames do not repeat them",
			"record with the parameter sets at each key frame",
		)
	}
	return nil
}

// inspectNAL describes a NAL unit, and keeps parameter sets.
func (s *Stream) inspectNAL(nal []byte) (u nalInfo, err error) {
	if s.codec == H264 {
		switch kind := nal[0] & 31; kind {
		case h264SPS, h264PPS:
			u.isSet = true
			if err := s.addParameterSet(kind, nal, 1); err != nil {
				return u, err
			}
		case h264Slice, h264PartitionA, h264KeySlice:
			if err := s.inspectSlice264(nal, kind, &u); err != nil {
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
	case kind >= hevcVPS && kind <= hevcPPS:
		u.isSet = true
		if err := s.addParameterSet(kind, nal, 2); err != nil {
			return u, err
		}
	case kind <= hevcLastNonKey, kind >= hevcFirstKey && kind <= hevcLastKey:
		u.isSlice, u.isReference = true, true
		u.isFirst = nal[2]&0x80 != 0 // first_slice_segment_in_pic_flag
		u.isKey = kind >= hevcFirstKey
		u.isLeading = kind >= hevcFirstLeading && kind <= hevcLastNonKey
		u.isB = s.firstSet != nil && s.firstSet.reorder > 0
	}
	return u, nil
}

// inspectSlice264 describes a slice of H.264 by its NAL unit header and slice header.
func (s *Stream) inspectSlice264(nal []byte, kind byte, u *nalInfo) error {
	r := bitReader{b: nal[1:min(len(nal), 64)]}
	u.isSlice, u.isKey = true, kind == h264KeySlice
	u.isReference = nal[0]&0x60 != 0  // nal_ref_idc
	u.isFirst = r.readUnsigned() == 0 // first_mb_in_slice
	u.isB = r.readUnsigned()%5 == 1   // slice_type: 1 or 6
	id := r.readUnsigned()            // pic_parameter_set_id
	sps := s.sequenceSets[s.sequenceOfPicture[id]]
	if sps == nil {
		sps = s.firstSet
	}
	if sps == nil {
		return nil // the unit cannot be parsed, and will not be decoded
	}
	if sps.planes {
		r.readBits(2) // colour_plane_id
	}
	u.frameNum = r.readBits(sps.frameBits)
	if sps.fields && r.readBit() == 1 { // field_pic_flag
		return unsupportedPacket("the video in messages is interlaced", "record whole frames")
	}
	if r.bad {
		return malformedPacket("the header of a slice is truncated", "", "")
	}
	return nil
}

// addParameterSet parses and stores a parameter set of NAL unit type kind. The NAL unit header has
// headBytes bytes.
func (s *Stream) addParameterSet(kind byte, nal []byte, headBytes int) error {
	if len(nal) < 4 {
		return truncatedSet()
	}
	isKept := func(p parameterSet) bool { return p.kind == kind && bytes.Equal(p.nal, nal) }
	if !s.setsChanged && slices.ContainsFunc(s.parameterSets, isKept) {
		return nil
	}
	r := bitReader{b: nal[headBytes:]}
	var id uint32
	switch kind {
	case h264SPS, hevcSPS:
		parse := parseSPS264
		if kind == hevcSPS {
			parse = parseSPS265
		}
		p, err := parse(nal, s.lim.MaxPixels)
		if err != nil {
			return err
		}
		if err := s.checkSize(p); err != nil {
			return err
		}
		s.sequenceSets[p.id], id = p, p.id
	case hevcVPS:
		id = r.readBits(4)
	case h264PPS:
		id = r.readUnsigned()
		sps := r.readUnsigned()
		if r.bad || id > 255 || sps > 31 {
			return truncatedSet()
		}
		s.sequenceOfPicture[id] = sps
	case hevcPPS:
		id = r.readUnsigned()
		if r.bad || id > 63 {
			return truncatedSet()
		}
	}
	return s.keepParameterSet(kind, id, nal)
}

// checkSize returns an error if the frame size differs from that of the first frames.
func (s *Stream) checkSize(p *sequenceSet) error {
	if s.firstSet == nil {
		s.firstSet = p
	}
	if p.width != s.firstSet.width || p.height != s.firstSet.height {
		return unsupportedPacket(
			fmt.Sprintf(
				"the frames of the video in messages change their size from %d×%d to %d×%d",
				s.firstSet.width,
				s.firstSet.height,
				p.width,
				p.height,
			),
			"split the recording there",
		)
	}
	return nil
}

// keepParameterSet stores a parameter set, and records whether it changed.
func (s *Stream) keepParameterSet(kind byte, id uint32, nal []byte) error {
	for _, o := range s.parameterSets {
		if o.kind == kind && o.id == id {
			s.setsChanged = s.setsChanged || string(o.nal) != string(nal)
			return nil
		}
	}
	if len(s.parameterSets) >= maxSets || len(nal) > 4096 {
		return robocache.ResourceLimit(
			opPackets,
			nil,
			"parameter sets: more than %d, or one of %d bytes",
			maxSets,
			len(nal),
		)
	}
	if s.hasFrames {
		s.setsChanged = true // the first frames did not have this set
	}
	s.parameterSets = append(s.parameterSets, parameterSet{kind, id, append([]byte(nil), nal...)})
	return nil
}
