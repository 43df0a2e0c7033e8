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

// startCode precedes each NAL unit in Annex B form.
var startCode = []byte{0, 0, 1}

// NAL unit types of H.264 (5 low bits of the first byte).
const (
	h264Slice      = 1
	h264PartitionA = 2 // first part of a partitioned slice
	h264KeySlice   = 5 // slice of an IDR picture
	h264SPS        = 7
	h264PPS        = 8
	h264Delimiter  = 9
)

// NAL unit types of HEVC (6 bits of the first byte, after its first bit).
const (
	hevcLastNonKey   = 9 // 0 to 9 are slices of other frames; 6 to 9 of leading ones
	hevcFirstLeading = 6
	hevcFirstKey     = 16 // 16 to 21 are slices of key frames
	hevcLastKey      = 21
	hevcVPS          = 32
	hevcSPS          = 33
	hevcPPS          = 34
	hevcDelimiter    = 35
)

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
	zeros     int  // number of zero bytes just before the next byte
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
	chroma                   uint32   // chroma_format_idc
	lumaBits, chromaBits     uint32   // bits minus 8
	planes                   bool     // color planes are coded separately
	frameBits                int      // H.264: bits of frame_num
	gaps                     bool     // H.264: frame_num may have gaps
	fields                   bool     // H.264: frames may be coded as fields
	reorder                  uint32   // HEVC: maximum number of frames that are reordered
	layers                   uint32   // HEVC: temporal layers minus 1
	nested                   uint32   // HEVC: sps_temporal_id_nesting_flag
	profile                  [12]byte // HEVC: general profile, tier and level
	cropX, cropY             uint32   // pixels per unit of the crop
	left, right, top, bottom uint32   // crop at each side, in units
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

// truncatedSet returns the error for a parameter set that ends too early.
func truncatedSet() error { return malformedPacket("a parameter set is truncated", "", "") }

// parseSPS264 parses a sequence parameter set of H.264, including its first byte. The comments are
// the names of the fields in ITU-T H.264, section 7.3.2.1.1.
func parseSPS264(nal []byte, maxPixels int64) (*sequenceSet, error) {
	bits := bitReader{b: nal[1:]}
	set := &sequenceSet{chroma: 1}
	profile := bits.readBits(8)
	bits.skipBits(16) // constraint flags, level_idc
	set.id = bits.readUnsigned()
	switch profile {
	case 100, 110, 122, 244, 44, 83, 86, 118, 128, 138, 139, 134, 135:
		if set.chroma = bits.readUnsigned(); set.chroma == 3 {
			set.planes = bits.readBit() == 1
		}
		set.lumaBits, set.chromaBits = bits.readUnsigned(), bits.readUnsigned()
		bits.readBit()           // qpprime_y_zero_transform_bypass_flag
		if bits.readBit() == 1 { // seq_scaling_matrix_present_flag
			lists := 8
			if set.chroma == 3 {
				lists = 12
			}
			for i := range lists {
				if bits.readBit() == 1 { // seq_scaling_list_present_flag
					size := 16 // of 4×4 blocks
					if i >= 6 {
						size = 64 // of 8×8 blocks
					}
					skipScalingList(&bits, size)
				}
			}
		}
	}
	set.frameBits = int(bits.readUnsigned()) + 4
	switch bits.readUnsigned() { // pic_order_cnt_type
	case 0:
		bits.readUnsigned() // log2_max_pic_order_cnt_lsb_minus4
	case 1:
		bits.readBit()    // delta_pic_order_always_zero_flag
		bits.readSigned() // offset_for_non_ref_pic
		bits.readSigned() // offset_for_top_to_bottom_field
		cycle := bits.readUnsigned()
		for range min(cycle, 256) {
			bits.readSigned() // offset_for_ref_frame
		}
		if cycle > 255 {
			bits.bad = true
		}
	}
	bits.readUnsigned() // max_num_ref_frames
	set.gaps = bits.readBit() == 1
	w, h := bits.readUnsigned(), bits.readUnsigned() // in macroblocks of 16 pixels, minus 1
	set.fields = bits.readBit() == 0
	unit := uint32(1) // fields in a frame: h and the vertical crop count rows of one field
	if set.fields {
		bits.readBit() // mb_adaptive_frame_field_flag
		unit = 2
	}
	bits.readBit()           // direct_8x8_inference_flag
	if bits.readBit() == 1 { // frame_cropping_flag
		set.left, set.right = bits.readUnsigned(), bits.readUnsigned()
		set.top, set.bottom = bits.readUnsigned(), bits.readUnsigned()
	}
	if bits.bad || set.frameBits > 16 || set.id > 31 || set.chroma > 3 || set.lumaBits > 6 ||
		set.chromaBits > 6 || w > 4096 || h > 4096 {
		return nil, truncatedSet()
	}
	set.width, set.height = 16*(int(w)+1), 16*int(unit)*(int(h)+1)
	// The crop counts samples of the color planes. With 4:2:0 each one is two pixels wide and high.
	set.cropX, set.cropY = 1, unit
	if !set.planes && (set.chroma == 1 || set.chroma == 2) {
		set.cropX = 2
	}
	if !set.planes && set.chroma == 1 {
		set.cropY *= 2
	}
	return set.applyCrop(maxPixels)
}

