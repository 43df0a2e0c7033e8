package write

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/internal/reader"
	"github.com/goatnote-inc/robocache/store"
	"github.com/goatnote-inc/robocache/video"
)

// segment describes how one episode's images of one camera are stored in the source, and which of
// them can be copied.
type segment struct {
	refs           []robocache.FrameRef
	reason         string // why they cannot be copied; "" if they can
	before, behind int    // copied frames around them that no row shows
	head, tail     int    // frames at the ends that are encoded; those between are copied
	codec          video.Codec
}

// verdict returns how the images are written, for the report.
func (s *segment) verdict() string {
	if s.reason == "" {
		return copied
	}
	return "encoded: " + s.reason
}

// recordIn records in m how the episode's frames of camera key are written.
func (s *segment) recordIn(m *EpisodeMap, key string) {
	if m.Video[key] = s.verdict(); s.before+s.behind > 0 {
		if m.Hidden == nil {
			m.Hidden = map[string][2]int{}
		}
		m.Hidden[key] = [2]int{s.before, s.behind}
	}
	if s.head+s.tail > 0 {
		if m.Ends == nil {
			m.Ends = map[string][2]int{}
		}
		m.Ends[key] = [2]int{s.head, s.tail}
	}
}

// countSegments adds the segments of a written episode to the sums of the report.
func (c *conversion) countSegments(m EpisodeMap) {
	for _, verdict := range m.Video {
		switch {
		case m.New < 0:
		case verdict == copied:
			c.report.Copied++
		default:
			c.report.Encoded++
		}
	}
}

// planSegment decides from the sample table whether an episode's images are copied or encoded
// (write.C2).
func (c *conversion) planSegment(ctx context.Context, f *feature, e int) (*segment, error) {
	rows := reader.Rows(e, 0, c.src.Len(e))
	s := &segment{refs: make([]robocache.FrameRef, len(rows))}
	if err := c.src.Frames(ctx, f.source, rows, s.refs); err != nil {
		return nil, err
	}
	first := s.refs[0]
	for k, r := range s.refs {
		switch {
		case r.Missing && f.hasMask:
			s.reason = "rows without an image"
		case r.Missing:
			return nil, robocache.Malformed(
				"convert",
				robocache.Where{"row": k},
				"the row has no image",
			).WithHint("leave the episode out, or fix the video")
		case r.Path == "":
			return nil, robocache.Malformed(
				"convert",
				robocache.Where{"row": k},
				"a still image in a stream of video",
			)
		case r.Path != first.Path || r.Ordinal != first.Ordinal+k:
			s.reason = "the images are not consecutive frames of one file"
		}
	}
	if c.options.codec != "copy" {
		s.reason = "the option video_codec is " + c.options.codec
	} else if c.shouldResize(f) {
		s.reason = "the option size is set"
	}
	if s.reason == "" {
		err := c.checkSize(ctx, f, first.Path)
		if err == nil {
			s.before, s.behind, err = Copyable(
				ctx,
				c.library,
				first.Path,
				first.Ordinal,
				first.Ordinal+len(rows),
				c.options.hidden,
				c.fps,
			)
		}
		var why *robocache.Error
		joined := false
		if errors.Is(err, robocache.ErrUnsupported) && !c.options.copyOnly {
			var failed error
			if joined, failed = c.planEnds(ctx, f, first, s); failed != nil {
				return nil, failed
			}
		}
		switch {
		case joined:
		case errors.Is(err, robocache.ErrUnsupported) && errors.As(err, &why):
			s.reason = why.Msg
		default:
			if err != nil {
				return nil, err
			}
		}
	}
	if s.reason != "" && c.options.copyOnly {
		return nil, robocache.Unsupported(
			"convert",
			robocache.Where{"file": first.Path},
			"the images cannot be copied: %s",
			s.reason,
		).WithHint("allow encoding")
	}
	return s, nil
}

// planEnds finds the frames at the ends of an episode that must be encoded so that the frames
// between can be copied. It returns false if no frames can be copied, or if the output of the
// encoder cannot be joined with them.
func (c *conversion) planEnds(
	ctx context.Context,
	f *feature,
	first robocache.FrameRef,
	s *segment,
) (bool, error) {
	if c.checkSize(ctx, f, first.Path) != nil {
		return false, nil
	}
	head, tail, ok, err := findJoints(
		ctx,
		c.library,
		first.Path,
		first.Ordinal,
		first.Ordinal+len(s.refs),
		c.fps,
	)
	if err != nil {
		return false, err
	}
	file, err := c.library.Acquire(ctx, first.Path)
	if err != nil {
		return false, err
	}
	defer file.Release()
	refused := !ok
	if !refused {
		continues, err := c.canContinue(
			ctx,
			f,
			video.Part{
				File: file,
				From: first.Ordinal + head,
				To:   first.Ordinal + len(s.refs) - tail,
			},
		)
		if err != nil {
			return false, err
		}
		refused = !continues
	}
	if refused {
		return false, nil
	}
	s.head, s.tail, s.codec = head, tail, file.Index.Entries()[0].Codec
	return true, nil
}

// canContinue reports whether frames that are encoded here can be joined with frames of part. The
// result is cached per camera and decoder configuration, because it needs a trial encoding.
func (c *conversion) canContinue(ctx context.Context, f *feature, part video.Part) (bool, error) {
	entry := part.File.Index.Entries()[0]
	id := fmt.Sprint(f.Key, entry)
	c.trials.Lock()
	defer c.trials.Unlock()
	if known, ok := c.canJoin[id]; ok {
		return known, nil
	}
	err := func() error {
		dir, err := os.MkdirTemp(c.options.out.TempDir, "robocache-encode-*")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		enc, _, err := newEncoder(
			ctx,
			filepath.Join(dir, "trial.mp4"),
			c.options.out.Video.forCodec(entry.Codec),
			c.fps,
			&f.Feature,
		)
		if err != nil {
			return err
		}
		defer enc.Abort()
		spec := video.Spec{Pixel: video.RGB8}
		if f.Depth != nil {
			spec.Pixel = video.Gray16
		}
		stillBytes, err := video.StillBytes(
			video.StillInfo{Width: f.Width, Height: f.Height},
			&spec,
		)
		if err != nil {
			return err
		}
		if err := enc.Write(make([]byte, stillBytes)); err != nil {
			return err
		}
		if err := enc.Close(); err != nil {
			return err
		}
		st, err := store.OpenLocal(dir)
		if err != nil {
			return err
		}
		defer st.Close()
		lib := video.NewLibrary(st.Open, 0)
		defer lib.Close()
		trial, err := lib.Acquire(ctx, "trial.mp4")
		if err != nil {
			return err
		}
		defer trial.Release()
		return checkJoinable(ctx, []video.Part{{File: trial, From: 0, To: 1}, part}, c.fps)
	}()
	if err := ctx.Err(); err != nil {
		return false, err
	}
	if c.canJoin == nil {
		c.canJoin = map[string]bool{}
	}
	c.canJoin[id] = err == nil
	return err == nil, nil
}
