// Package video reads frames from mp4 files, and from packets that are received as messages
// (Stream, VirtualMP4, PacketDecoder). It contains the sample index, the decode plan, the open files of a dataset,
// still images, and the writers: joining without re-encoding, and encoding through an ffmpeg
// program found at run time. Backend is the interface to decoders; a C library never parses a
// container.
//
// The container parser is own code. github.com/Eyevinn/mp4ff v0.50.0 was tried instead. It does not
// read or write a display matrix (tkhd always has the unity matrix), it panics on a track whose
// sizes are in stz2, and it rejects tables with padding at the end, which real writers produce. Its
// writer would replace 60 of the 138 lines of muxbox.go by a dependency of 20,000 lines, and could
// not keep the guarantees of Concat.
//
// # Contract
//
//	video.V1   Frame k (its ordinal) is the k-th frame in presentation order among the samples that
//	           the edit list presents. A frame is never found by seconds times fps, nor by a count
//	           in a header.
//	video.V2   ReadIndex reads the beginning of the file, box headers and the moov, but not the
//	           media. Every declared count and size is checked against the bytes of the file, and
//	           against Limits, before memory of that size is allocated.
//	video.V3   An Index is immutable and safe for concurrent use. It occupies 8 bytes per sample, 4
//	           more if frames are reordered or the rate varies, and 2 more if they are reordered.
//	video.V4   The governing sample of a frame is the last sync sample in decode order that is
//	           neither decoded nor presented after the frame. (A rule by decode order alone gives
//	           wrong frames in open GOPs.)
//	video.V5   A plan covers every requested frame, is ascending, and sends no packet twice. It
//	           depends on the index and the set of frames, but not on the order of the request.
//	video.V6   A file that cannot be read (LFS pointer, truncated, fragmented, repeated edits,
//	           mirrored) is a typed error with box and offset, never a shorter list. With
//	           Limits.AllowTruncated, the complete part of a truncated file can be read, and frame
//	           numbers keep their meaning.
//	video.V7   A Library keeps idle indexes within its budget in bytes, and a limited number of idle
//	           open files. A bad file does not affect the others.
//	video.V8   Still images are rejected by size before their pixels are allocated.
//	video.V9   Concat writes the same bytes for the same parts. Frame k of its output has the
//	           presentation time k/rate. Nothing is re-encoded.
//	video.V10  An Encoder never drops a frame. Close reads the file and compares the sample count;
//	           on a difference it fails and removes the file.
//	video.V11  A group has the same frames, or the same error, alone and with other groups in any
//	           order. A damaged packet outside the group is not its error.
//	video.V12  A stored PlaneInfo is validated before a conversion. An invalid format, size or
//	           rotation, or planes of another length, are Malformed.
//	video.V13  Decode gives the same frames and errors with fetched packets, whatever was fetched
//	           together. It reads only packets that the Fetch does not hold. The size of a Fetch is
//	           limited before its memory is allocated.
//	video.V14  A VirtualMP4 has exactly the frames of a Stream that can be decoded: from a key frame
//	           with its parameter sets until a frame is missing. H.264 numbers its frames; for HEVC,
//	           AV1 and VP9 the caller must report a loss with Lost. Its bytes form an mp4 with the
//	           NAL units, OBUs or frames of the packets, unchanged. Frames that are received out of
//	           presentation order are ErrUnsupported.
//	video.V15  Elementary converts the samples of a file to such packets. A Stream of them gives a
//	           VirtualMP4 with the same samples.
//	video.V16  A PacketDecoder gives a packet the frame that it has in the VirtualMP4 of the same
//	           packets, bit for bit. It emits frames in the order of their packets, each in the call
//	           with its packet unless the decoder waits for reordered frames. Its memory does not
//	           depend on the number of packets.
//
// A typical read is Library.Acquire, Plan, Pool.Decode: the index maps frame numbers to packets,
// the plan groups the packets by the sync sample that decoding must start at, and the pool sends
// each group to a decoder.
package video
