// Package jpegxl decodes JPEG XL, the camera codec of UMI, with libjxl compiled to WebAssembly. It
// works in every build, without cgo and without libraries of the machine. The first image compiles
// the decoder, which takes 0.4 s of one core, once per process.
//
// # Contract
//
//	jpegxl.X1  Lossless images are returned bit for bit. Lossy ones are those of libjxl 0.11, rounded
//	           to the nearest value. Other builds of it differ by 1 in some pixels, because they add
//	           in another order. Versions from 0.12 on dither, and differ by 1 in a third of them.
//	jpegxl.X2  The decoder supports integers of 8 and 16 bits, 1 to 4 channels, and any number of
//	           frames. Another depth is Unsupported.
//	jpegxl.X3  dst defines the expected size. A stream of another size is Malformed. So are color
//	           instead of expected grey, and an unexpected alpha channel that is not opaque.
//	jpegxl.X4  The cost of a stream is limited for any bytes: 512 MiB of the decoder's memory, and
//	           time in proportion to len(dst). The decoder runs in a sandbox without access to
//	           addresses of the process, files or clocks.
//	jpegxl.X5  Decode is safe for concurrent use. As many decoders as cores run at once. They are
//	           reused unless they fail.
package jpegxl
