// Package jpegxl decodes JPEG XL, UMI's camera codec, by libjxl compiled to WebAssembly: in every
// build, without cgo and without a library of the machine. The first image compiles the decoder,
// which costs 0.4 s of a core, once a process.
//
// # Contract
//
//	X1  Lossless images are given as they were encoded, to the bit. Lossy ones are libjxl 0.11's, rounded to the nearest value: other
//	    builds of it differ by 1 in some pixels, in the order of their sums; 0.12 and later dither, and differ by 1 in a third of them.
//	X2  Integers of 8 and 16 bits, 1 to 4 channels, any number of frames. Another depth is Unsupported by its bits.
//	X3  dst says what is expected. A stream of another size is Malformed, and so is colour where grey is expected, or an alpha channel
//	    that is not opaque where none is.
//	X4  What a stream can cost is bounded, whatever its bytes: 512 MiB of the decoder's memory, and time in proportion to len(dst). It runs
//	    in a sandbox: no address of the process, no file and no clock is within its reach.
//	X5  Any number of goroutines may call; as many decoders as cores run at the same time, and are used again unless one failed.
package jpegxl
