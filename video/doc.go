// Package video finds frames inside mp4 files, and in packets that come as messages (Stream,
// VirtualMP4): the sample index, the decode plan, the open files of a dataset, still images, and
// the writing side (joining without re-encoding, and encoding through an ffmpeg found at run time).
// Decoding itself stands behind Backend; the container is never given to a C library.
//
// The container is own code. github.com/Eyevinn/mp4ff v0.50.0 was tried in its place: it neither
// reads nor writes a display matrix (tkhd has the unity matrix, always), panics on a track whose
// sizes stand in stz2, and refuses tables with padding behind them, which real writers leave. Its
// writer would save 60 of the 138 lines of muxbox.go, for 20,000 of its own, and could not keep
// what Concat promises.
//
// # Contract
//
//	V1  Frame k (its ordinal) is the k-th in presentation order among the samples that the edit list presents. A frame is never
//	    found by seconds times fps, nor by a count in a header.
//	V2  ReadIndex reads the head, box headers, and the moov: never the media. Every declared count and size is checked against
//	    the bytes that are there, and against Limits, before anything of that size is allocated.
//	V3  An Index is immutable; any number of goroutines may use it. It keeps 8 bytes a sample, 4 more where frames are
//	    reordered or the rate varies, 2 more where they are reordered.
//	V4  The governing sample of a frame is the last sync sample in decode order that is neither decoded nor presented after
//	    it. (The rule by decode order alone gives wrong frames on open GOPs.)
//	V5  A plan covers every frame asked for, goes forward only, and sends no packet twice. It depends on the index and the
//	    set of frames alone, not on their order.
//	V6  A file that cannot be read (LFS pointer, cut, fragmented, repeated edits, mirrored) is a typed error with box and offset, never
//	    a shorter list. Limits.AllowTruncated serves what is whole of a cut file; frame numbers keep their meaning.
//	V7  A Library holds at most its budget in bytes of idle indexes and a bounded number of idle open files. One bad file leaves
//	    the others serving.
//	V8  Still frames are refused by size before a pixel is allocated.
//	V9  Concat writes the same bytes for the same parts; frame k of its output has pts exactly k/rate; nothing is re-encoded.
//	V10 An Encoder never drops a frame: Close reads the file back and compares the sample count, or fails and removes the file.
//	V11 A group gives the same frames, or the same error, alone, among others and in any order: a damaged packet outside of it is not its error.
//	V12 A stored PlaneInfo is checked before anything is converted by it: a format, size or turn that is none, or planes of another length, is Malformed.
//	V13 Decode gives the same frames and errors from fetched packets, whatever was fetched together. It reads nothing but what the Fetch did
//	    not hold; what a Fetch holds is bounded before it is allocated.
//	V14 A VirtualMP4 has the frames of a Stream that can be decoded, and only those: from a key frame with its parameter sets on, until one is
//	    missing (H.264 counts its frames; of HEVC, AV1 and VP9 the caller must say it, by Lost). Read as a file it is an mp4 with the packets' NAL
//	    units, OBUs or frames as they came. What would be shown in another order than it comes in is ErrUnsupported.
//	V15 Elementary gives the samples of a file as such packets: a Stream of them makes a VirtualMP4 of the same samples.
package video
