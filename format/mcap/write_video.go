package mcap

import (
	"context"
	"errors"
	"fmt"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/internal/reader"
	"github.com/goatnote-inc/robocache/format/ros2"
	"github.com/goatnote-inc/robocache/internal/guard"
	"github.com/goatnote-inc/robocache/video"
)

// provenPackets is how many packets of an episode are looked into before its stream is copied.
const provenPackets = 32

// findPackets settles which cameras are copied as packets: those of which every episode can be. A topic has one type in all files of a dataset.
func (w *writing) findPackets(ctx context.Context, eps []int) {
	for i := range w.streams {
		t := &w.streams[i]
		if t.feature.Kind != robocache.KindVideo || !w.copies || w.lib == nil || t.feature.Depth != nil || t.feature.DType != robocache.Uint8 {
			continue
		}
		var why error
		var first int
		var not int64
		for _, ep := range eps {
			err := w.provePackets(ctx, t, ep)
			switch {
			case err == nil:
			case ctx.Err() != nil || !errors.Is(err, robocache.ErrUnsupported):
				if ctx.Err() != nil || !w.opt.SkipBad {
					guard.Check(robocache.At(err, robocache.Where{"episode": ep, "stream": t.feature.Key}))
					return
				}
			default:
				if not++; why == nil {
					why, first = err, ep
				}
			}
		}
		if why != nil {
			w.report.Findings = append(w.report.Findings, robocache.Finding{Severity: robocache.SeverityWarning, Code: "video-as-stills", Where: robocache.Where{"stream": t.feature.Key, "episode": first}, Count: not,
				Message: fmt.Sprintf("the packets of %d of %d episodes cannot stand in messages as they are, so each frame of the camera becomes an image, without loss; the first: %v", not, len(eps), why), Hint: "'robocache convert --video-codec h264' to LeRobot first makes video that is copied; video=stills asks for images"})
			continue
		}
		if t.codec != "" {
			t.how, t.typ = asPackets, ros2.CompressedVideoType
		}
	}
}

// framesOf gives where the frames of an episode lie.
func (w *writing) framesOf(ctx context.Context, t *target, ep int) []robocache.FrameRef {
	n := guard.Must(robocache.RowsIn(ctx, w.src, ep, &t.feature))
	refs := make([]robocache.FrameRef, n)
	guard.Check(w.src.Frames(ctx, t.feature.Key, reader.Rows(ep, 0, n), refs))
	return refs
}

// provePackets is ErrUnsupported where the frames of an episode are not a run of packets that decode from the first on, each to the frame of its row.
func (w *writing) provePackets(ctx context.Context, t *target, ep int) (err error) {
	defer guard.Malformed("mcap", &err)
	no := func(format string, args ...any) error {
		return &robocache.Error{Class: robocache.ErrUnsupported, Op: "mcap write", Msg: fmt.Sprintf(format, args...)}
	}
	refs := w.framesOf(ctx, t, ep)
	var file *video.File
	var entry *video.SampleEntry
	var form *video.Elementary
	var proof *video.Stream
	var sample, packet []byte
	last, kind, seen := 0, 0, 0
	for i := range refs {
		r := &refs[i]
		switch {
		case r.Missing:
			continue
		case r.Path == "":
			return no("frames that lie in no file")
		case file == nil:
			file = guard.Must(w.lib.Acquire(ctx, r.Path))
			defer file.Release()
		}
		if r.Path != file.Path {
			return no("the frames lie in several files")
		}
		if r.Ordinal < 0 || r.Ordinal >= file.Index.NumFrames() {
			return no("row %d has no frame", i)
		}
		d := file.Index.DecodeIndex(r.Ordinal)
		s := file.Index.Sample(d)
		if seen == 0 {
			entry, kind = &file.Index.Entries()[s.Entry], s.Entry
			switch {
			case !s.Sync || file.Index.Governing(r.Ordinal) != d:
				return no("the episode begins inside a group of pictures")
			case entry.Rotation != 0:
				return no("the file turns its frames by %d degrees", entry.Rotation)
			case t.codec != "" && t.codec != entry.Codec:
				return no("the codec is %s, of episodes before %s", entry.Codec, t.codec)
			}
			form = guard.Must(video.NewElementary(entry))
			proof = guard.Must(video.NewStream(entry.Codec, video.Limits{}))
			colour := colourOf(entry)
			if t.codec != "" && (colour == nil) != (t.colour == nil) || colour != nil && t.colour != nil && *colour != *t.colour {
				return no("the colours are said in another way than in episodes before")
			}
			t.codec, t.colour = entry.Codec, colour
		} else if d != last+1 || s.Entry != kind {
			return no("frame %d of the file follows frame %d in decoding order: reordered, repeated or left out", r.Ordinal, refs[i-1].Ordinal)
		}
		if last, seen = d, seen+1; seen > provenPackets {
			continue
		}
		if sample, packet, err = readPacket(ctx, file, s, form, sample, packet[:0]); err != nil {
			return err
		}
		if n, err := proof.Add(packet); err != nil {
			return err
		} else if n != seen-1 {
			return no("packet %d does not decode to one frame", d)
		}
	}
	return nil
}

