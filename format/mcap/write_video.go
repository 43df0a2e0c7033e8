package mcap

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/internal/reader"
	"github.com/goatnote-inc/robocache/format/ros2"
	"github.com/goatnote-inc/robocache/internal/crash"
	"github.com/goatnote-inc/robocache/video"
)

// provenPackets is how many packets of an episode are looked into before its stream is copied.
const provenPackets = 32

// findPackets settles which cameras are copied as packets: those of which every episode can be. A
// topic has one type in all files of a dataset.
func (w *writing) findPackets(ctx context.Context, eps []int) error {
	for i := range w.streams {
		t := &w.streams[i]
		if t.feature.Kind != robocache.KindVideo || !w.copies || w.lib == nil ||
			t.feature.Depth != nil ||
			slices.Contains(w.stills.Stills, t.feature.Key) ||
			t.feature.DType != robocache.Uint8 {
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
				if ctx.Err() != nil || !w.opt.SkipBad || !robocache.Bad(err) {
					if err := robocache.At(
						err,
						robocache.Where{
							"episode": w.info.EpisodeIndex(ep),
							"stream":  t.feature.Key,
						},
					); err != nil {
						return err
					}
					return nil
				}
			default:
				if not++; why == nil {
					why, first = err, ep
				}
			}
		}
		if why != nil {
			w.report.Findings = append(w.report.Findings, robocache.Finding{
				Severity: robocache.SeverityWarning,
				Code:     "video-as-stills",
				Where: robocache.Where{
					"stream":  t.feature.Key,
					"episode": w.info.EpisodeIndex(first),
				},
				Count: not,
				Message: fmt.Sprintf(
					"the packets of %d of %d episodes cannot stand in messages as they are, so each frame of the camera becomes an image, without loss; the first: %v",
					not,
					len(eps),
					why,
				),
				Hint: robocache.Command(
					"convert --video-codec=h264",
				) + " to LeRobot first makes video that is copied; " +
					robocache.Option(
						"write_option",
						"video",
						"stills",
					) + " asks for images",
			})
			continue
		}
		if t.codec != "" {
			t.how, t.typ = asPackets, ros2.CompressedVideoType
		}
	}
	return nil
}

// framesOf gives where the frames of an episode lie.
func (w *writing) framesOf(ctx context.Context, t *target, ep int) ([]robocache.FrameRef, error) {
	n, err := robocache.RowsIn(ctx, w.src, ep, &t.feature)
	if err != nil {
		return nil, err
	}
	refs := make([]robocache.FrameRef, n)
	if err := w.src.Frames(ctx, t.feature.Key, reader.Rows(ep, 0, n), refs); err != nil {
		return nil, err
	}
	return refs, nil
}

