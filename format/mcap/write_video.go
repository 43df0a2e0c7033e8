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

// provenPackets is the number of packets of an episode that are checked before its stream is
// copied.
const provenPackets = 32

// findPackets selects the cameras that are copied as packets. This must be possible in every
// episode, because a topic has one type in all files of a dataset.
func (w *datasetWriter) findPackets(ctx context.Context, eps []int) error {
	for i := range w.streams {
		t := &w.streams[i]
		if t.feature.Kind != robocache.KindVideo || !w.copiesPackets || w.videoLibrary == nil ||
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
				if ctx.Err() != nil || !w.options.SkipBad || !robocache.Bad(err) {
					if err := robocache.At(err, robocache.Where{
						"episode": w.info.EpisodeIndex(ep),
						"stream":  t.feature.Key,
					}); err != nil {
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
					"the packets of %d of %d episodes cannot be copied into messages, "+
						"so each frame of the camera becomes an image, without loss; the first: %v",
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
			t.kind, t.messageType = asPackets, ros2.CompressedVideoType
		}
	}
	return nil
}

// framesOf returns the locations of the frames of an episode.
func (w *datasetWriter) framesOf(
	ctx context.Context,
	t *target,
	ep int,
) ([]robocache.FrameRef, error) {
	n, err := robocache.RowsIn(ctx, w.source, ep, &t.feature)
	if err != nil {
		return nil, err
	}
	refs := make([]robocache.FrameRef, n)
	if err := w.source.Frames(ctx, t.feature.Key, reader.Rows(ep, 0, n), refs); err != nil {
		return nil, err
	}
	return refs, nil
}

// provePackets returns ErrUnsupported unless the frames of an episode are consecutive packets that
// decode from the first one on, each to the frame of its row.
func (w *datasetWriter) provePackets(ctx context.Context, t *target, ep int) (err error) {
	defer crash.Recover("mcap", &err)
	no := func(format string, args ...any) error {
		return robocache.Unsupported("mcap write", nil, format, args...)
	}
	refs, err := w.framesOf(ctx, t, ep)
	if err != nil {
		return err
	}
	var from packetReader
	defer from.release()
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
		file, err := from.openFile(ctx, w.videoLibrary, r.Path)
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
				if err := no("the file turns its frames by %d degrees", entry.Rotation); err !=
					nil {
					return err
				}
			case t.codec != "" && t.codec != entry.Codec:
				if err := no("the codec is %s, of episodes before %s", entry.Codec, t.codec); err !=
					nil {
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
				if err := no("the colours are said in another way than in episodes before"); err !=
					nil {
					return err
				}
			}
			kind, t.codec, t.colour = s.Entry, entry.Codec, colour
		} else if d != last+1 || s.Entry != kind {
			if err := no(
				"frame %d of the file follows frame %d in decoding order: reordered, repeated "+
					"or left out",
				r.Ordinal,
				refs[i-1].Ordinal,
			); err != nil {
				return err
			}
		}
		if last, seen = d, seen+1; seen > provenPackets {
			continue
		}
		if packet, err = from.readPacket(ctx, s, packet[:0]); err != nil {
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

// colourOf returns the colors that the file declares outside its packets, or nil if it declares
// none.
func colourOf(e *video.SampleEntry) *video.Colour {
	if c := (video.Colour{
		Primaries: e.Primaries,
		Transfer:  e.Transfer,
		Matrix:    e.Matrix,
		FullRange: e.FullRange,
	}); c != (video.Colour{Primaries: 2, Transfer: 2, Matrix: 2}) {
		return &c
	}
	return nil
}

// packetReader reads packets of one video file.
type packetReader struct {
	file *video.File
	form *video.Elementary
	buf  []byte
}

// openFile returns the video file. The first call opens path.
func (p *packetReader) openFile(
	ctx context.Context,
	lib *video.Library,
	path string,
) (*video.File, error) {
	if p.file == nil {
		var err error
		if p.file, err = lib.Acquire(ctx, path); err != nil {
			return nil, err
		}
	}
	return p.file, nil
}

// readPacket appends the packet of a sample to dst.
func (p *packetReader) readPacket(
	ctx context.Context,
	s video.Sample,
	dst []byte,
) (_ []byte, err error) {
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

func (p *packetReader) release() {
	if p.file != nil {
		p.file.Release()
	}
}

// copyPackets makes the messages of rows whose packets are copied. A row without a frame has an
// empty message.
func (s *source) copyPackets(ctx context.Context, rows []robocache.Row) error {
	refs := make([]robocache.FrameRef, len(rows))
	if err := s.writer.source.Frames(ctx, s.feature.Key, rows, refs); err != nil {
		return err
	}
	var from packetReader
	defer from.release()
	for i := range refs {
		var packet []byte
		if !refs[i].Missing {
			opened, err := from.openFile(ctx, s.writer.videoLibrary, refs[i].Path)
			if err != nil {
				return err
			}
			index := opened.Index
			if packet, err = from.readPacket(ctx, index.Sample(index.DecodeIndex(refs[i].Ordinal)),
				nil); err != nil {
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
					packetError(err),
					robocache.Where{"file": from.file.Path, "frame": refs[i].Ordinal},
				)
			}
		}
		s.batch = append(
			s.batch,
			ros2.EncodeCompressedVideo(nil, s.messageHeader(i), ros2.VideoFormat(s.codec), packet),
		)
	}
	return nil
}

// packetError adds a hint to the error of a packet that cannot be copied into a message.
func packetError(err error) error {
	return robocache.Unsupported(
		"mcap write",
		nil,
		"the packets of the video cannot be copied into messages",
	).
		WithCause(err).
		WithHint("write images: %s", robocache.Option("write_option", "video", "stills"))
}
