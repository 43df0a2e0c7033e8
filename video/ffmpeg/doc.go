// Package ffmpeg decodes video with libavcodec and libswscale. Its shim uses only API that FFmpeg
// 5.1 to 8 share. Importing the package registers the decoders with package video. Without cgo it
// registers nothing, and video.ActiveBackend returns an error with a hint.
//
// The libraries are the static ones of 'make native' if they were built, otherwise the system's. No
// container parser is linked: packets come from the index of package video.
//
// # Contract
//
//	ffmpeg.F1  8-bit RGB is bit-identical to PyAV and torchcodec: swscale's plain bilinear
//	           arithmetic, with the stream's matrix and range. With more than 8 bits it is
//	           torchcodec's, which interpolates chroma cubically (PyAV linearly). These differ from
//	           exact arithmetic by 3.3 and 4.8 levels on average (10-bit H.264 of ffmpeg's testsrc2,
//	           all edges). swscale's accurate rounding with full chroma, which neither peer uses,
//	           differs by 0.15.
//	           The vector kernel for 4:2:0 and 4:2:2 replaces swscale only if a comparison at its
//	           first use found equal results; the scaler likewise, size by size.
//	           On arm64 the bits are those of x86-64, on which models are trained: the kernel is
//	           used without a comparison, and swscale is built to process rows as on x86-64. The
//	           peers' swscale on arm64 rounds differently, by up to 3 levels (H.264, 4:2:0).
//	ffmpeg.F2  YUVPlanes and Gray16 are the decoder's planes, equal to 'ffmpeg -f framemd5'. MPEG-4
//	           on arm64 is bit-identical to the standard. On x86-64, FFmpeg's averages of half
//	           pixels differ by one level if a pixel is 0 (60 to 120 bytes per million, in two noisy
//	           clips).
//	ffmpeg.F3  Every column and row is written, at every width and height.
//	ffmpeg.F4  A packet that cannot be decoded is an error, or a frame that the codec concealed. It
//	           never causes a crash, or a frame with other pixels.
//	ffmpeg.F5  A decoder runs only on its caller's thread, and prints nothing.
//	ffmpeg.F6  Decoding and converting allocate no Go memory after a decoder's first frame.
//	ffmpeg.F7  DepthMM and DepthM are lerobot's dequantize_depth in millimeters and meters
//	           (float32), for codes of 12 bits. They are bit-identical, except meters of logarithmic
//	           codes: torch's exp may return the second nearest float32.
//	ffmpeg.F8  A track's rotation is applied to RGB, Gray16, DepthMM and DepthM. YUVPlanes are not
//	           rotated.
//	ffmpeg.F9  ConvertPlanes of stored planes and Convert of the frame give the same bytes, for every
//	           format of PlaneInfo. Stored planes contain only the frame, and no byte outside them is
//	           read. Idle contexts and their memory are limited, for any number of shapes.
package ffmpeg