// provePackets is ErrUnsupported where the frames of an episode are not a run of packets that
// decode from the first on, each to the frame of its row.
func (w *writing) provePackets(ctx context.Context, t *target, ep int) (err error) {
	defer crash.Recover("mcap", &err)
	no := func(format string, args ...any) error {
		return robocache.Unsupported("mcap write", nil, format, args...)
	}
	refs, err := w.framesOf(ctx, t, ep)
	if err != nil {
		return err
	}
	var from packets
	defer from.close()
	var proof *video.Stream
	var packet []byte
	last, kind, seen := 0, 0, 0
	for i := range refs {
		r := &refs[i]
		if r.Missing {
			continue
		}
		if r.Path == "" {
			if err := no("frames that lie in no file"); err != nil {
				return err
			}
		}
		file, err := from.open(ctx, w.lib, r.Path)
		if err != nil {
			return err
		}
		if r.Path != file.Path {
			if err := no("the frames lie in several files"); err != nil {
				return err
			}
		}
		if r.Ordinal < 0 || r.Ordinal >= file.Index.NumFrames() {
			if err := no("row %d has no frame", i); err != nil {
				return err
			}
		}
		d := file.Index.DecodeIndex(r.Ordinal)
		s := file.Index.Sample(d)
		if seen == 0 {
			entry := &file.Index.Entries()[s.Entry]
			switch {
			case !s.Sync || file.Index.Governing(r.Ordinal) != d:
				if err := no("the episode begins inside a group of pictures"); err != nil {
					return err
				}
			case entry.Rotation != 0:
				if err := no(
					"the file turns its frames by %d degrees",
					entry.Rotation,
				); err != nil {
					return err
				}
			case t.codec != "" && t.codec != entry.Codec:
				if err := no(
					"the codec is %s, of episodes before %s",
					entry.Codec,
					t.codec,
				); err != nil {
					return err
				}
			}
			if from.form, err = video.NewElementary(entry); err != nil {
				return err
			}
			if proof, err = video.NewStream(entry.Codec, video.Limits{}); err != nil {
				return err
			}
			colour := colourOf(entry)
			if t.codec != "" && (colour == nil) != (t.colour == nil) ||
				colour != nil && t.colour != nil && *colour != *t.colour {
				if err := no(
					"the colours are said in another way than in episodes before",
				); err != nil {
					return err
				}
			}
			kind, t.codec, t.colour = s.Entry, entry.Codec, colour
		} else if d != last+1 || s.Entry != kind {
			if err := no(
				"frame %d of the file follows frame %d in decoding order: reordered, repeated or left out",
				r.Ordinal,
				refs[i-1].Ordinal,
			); err != nil {
				return err
			}
		}
		if last, seen = d, seen+1; seen > provenPackets {
			continue
		}
		if packet, err = from.read(ctx, s, packet[:0]); err != nil {
			return err
		}
		add, err := proof.Add(packet)
		if err != nil {
			return err
		}
		if add != seen-1 {
			if err := no("packet %d does not decode to one frame", d); err != nil {
				return err
			}
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

// packets reads packets of one video file.
type packets struct {
	file *video.File
	form *video.Elementary
	buf  []byte
}

// open gives the file, which the first call names.
func (p *packets) open(ctx context.Context, lib *video.Library, path string) (*video.File, error) {
	if p.file == nil {
		var err error
		if p.file, err = lib.Acquire(ctx, path); err != nil {
			return nil, err
		}
	}
	return p.file, nil
}

// read appends the packet of a sample to dst.
func (p *packets) read(ctx context.Context, s video.Sample, dst []byte) (_ []byte, err error) {
	defer robocache.LocateIn(&err, "file", p.file.Path)
	p.buf = slices.Grow(p.buf[:0], s.Size)[:s.Size]
	if err := p.file.Ranged.ReadAt(ctx, p.buf, s.Offset); err != nil {
		return nil, err
	}
	if p.form == nil {
		if p.form, err = video.NewElementary(&p.file.Index.Entries()[s.Entry]); err != nil {
			return nil, err
		}
	}
	return p.form.Packet(dst, p.buf, s.Sync)
}

func (p *packets) close() {
	if p.file != nil {
		p.file.Release()
	}
}

// packets makes the messages of rows whose packets are copied; one without a frame is empty.
func (s *source) packets(ctx context.Context, rows []robocache.Row) error {
	refs := make([]robocache.FrameRef, len(rows))
	if err := s.w.src.Frames(ctx, s.feature.Key, rows, refs); err != nil {
		return err
	}
	var from packets
	defer from.close()
	for i := range refs {
		var packet []byte
		if !refs[i].Missing {
			opened, err := from.open(ctx, s.w.lib, refs[i].Path)
			if err != nil {
				return err
			}
			index := opened.Index
			if packet, err = from.read(
				ctx,
				index.Sample(index.DecodeIndex(refs[i].Ordinal)),
				nil,
			); err != nil {
				return err
			}
			if s.proof == nil {
				if s.proof, err = video.NewStream(s.codec, video.Limits{}); err != nil {
					return err
				}
			}
			n, err := s.proof.Add(packet)
			if err == nil && n < 0 {
				err = robocache.Unsupported(
					"mcap write",
					nil,
					"the packet does not decode to one frame",
				)
			}
			if err != nil {
				return robocache.At(
					unfit(err),
					robocache.Where{"file": from.file.Path, "frame": refs[i].Ordinal},
				)
			}
		}
		s.batch = append(
			s.batch,
			ros2.EncodeCompressedVideo(nil, s.header(i), ros2.VideoFormat(s.codec), packet),
		)
	}
	return nil
}

// unfit says what to do where a packet late in an episode cannot stand in a message.
func unfit(err error) error {
	return robocache.Unsupported("mcap write", nil, "the packets of the video cannot stand in messages as they are").
		WithCause(err).
		WithHint("write images: %s", robocache.Option("write_option", "video", "stills"))
}
