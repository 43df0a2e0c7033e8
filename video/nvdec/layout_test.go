package nvdec

import (
	"testing"
	"unsafe"
)

// The numbers were printed by a C program over ffnvcodec 11.1.5.2 (sizeof and offsetof, x86-64
// Linux).
func TestLayout(t *testing.T) {
	for _, x := range []struct {
		name      string
		got, want uintptr
	}{
		{"CUVIDDECODECAPS", unsafe.Sizeof(caps{}), 88},
		{"CUVIDDECODECAPS.bIsSupported", unsafe.Offsetof(caps{}.supported), 24},
		{"CUVIDDECODECAPS.nNumNVDECs", unsafe.Offsetof(caps{}.engines), 25},
		{"CUVIDDECODECAPS.nOutputFormatMask", unsafe.Offsetof(caps{}.outputs), 26},
		{"CUVIDDECODECAPS.nMaxWidth", unsafe.Offsetof(caps{}.maxWidth), 28},
		{"CUVIDDECODECAPS.nMaxMBCount", unsafe.Offsetof(caps{}.maxBlocks), 36},
		{"CUVIDDECODECAPS.nMinWidth", unsafe.Offsetof(caps{}.minWidth), 40},
		{"CUVIDDECODECAPS.nMinHeight", unsafe.Offsetof(caps{}.minHeight), 42},
		{"CUVIDDECODECREATEINFO", unsafe.Sizeof(createInfo{}), 176},
		{"CUVIDDECODECREATEINFO.ulNumDecodeSurfaces", unsafe.Offsetof(createInfo{}.surfaces), 16},
		{"CUVIDDECODECREATEINFO.CodecType", unsafe.Offsetof(createInfo{}.codec), 24},
		{"CUVIDDECODECREATEINFO.ChromaFormat", unsafe.Offsetof(createInfo{}.chroma), 28},
		{"CUVIDDECODECREATEINFO.ulCreationFlags", unsafe.Offsetof(createInfo{}.flags), 32},
		{"CUVIDDECODECREATEINFO.bitDepthMinus8", unsafe.Offsetof(createInfo{}.depth), 40},
		{"CUVIDDECODECREATEINFO.ulMaxWidth", unsafe.Offsetof(createInfo{}.maxWidth), 56},
		{"CUVIDDECODECREATEINFO.display_area", unsafe.Offsetof(createInfo{}.shown), 80},
		{"CUVIDDECODECREATEINFO.OutputFormat", unsafe.Offsetof(createInfo{}.output), 88},
		{"CUVIDDECODECREATEINFO.DeinterlaceMode", unsafe.Offsetof(createInfo{}.deinterlace), 92},
		{"CUVIDDECODECREATEINFO.ulTargetWidth", unsafe.Offsetof(createInfo{}.targetWidth), 96},
		{"CUVIDDECODECREATEINFO.ulNumOutputSurfaces", unsafe.Offsetof(createInfo{}.outputSurfaces), 112},
		{"CUVIDDECODECREATEINFO.vidLock", unsafe.Offsetof(createInfo{}.lock), 120},
		{"CUVIDDECODECREATEINFO.target_rect", unsafe.Offsetof(createInfo{}.target), 128},
		{"CUVIDDECODECREATEINFO.enableHistogram", unsafe.Offsetof(createInfo{}.histogram), 136},
		{"CUVIDPICPARAMS.CurrPicIdx", unsafe.Offsetof(decodeParams{}.surface), 8},
		{"CUVIDPICPARAMS.field_pic_flag", unsafe.Offsetof(decodeParams{}.field), 12},
		{"CUVIDPICPARAMS.second_field", unsafe.Offsetof(decodeParams{}.second), 20},
		{"CUVIDPICPARAMS.nBitstreamDataLen", unsafe.Offsetof(decodeParams{}.bytes), 24},
		{"CUVIDPICPARAMS.pBitstreamData", unsafe.Offsetof(decodeParams{}.data), 32},
		{"CUVIDPICPARAMS.ref_pic_flag", unsafe.Offsetof(decodeParams{}.reference), 56},
		{"CUVIDPICPARAMS.intra_pic_flag", unsafe.Offsetof(decodeParams{}.intra), 60},
		{"CUVIDPROCPARAMS", unsafe.Sizeof(mapParams{}), 264},
		{"CUVIDPROCPARAMS.output_stream", unsafe.Offsetof(mapParams{}.stream), 56},
		{"CUVIDGETDECODESTATUS", unsafe.Sizeof(decodeStatus{}), 192},
		{"CUVIDEOFORMAT", unsafe.Sizeof(format{}), 64},
		{"CUVIDEOFORMAT.progressive_sequence", unsafe.Offsetof(format{}.progressive), 12},
		{"CUVIDEOFORMAT.min_num_decode_surfaces", unsafe.Offsetof(format{}.surfaces), 15},
		{"CUVIDEOFORMAT.coded_width", unsafe.Offsetof(format{}.width), 16},
		{"CUVIDEOFORMAT.display_area", unsafe.Offsetof(format{}.shown), 24},
		{"CUVIDEOFORMAT.chroma_format", unsafe.Offsetof(format{}.chroma), 40},
		{"CUVIDEOFORMAT.video_signal_description", unsafe.Offsetof(format{}.signal), 56},
		{"CUVIDEOFORMAT.seqhdr_data_length", unsafe.Offsetof(format{}.more), 60},
		{"CUVIDSOURCEDATAPACKET", unsafe.Sizeof(packet{}), 32},
		{"CUVIDSOURCEDATAPACKET.payload", unsafe.Offsetof(packet{}.data), 16},
		{"CUVIDSOURCEDATAPACKET.timestamp", unsafe.Offsetof(packet{}.timestamp), 24},
		{"CUVIDPARSERDISPINFO", unsafe.Sizeof(shownInfo{}), 24},
		{"CUVIDPARSERDISPINFO.timestamp", unsafe.Offsetof(shownInfo{}.timestamp), 16},
		{"CUVIDPARSERPARAMS", unsafe.Sizeof(parserParams{}), 136},
		{"CUVIDPARSERPARAMS.ulMaxNumDecodeSurfaces", unsafe.Offsetof(parserParams{}.surfaces), 4},
		{"CUVIDPARSERPARAMS.ulErrorThreshold", unsafe.Offsetof(parserParams{}.errors), 12},
		{"CUVIDPARSERPARAMS.ulMaxDisplayDelay", unsafe.Offsetof(parserParams{}.delay), 16},
		{"CUVIDPARSERPARAMS.pUserData", unsafe.Offsetof(parserParams{}.user), 40},
		{"CUVIDPARSERPARAMS.pfnSequenceCallback", unsafe.Offsetof(parserParams{}.sequence), 48},
		{"CUVIDPARSERPARAMS.pfnDisplayPicture", unsafe.Offsetof(parserParams{}.show), 64},
		{"CUVIDPARSERPARAMS.pExtVideoInfo", unsafe.Offsetof(parserParams{}.extended), 128},
	} {
		if x.got != x.want {
			t.Errorf("%s: %d, want %d", x.name, x.got, x.want)
		}
	}
}