// colourOf is what a file says of colours beside its packets; nil where it says nothing.
func colourOf(e *video.SampleEntry) *video.Colour {
	if c := (video.Colour{Primaries: e.Primaries, Transfer: e.Transfer, Matrix: e.Matrix, FullRange: e.FullRange}); c != (video.Colour{Primaries: 2, Transfer: 2, Matrix: 2}) {
		return &c
	}
	return nil
}

// readPacket reads a sample and appends its packet to dst.
func readPacket(ctx context.Context, f *video.File, s video.Sample, form *video.Elementary, buf, dst []byte) (sample, packet []byte, err error) {
	if cap(buf) < s.Size {
		buf = make([]byte, s.Size)
	}
	buf = buf[:s.Size]
	if err := f.Ranged.ReadAt(ctx, buf, s.Offset); err != nil {
		return buf, nil, robocache.At(err, robocache.Where{"file": f.Path})
	}
	packet, err = form.Packet(dst, buf, s.Sync)
	return buf, packet, robocache.At(err, robocache.Where{"file": f.Path})
}

// packets makes the messages of rows whose packets are copied; one without a frame is empty.
func (s *source) packets(ctx context.Context, rows []robocache.Row) (err error) {
	defer guard.Malformed("mcap", &err)
	refs := make([]robocache.FrameRef, len(rows))
	guard.Check(s.w.src.Frames(ctx, s.feature.Key, rows, refs))
	var file *video.File
	var form *video.Elementary
	var sample []byte
	for i := range refs {
		h := ros2.Header{Timestamp: s.times[s.from+i], FrameID: s.feature.Key}
		var packet []byte
		if !refs[i].Missing {
			var err error
			if file == nil {
				file = guard.Must(s.w.lib.Acquire(ctx, refs[i].Path))
				defer file.Release()
			}
			d := file.Index.DecodeIndex(refs[i].Ordinal)
			at := file.Index.Sample(d)
			if form == nil {
				form = guard.Must(video.NewElementary(&file.Index.Entries()[at.Entry]))
			}
			if s.proof == nil {
				s.proof = guard.Must(video.NewStream(s.codec, video.Limits{}))
			}
			if sample, packet, err = readPacket(ctx, file, at, form, sample, nil); err != nil {
				return err
			}
			n, err := s.proof.Add(packet)
			if err == nil && n < 0 {
				err = &robocache.Error{Class: robocache.ErrUnsupported, Op: "mcap write", Msg: "the packet does not decode to one frame"}
			}
			if err != nil {
				return robocache.At(unfit(err), robocache.Where{"file": file.Path, "frame": refs[i].Ordinal})
			}
		}
		s.batch = append(s.batch, ros2.EncodeCompressedVideo(nil, h, ros2.VideoFormat(s.codec), packet))
	}
	return nil
}

// unfit says what to do where a packet late in an episode cannot stand in a message.
func unfit(err error) error {
	return &robocache.Error{Class: robocache.ErrUnsupported, Op: "mcap write", Msg: "the packets of the video cannot stand in messages as they are", Err: err, Hint: "write images: --write-option video=stills"}
}
