// Package unzstd decompresses zstd data whose size is known or bounded, whole buffers at once: by
// libzstd where 'make native' built it (about twice the speed), by klauspost/compress elsewhere.
//
// # Contract
//
//	U1  Decode takes all frames of src, skippable ones too, and never writes more than len(dst): data that holds more is ErrRoom, at once where
//	    the first frame says so. dst is the window: whatever window or size a frame claims, no memory is taken for it.
//	U2  Prefix stops when need bytes are there, and gives what was right before damage or the end of cut data.
//	U3  Both ways give the same bytes of all data that is whole. Check sums are verified where the caller asks; damage that no sum covers
//	    one way may notice and the other not. A dictionary is Malformed: nobody has one.
//	U4  Any number of goroutines may call. libzstd's contexts lie in C memory, 160 KB each: as many as calls run, at most one a core between
//	    calls. dst and src must not overlap.
package unzstd
