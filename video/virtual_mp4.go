package video

import (
	"encoding/binary"
	"fmt"
	"sort"

	"github.com/goatnote-inc/robocache"
)

// VirtualMP4 presents the frames of a Stream as an mp4 file that does not exist. Its head is in
// memory. Its samples are built from the packets when they are read. It is immutable and safe for
// concurrent use.
type VirtualMP4 struct {
	codec         Codec
	head          []byte
	sampleOffsets []int64 // file offset of each sample, and the end of the last one
}

// MP4 returns the collected frames as a file. It returns ErrUnsupported if a sample entry cannot
// describe them, and ErrMalformed if there is no frame.
func (s *Stream) MP4(rate robocache.Rate) (_ *VirtualMP4, err error) {
	if len(s.sizes) == 0 {
		return nil, malformedPacket(
			"the video has no key frame",
			"a key frame with its parameter sets",
			"",
		)
	}
	if err := s.checkSets(); err != nil {
		return nil, err
	}
	m := &joinPlan{
		sizes:      s.sizes,
		sync:       s.sync,
		mediaBytes: s.media,
		entryBytes: s.sampleEntry(),
		sampleEntry: &SampleEntry{
			FourCC: entryKinds[s.codec].fourCC,
			Width:  s.firstSet.width,
			Height: s.firstSet.height,
		},
	}
	m.timescale, m.frameTicks, err = TrackTimescale(rate)
	if err != nil {
		return nil, err
	}
	head, err := m.fileHeader()
	if err != nil {
		return nil, err
	}
	f := &VirtualMP4{
		codec:         s.codec,
		sampleOffsets: make([]int64, len(s.sizes)+1),
		head:          head,
	}
	f.sampleOffsets[0] = int64(len(f.head))
	for k, n := range s.sizes {
		f.sampleOffsets[k+1] = f.sampleOffsets[k] + int64(n)
	}
	return f, nil
}

// Frames returns the number of frames.
func (f *VirtualMP4) Frames() int { return len(f.sampleOffsets) - 1 }

// Size returns the size of the file.
func (f *VirtualMP4) Size() int64 { return f.sampleOffsets[len(f.sampleOffsets)-1] }

// Head returns the file up to its samples. The caller must not change it.
func (f *VirtualMP4) Head() []byte { return f.head }

// MemoryBytes returns the memory of the virtual mp4.
func (f *VirtualMP4) MemoryBytes() int64 {
	return int64(len(f.head)) + 8*int64(len(f.sampleOffsets)) + 100
}

// ReadAt fills p from offset off of the file. packets must call yield with the packets of frames
// first to last, in order, exactly as they were passed to Add.
func (f *VirtualMP4) ReadAt(
	p []byte,
	off int64,
	packets func(first, last int, yield func(k int, packet []byte) error) error,
) error {
	if off < 0 || int64(len(p)) > f.Size() || off > f.Size()-int64(len(p)) {
		return robocache.Malformed(opPackets, nil, "the read is outside the virtual mp4").
			Expected(
				fmt.Sprintf("inside its %d bytes", f.Size()),
				fmt.Sprintf("%d bytes at %d", len(p), off),
			)
	}
	if off < int64(len(f.head)) {
		n := copy(p, f.head[off:])
		p, off = p[n:], off+int64(n)
	}
	if len(p) == 0 {
		return nil
	}
	end := off + int64(len(p))
	first := sort.Search(f.Frames(), func(k int) bool { return f.sampleOffsets[k+1] > off })
	last := sort.Search(f.Frames(), func(k int) bool { return f.sampleOffsets[k+1] >= end })
	next := first
	err := packets(first, last, func(k int, packet []byte) error {
		if k != next {
			return malformedPacket(
				"the packets of a virtual mp4 are out of order",
				itoa(next),
				itoa(k),
			)
		}
		next++
		from, to := max(f.sampleOffsets[k], off), min(f.sampleOffsets[k+1], end)
		part := p[from-off : to-off]
		whole := part
		if n := f.sampleOffsets[k+1] - f.sampleOffsets[k]; int64(len(part)) < n {
			whole = make([]byte, n)
		}
		if err := repackPacket(f.codec, whole, packet); err != nil {
			return err
		}
		if len(whole) > len(part) {
			copy(part, whole[from-f.sampleOffsets[k]:])
		}
		return nil
	})
	if err == nil && next != last+1 {
		err = malformedPacket(
			"packets of a virtual mp4 are missing",
			itoa(last-first+1),
			itoa(next-first),
		)
	}
	return err
}

// repackPacket writes a packet in the form of a file: NAL units after their lengths, or temporal
// units without delimiter.
func repackPacket(codec Codec, dst, packet []byte) error {
	at := 0
	put := func(prefix int, part []byte) error {
		if at+prefix+len(part) > len(dst) {
			return malformedPacket(
				"a packet has another length than before",
				itoa(len(dst)),
				"more",
			)
		}
		if prefix > 0 {
			binary.BigEndian.PutUint32(dst[at:], uint32(len(part)))
		}
		at += prefix + copy(dst[at+prefix:], part)
		return nil
	}
	switch codec {
	case AV1:
		if err := eachOBU(packet, func(kind byte, whole, _ []byte) error {
			if kind != obuDelimiter {
				if err := put(0, whole); err != nil {
					return err
				}
			}
			return nil
		}); err != nil {
			return err
		}
	case VP9:
		if err := put(0, packet); err != nil {
			return err
		}
	default:
		if err := eachNAL(packet, func(nal []byte) error { return put(4, nal) }); err != nil {
			return err
		}
	}
	if at != len(dst) {
		return malformedPacket("a packet has another length than before", itoa(len(dst)), itoa(at))
	}
	return nil
}
