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

// segment is where an episode's images of one camera lie in the source.
type segment struct {
	refs           []robocache.FrameRef
	reason         string // why they cannot be copied; "" where they can
	before, behind int    // frames that are copied with them and that no row shows
	head, tail     int    // at the ends, that are encoded: those between are copied
	codec          video.Codec
}

func (s *segment) verdict() string {
	if s.reason == "" {
		return copied
	}
	return "encoded: " + s.reason
}

// into says what becomes of an episode's frames of a camera.
func (s *segment) into(m *EpisodeMap, key string) {
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

// count adds an episode that is in the result to the report's sums.
func (c *conversion) count(m EpisodeMap) {
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

// segment looks at the sample table and decides between copying and encoding (C2).
func (c *conversion) segment(ctx context.Context, f *feature, e int) (*segment, error) {
	rows := reader.Rows(e, 0, c.src.Len(e))
	s := &segment{refs: make([]robocache.FrameRef, len(rows))}
	if err := c.src.Frames(ctx, f.source, rows, s.refs); err != nil {
		return nil, err
	}
	first := s.refs[0]
	for k, r := range s.refs {
		switch {
		case r.Missing && f.masked:
			s.reason = "rows without an image"
		case r.Missing:
			return nil, robocache.Malformed("convert", robocache.Where{"row": k}, "the row has no image").
				WithHint("leave the episode out, or fix the video")
		case r.Path == "":
			return nil, robocache.Malformed(
				"convert",
				robocache.Where{"row": k},
				"a still image in a stream of video",
			)
		case r.Path != first.Path || r.Ordinal != first.Ordinal+k:
			s.reason = "the images are no unbroken run of one file"
		}
	}
	if c.opt.codec != "copy" {
		s.reason = "asked for " + c.opt.codec
	} else if c.resizes(f) {
		s.reason = "asked for another size"
	}
	if s.reason == "" {
		err := c.ofSize(ctx, f, first.Path)
		if err == nil {
			s.before, s.behind, err = Copyable(
				ctx,
				c.lib,
				first.Path,
				first.Ordinal,
				first.Ordinal+len(rows),
				c.opt.hidden,
				c.fps,
			)
		}
		var why *robocache.Error
		joined := false
		if errors.Is(err, robocache.ErrUnsupported) && !c.opt.copyOnly {
			var failed error
			if joined, failed = c.joined(ctx, f, first, s); failed != nil {
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
	if s.reason != "" && c.opt.copyOnly {
		return nil, robocache.Unsupported("convert", robocache.Where{"file": first.Path}, "the images cannot be copied: %s", s.reason).
			WithHint("allow encoding")
	}
	return s, nil
}

// joined finds the frames at the ends of an episode that are encoded so that those between can be
// copied. false: none can, or what an encoder writes here cannot stand in one file with them.
func (c *conversion) joined(
	ctx context.Context,
	f *feature,
	first robocache.FrameRef,
	s *segment,
) (bool, error) {
	if c.ofSize(ctx, f, first.Path) != nil {
		return false, nil
	}
	head, tail, ok, err := joints(
		ctx,
		c.lib,
		first.Path,
		first.Ordinal,
		first.Ordinal+len(s.refs),
		c.fps,
	)
	if err != nil {
		return false, err
	}
	file, err := c.lib.Acquire(ctx, first.Path)
	if err != nil {
		return false, err
	}
	defer file.Release()
	holds := !ok
	if !holds {
		continues, err := c.continues(
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
		holds = !continues
	}
	if holds {
		return false, nil
	}
	s.head, s.tail, s.codec = head, tail, file.Index.Entries()[0].Codec
	return true, nil
}

// continues says whether frames that are encoded here can stand before those of a file. It is tried
// once for each configuration of a decoder.
func (c *conversion) continues(ctx context.Context, f *feature, part video.Part) (bool, error) {
	entry := part.File.Index.Entries()[0]
	id := fmt.Sprint(f.Key, entry)
	c.trials.Lock()
	defer c.trials.Unlock()
	if known, ok := c.tried[id]; ok {
		return known, nil
	}
	err := func() error {
		dir, err := os.MkdirTemp(c.opt.out.TempDir, "robocache-encode-*")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		enc, _, err := newEncoder(
			ctx,
			filepath.Join(dir, "trial.mp4"),
			c.opt.out.Video.like(entry.Codec),
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
		return joinable(ctx, []video.Part{{File: trial, From: 0, To: 1}, part}, c.fps)
	}()
	if err := ctx.Err(); err != nil {
		return false, err
	}
	if c.tried == nil {
		c.tried = map[string]bool{}
	}
	c.tried[id] = err == nil
	return err == nil, nil
}
