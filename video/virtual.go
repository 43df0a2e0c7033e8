package video

import (
	"encoding/binary"
	"fmt"
	"sort"

	"github.com/goatnote-inc/robocache"
)

// VirtualMP4 is the frames of a Stream as an mp4 that nobody wrote: its head is in memory, its
// samples are made of the packets when they are read. It is immutable.
type VirtualMP4 struct {
	codec Codec
	head  []byte
	at    []int64 // of each sample, and behind the last
}

// MP4 gives what was collected; ErrUnsupported where it cannot be told from the head how to decode,
// ErrMalformed where there is no frame.
func (s *Stream) MP4(rate robocache.Rate) (_ *VirtualMP4, err error) {
	if len(s.sizes) == 0 {
		return nil, bad("video without a key frame", "a key frame with its parameter sets", "")
	}
	if s.changed && s.bare {
		return nil, refuse(
			"video in messages whose parameter sets change, and whose key frames do not repeat them",
			"record with the parameter sets at each key frame",
		)
	}
	m := &join{
		sizes: s.sizes,
		sync:  s.sync,
		media: s.media,
		entry: s.entry(),
		se: &SampleEntry{
			FourCC: entryKinds[s.codec].fourCC,
			Width:  s.head.width,
			Height: s.head.height,
		},
	}
	m.timescale, m.delta, err = TrackTimescale(rate)
	if err != nil {
		return nil, err
	}
	headerValue, err := m.header()
	if err != nil {
		return nil, err
	}
	f := &VirtualMP4{codec: s.codec, at: make([]int64, len(s.sizes)+1), head: headerValue}
	f.at[0] = int64(len(f.head))
	for k, n := range s.sizes {
		f.at[k+1] = f.at[k] + int64(n)
	}
	return f, nil
}

// Frames is how many there are.
func (f *VirtualMP4) Frames() int { return len(f.at) - 1 }

// Size is that of the file.
func (f *VirtualMP4) Size() int64 { return f.at[len(f.at)-1] }

// Head is the file up to its samples. It is not changed.
func (f *VirtualMP4) Head() []byte { return f.head }

// MemoryBytes is what the virtual mp4 holds.
func (f *VirtualMP4) MemoryBytes() int64 { return int64(len(f.head)) + 8*int64(len(f.at)) + 100 }

// ReadAt fills p as if the file were there. packets gives the packets of frames first to last to
// its yield, in order, as they were added.
func (f *VirtualMP4) ReadAt(
	p []byte,
	off int64,
	packets func(first, last int, yield func(k int, packet []byte) error) error,
) error {
	if off < 0 || int64(len(p)) > f.Size() || off > f.Size()-int64(len(p)) {
		return robocache.Malformed(opPackets, nil, "a read outside the virtual mp4").
			Expected(fmt.Sprintf("inside its %d bytes", f.Size()), fmt.Sprintf("%d bytes at %d", len(p), off))
	}
	if off < int64(len(f.head)) {
		n := copy(p, f.head[off:])
		p, off = p[n:], off+int64(n)
	}
	if len(p) == 0 {
		return nil
	}
	end := off + int64(len(p))
	first := sort.Search(f.Frames(), func(k int) bool { return f.at[k+1] > off })
	last := sort.Search(f.Frames(), func(k int) bool { return f.at[k+1] >= end })
	next := first
	err := packets(first, last, func(k int, packet []byte) error {
		if k != next {
			return badPacket("packets of a virtual mp4 in another order", itoa(next), itoa(k))
		}
		next++
		from, to := max(f.at[k], off), min(f.at[k+1], end)
		part := p[from-off : to-off]
		whole := part
		if n := f.at[k+1] - f.at[k]; int64(len(part)) < n {
			whole = make([]byte, n)
		}
		if err := f.repack(whole, packet); err != nil {
			return err
		}
		if len(whole) > len(part) {
			copy(part, whole[from-f.at[k]:])
		}
		return nil
	})
	if err == nil && next != last+1 {
		err = badPacket(
			"packets of a virtual mp4 are not there",
			itoa(last-first+1),
			itoa(next-first),
		)
	}
	return err
}

// repack writes a packet as files have it: NAL units behind their lengths, temporal units without
// their delimiter.
func (f *VirtualMP4) repack(dst, packet []byte) error {
	at := 0
	put := func(prefix int, part []byte) error {
		if at+prefix+len(part) > len(dst) {
			return bad("a packet has another length than before", itoa(len(dst)), "more")
		}
		if prefix > 0 {
			binary.BigEndian.PutUint32(dst[at:], uint32(len(part)))
		}
		at += prefix + copy(dst[at+prefix:], part)
		return nil
	}
	switch f.codec {
	case AV1:
		if err := obus(packet, func(kind byte, whole, _ []byte) error {
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
		if err := nals(packet, func(nal []byte) error { return put(4, nal) }); err != nil {
			return err
		}
	}
	if at != len(dst) {
		return bad("a packet has another length than before", itoa(len(dst)), itoa(at))
	}
	return nil
}