// skipScalingList skips a scaling list of H.264 with size values. The list ends early, and repeats
// its last value, at a difference that makes the next value 0.
func skipScalingList(r *bitReader, size int) {
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

// parseSPS265 parses a sequence parameter set of HEVC, including its first two bytes. The comments
// are the names of the fields in ITU-T H.265, section 7.3.2.2.
func parseSPS265(nal []byte, maxPixels int64) (*sequenceSet, error) {
	if len(nal) < 15 {
		return nil, truncatedSet()
	}
	bits := bitReader{b: nal[2:]}
	set := &sequenceSet{}
	bits.readBits(4) // sps_video_parameter_set_id
	set.layers, set.nested = bits.readBits(3), bits.readBits(1)
	for i := range set.profile {
		set.profile[i] = byte(bits.readBits(8))
	}
	var profiles, levels [8]bool // the layer has a profile, and a level
	for i := range set.layers {
		profiles[i], levels[i] = bits.readBit() == 1, bits.readBit() == 1
	}
	if set.layers > 0 {
		bits.skipBits(2 * (8 - int(set.layers))) // reserved_zero_2bits of the layers up to 8
	}
	for i := range set.layers {
		if profiles[i] {
			bits.skipBits(88) // profile of the layer
		}
		if levels[i] {
			bits.skipBits(8) // sub_layer_level_idc
		}
	}
	set.id = bits.readUnsigned()
	if set.chroma = bits.readUnsigned(); set.chroma == 3 {
		set.planes = bits.readBit() == 1
	}
	w, h := bits.readUnsigned(), bits.readUnsigned()
	if bits.readBit() == 1 { // conformance_window_flag
		set.left, set.right = bits.readUnsigned(), bits.readUnsigned()
		set.top, set.bottom = bits.readUnsigned(), bits.readUnsigned()
	}
	set.lumaBits, set.chromaBits = bits.readUnsigned(), bits.readUnsigned()
	bits.readUnsigned()      // log2_max_pic_order_cnt_lsb_minus4
	first := set.layers      // first layer with buffer sizes
	if bits.readBit() == 1 { // sps_sub_layer_ordering_info_present_flag
		first = 0
	}
	for range set.layers - first + 1 {
		bits.readUnsigned() // sps_max_dec_pic_buffering_minus1
		set.reorder = bits.readUnsigned()
		bits.readUnsigned() // sps_max_latency_increase_plus1
	}
	if bits.bad || set.id > 15 || set.chroma > 3 ||
		set.lumaBits > 8 || set.chromaBits > 8 || w > 65535 ||
		h > 65535 {
		return nil, truncatedSet()
	}
	set.width, set.height, set.cropX, set.cropY = int(w), int(h), 1, 1
	if set.chroma == 1 || set.chroma == 2 {
		set.cropX = 2
	}
	if set.chroma == 1 {
		set.cropY = 2
	}
	return set.applyCrop(maxPixels)
}
