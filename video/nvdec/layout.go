//
//lint:file-ignore U1000 the fields mirror the driver's structures, used or not

package nvdec

import "unsafe"

// The structures are copied from Video Codec SDK 11.1 (the MIT headers dynlink_cuviddec.h and
// dynlink_nvcuvid.h in Debian's libffmpeg-nvenc-dev). Later drivers keep their layout.
// layout_test.go compares sizes and offsets with those that a C compiler computes.

// Values of cudaVideoCodec.
const (
	codecH264 = 4
	codecHEVC = 8
	codecVP9  = 10
)

const (
	chroma420 = 1 // cudaVideoChromaFormat_420
	maskNV12  = 1 // bit of decodeCaps.outputs: 1 << cudaVideoSurfaceFormat_NV12

	preferEngines = 4 // cudaVideoCreate_PreferCUVID

	endOfStream = 1 // CUVID_PKT_ENDOFSTREAM
	timestamped = 2 // CUVID_PKT_TIMESTAMP
	wholeFrame  = 8 // CUVID_PKT_ENDOFPICTURE
	statusGood  = 2 // cuvidDecodeStatus_Success
	statusRuns  = 1 // cuvidDecodeStatus_InProgress
)

// decodeCaps is CUVIDDECODECAPS.
type decodeCaps struct {
	codec, chroma, depth int32 // the question to the driver; depth is bits minus 8
	_                    [3]uint32
	supported, engines   uint8
	outputs              uint16
	maxWidth, maxHeight  uint32
	maxBlocks            uint32 // macroblocks of 16 × 16 pixels
	minWidth, minHeight  uint16
	_                    [44]byte
}

// rect16 and rect32 are areas of a frame. right and bottom are exclusive.
type (
	rect16 struct{ left, top, right, bottom int16 }
	rect32 struct{ left, top, right, bottom int32 }
)

// createInfo is CUVIDDECODECREATEINFO.
type createInfo struct {
	width, height, surfaces   uint64
	codec, chroma             int32
	flags, depth, intra       uint64
	maxWidth, maxHeight, _    uint64
	shown                     rect16
	output, deinterlace       int32
	targetWidth, targetHeight uint64
	outputSurfaces            uint64
	lock                      uintptr
	target                    rect16
	histogram                 uint64
	_                         [4]uint64
}

// decodeParams is the first part of CUVIDPICPARAMS. The rest depends on the codec: the parser
// writes it and the decoder reads it.
type decodeParams struct {
	widthBlocks, heightBlocks int32
	surface                   int32
	field, bottom, second     int32
	bytes                     uint32
	data                      unsafe.Pointer
	slices                    uint32
	offsets                   unsafe.Pointer
	reference, intra          int32
}

// mapParams is CUVIDPROCPARAMS.
type mapParams struct {
	progressive, second, topFirst, unpaired int32
	_                                       [2]uint32
	_                                       uint64
	_                                       [2]uint32
	_                                       uint64
	_                                       [2]uint32
	stream                                  uintptr
	_                                       [46]uint32
	_                                       [2]uintptr
}

// decodeStatus is CUVIDGETDECODESTATUS.
type decodeStatus struct {
	status int32
	_      [31]uint32
	_      [8]uintptr
}

// streamFormat is CUVIDEOFORMAT.
type streamFormat struct {
	codec                  int32
	rate                   [2]uint32
	progressive            uint8
	lumaDepth, chromaDepth uint8 // bits minus 8
	surfaces               uint8 // minimum number of decode surfaces
	width, height          uint32
	shown                  rect32
	chroma                 int32
	bitrate                uint32
	aspect                 [2]int32
	signal                 uint8 // bit 3: full range
	primaries, transfer    uint8
	matrix                 uint8
	more                   uint32
}

// isFullRange reports whether the samples use the full range of values, not the limited range.
func (f *streamFormat) isFullRange() bool { return f.signal&8 != 0 }

// sourcePacket is CUVIDSOURCEDATAPACKET.
type sourcePacket struct {
	flags, size uint64
	data        unsafe.Pointer
	timestamp   int64
}

// shownInfo is CUVIDPARSERDISPINFO.
type shownInfo struct {
	surface, progressive, topFirst, repeat int32
	timestamp                              int64
}

// parserParams is CUVIDPARSERPARAMS.
type parserParams struct {
	codec                           int32
	surfaces, clock, errors, delay  uint32
	_                               [5]uint32
	user                            uintptr
	sequence, decode, show, operate uintptr
	_                               [6]uintptr
	extended                        uintptr
}
