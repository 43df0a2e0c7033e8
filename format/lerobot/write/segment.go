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

// recordIn records in m how the episode's frames of camera key are written: the verdict, the
// numbers of hidden frames, and the numbers of frames that are encoded at the ends of a copied
// segment.
func (s *segment) recordIn(m *EpisodeMap, key string) {
	m.Video[key] = s.verdict()
	if s.before+s.behind > 0 {
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
	reason, err := c.refsReason(f, s.refs)
	if err != nil {
		return nil, err
	}
	s.reason = reason
	if c.options.codec != "copy" {
		s.reason = "the option video_codec is " + c.options.codec
	} else if c.shouldResize(f) {
		s.reason = "the option size is set"
	}
	if s.reason == "" {
		if err := c.planCopy(ctx, f, s); err != nil {
			return nil, err
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

// refsReason returns why frames cannot be copied, or "" if they are consecutive frames of one file.
// It returns an error if rows lack images that they must have.
func (c *conversion) refsReason(f *feature, refs []robocache.FrameRef) (reason string, err error) {
	first := refs[0]
	for k, r := range refs {
		follows := r.Path == first.Path && r.Ordinal == first.Ordinal+k
		switch {
		case r.Missing && f.hasMask:
			reason = "rows without an image"
		case r.Missing:
			return "", robocache.Malformed(
				"convert",
				robocache.Where{"row": k},
				"the row has no image",
			).WithHint("leave the episode out, or fix the video")
		case r.Path == "":
			return "", robocache.Malformed(
				"convert",
				robocache.Where{"row": k},
				"a still image in a stream of video",
			)
		case !follows:
			reason = "the images are not consecutive frames of one file"
		}
	}
	return reason, nil
}

// planCopy plans to copy the frames of s, or those between its ends. If neither is possible, it
// sets the reason.
func (c *conversion) planCopy(ctx context.Context, f *feature, s *segment) error {
	first := s.refs[0]
	err := c.checkSize(ctx, f, first.Path)
	if err == nil {
		s.before, s.behind, err = Copyable(
			ctx,
			c.library,
			first.Path,
			first.Ordinal,
			first.Ordinal+len(s.refs),
			c.options.hidden,
			c.fps,
		)
	}
	if !errors.Is(err, robocache.ErrUnsupported) {
		return err
	}
	if !c.options.copyOnly {
		isPlanned, failed := c.planEnds(ctx, f, first, s)
		if failed != nil || isPlanned {
			return failed
		}
	}
	var why *robocache.Error
	if !errors.As(err, &why) {
		return err
	}
	s.reason = why.Msg
	return nil
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
	if !ok {
		return false, nil
	}
	between := video.Part{
		File: file,
		From: first.Ordinal + head,
		To:   first.Ordinal + len(s.refs) - tail,
	}
	continues, err := c.canContinue(ctx, f, between)
	if err != nil || !continues {
		return false, err
	}
	s.head = head
	s.tail = tail
	s.codec = file.Index.Entries()[0].Codec
	return true, nil
}

// canContinue reports whether frames that this conversion encodes can be joined with frames of part
// in one file. The result is cached per camera and decoder configuration, because it needs a trial
// encoding.
func (c *conversion) canContinue(ctx context.Context, f *feature, part video.Part) (bool, error) {
	entry := part.File.Index.Entries()[0]
	id := fmt.Sprint(f.Key, entry)
	c.trials.Lock()
	defer c.trials.Unlock()
	if known, ok := c.canJoin[id]; ok {
		return known, nil
	}
	err := c.tryJoin(ctx, f, part, entry.Codec)
	if err := ctx.Err(); err != nil {
		return false, err
	}
	if c.canJoin == nil {
		c.canJoin = map[string]bool{}
	}
	c.canJoin[id] = err == nil
	return err == nil, nil
}

// tryJoin encodes a black frame and returns an error if it cannot be joined with part.
func (c *conversion) tryJoin(
	ctx context.Context,
	f *feature,
	part video.Part,
	codec video.Codec,
) error {
	dir, err := os.MkdirTemp(c.options.out.TempDir, "robocache-encode-*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	const name = "trial.mp4"
	enc, _, err := newEncoder(
		ctx,
		filepath.Join(dir, name),
		c.options.out.Video.forCodec(codec),
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
	size, err := video.StillBytes(video.StillInfo{Width: f.Width, Height: f.Height}, &spec)
	if err != nil {
		return err
	}
	if err := enc.Write(make([]byte, size)); err != nil {
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
	trial, err := lib.Acquire(ctx, name)
	if err != nil {
		return err
	}
	defer trial.Release()
	return checkJoinable(ctx, []video.Part{{File: trial, From: 0, To: 1}, part}, c.fps)
}
