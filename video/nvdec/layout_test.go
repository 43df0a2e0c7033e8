package nvdec

import (
	"testing"
	"unsafe"
)

// The numbers were printed by a C program with sizeof and offsetof, compiled against ffnvcodec
// 11.1.5.2 on x86-64 Linux.
func TestLayout(t *testing.T) {
	for _, x := range []struct {
		name      string
		got, want uintptr
	}{
		{"CUVIDDECODECAPS", unsafe.Sizeof(decodeCaps{}), 88},
		{"CUVIDDECODECAPS.bIsSupported", unsafe.Offsetof(decodeCaps{}.supported), 24},
		{"CUVIDDECODECAPS.nNumNVDECs", unsafe.Offsetof(decodeCaps{}.engines), 25},
		{"CUVIDDECODECAPS.nOutputFormatMask", unsafe.Offsetof(decodeCaps{}.outputs), 26},
		{"CUVIDDECODECAPS.nMaxWidth", unsafe.Offsetof(decodeCaps{}.maxWidth), 28},
		{"CUVIDDECODECAPS.nMaxMBCount", unsafe.Offsetof(decodeCaps{}.maxBlocks), 36},
		{"CUVIDDECODECAPS.nMinWidth", unsafe.Offsetof(decodeCaps{}.minWidth), 40},
		{"CUVIDDECODECAPS.nMinHeight", unsafe.Offsetof(decodeCaps{}.minHeight), 42},
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
		{
			"CUVIDDECODECREATEINFO.ulNumOutputSurfaces",
			unsafe.Offsetof(createInfo{}.outputSurfaces),
			112,
		},
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
		{"CUVIDEOFORMAT", unsafe.Sizeof(streamFormat{}), 64},
		{"CUVIDEOFORMAT.progressive_sequence", unsafe.Offsetof(streamFormat{}.progressive), 12},
		{"CUVIDEOFORMAT.min_num_decode_surfaces", unsafe.Offsetof(streamFormat{}.surfaces), 15},
		{"CUVIDEOFORMAT.coded_width", unsafe.Offsetof(streamFormat{}.width), 16},
		{"CUVIDEOFORMAT.display_area", unsafe.Offsetof(streamFormat{}.shown), 24},
		{"CUVIDEOFORMAT.chroma_format", unsafe.Offsetof(streamFormat{}.chroma), 40},
		{"CUVIDEOFORMAT.video_signal_description", unsafe.Offsetof(streamFormat{}.signal), 56},
		{"CUVIDEOFORMAT.seqhdr_data_length", unsafe.Offsetof(streamFormat{}.more), 60},
		{"CUVIDSOURCEDATAPACKET", unsafe.Sizeof(sourcePacket{}), 32},
		{"CUVIDSOURCEDATAPACKET.payload", unsafe.Offsetof(sourcePacket{}.data), 16},
		{"CUVIDSOURCEDATAPACKET.timestamp", unsafe.Offsetof(sourcePacket{}.timestamp), 24},
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
