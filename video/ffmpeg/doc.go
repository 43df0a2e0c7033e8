// Package ffmpeg decodes video through libavcodec and libswscale, behind a shim that touches only
// what FFmpeg 5.1 to 8 share. Importing it registers the decoders with package video. Without cgo
// it registers nothing, and video.ActiveBackend says what is missing.
//
// The libraries are the static ones of 'make native' where they were built, else the system's.
// No container parser is linked: packets come from package video's own index.
//
// # Contract
//
//	F1  8-bit RGB is equal to the bit with PyAV and torchcodec: swscale's plain bilinear arithmetic, the stream's matrix and range.
//	    With more than 8 bits it is torchcodec's, whose chroma is interpolated by cubics (PyAV's linearly). Of the conversion in exact arithmetic these are
//	    off by 3.3 and 4.8 levels in the mean (10-bit H.264 of ffmpeg's testsrc2, all edges); swscale's accurate rounding with full chroma, which neither
//	    peer asks for, by 0.15.
//	    The vector kernel for 4:2:0 and 4:2:2 stands for swscale only where a comparison at its first use found it equal; so does the scaler, size by size.
//	    On arm64 these are the bits of x86-64, whose models are trained: the kernel stands there unasked, and swscale is built to take rows as it does on
//	    x86-64. The peers' swscale there rounds otherwise, by up to 3 levels (H.264, 4:2:0).
//	F2  YUVPlanes and Gray16 are the decoder's planes, equal to 'ffmpeg -f framemd5'. MPEG-4 on arm64 is the standard's to the bit; FFmpeg's averages of half
//	    pixels on x86-64 are one level off where a pixel is 0 (60 to 120 bytes of a million, two noisy clips).
//	F3  Every column and row is written, at every width and height.
//	F4  A packet that cannot be decoded is an error, or a frame that the codec concealed; never a crash, and never another frame's pixels.
//	F5  A decoder runs on its caller's thread alone and prints nothing.
//	F6  Decoding and converting allocate no Go memory once a decoder has seen its first frame.
//	F7  DepthMM and DepthM are lerobot's dequantize_depth in millimetres and metres (float32), for codes of 12 bits: equal to the bit, but metres of
//	    logarithmic codes, where torch's exp may be the second nearest float32.
//	F8  A track's rotation is applied to RGB, Gray16, DepthMM and DepthM; YUVPlanes are as stored.
//	F9  What ConvertPlanes makes of kept planes is what the frame's Convert makes, to the bit, for every format that PlaneInfo admits; kept planes
//	    hold nothing but the frame, and no byte outside of them is read. Idle contexts and their room are bounded, whatever shapes come by.
package ffmpeg
