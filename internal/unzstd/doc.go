// Package unzstd decompresses zstd data of known or bounded size into a whole buffer. It uses
// libzstd if 'make native' built it, which is about twice as fast. Otherwise it uses
// klauspost/compress.
//
// # Contract
//
//	unzstd.U1  Decode decompresses all frames of src, including skippable frames, and never
//	           writes more than len(dst) bytes. Longer data is ErrRoom; if the first frame
//	           declares a longer size, nothing is decompressed. dst is the window, so no memory
//	           is allocated for the window or size that a frame declares.
//	unzstd.U2  Prefix stops when need bytes are decompressed. If the data is damaged or
//	           truncated, it returns the correct bytes before that point.
//	unzstd.U3  Both implementations produce the same bytes for all intact data. Checksums are
//	           verified if the caller asks for it. If no checksum covers damage, only one
//	           implementation may detect it. Data that needs a dictionary is Malformed, because
//	           no dictionary is available.
//	unzstd.U4  All functions are safe for concurrent use. The contexts of libzstd are in C memory
//	           and take 160 KB each. There is one per running call, and at most one per core
//	           between calls. dst and src must not overlap.
package unzstd
