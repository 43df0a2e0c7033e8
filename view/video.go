package view

import (
	"context"
	"io"
	"math"
	"net/http"
	"time"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/guard"
	"github.com/goatnote-inc/robocache/video"
)

// mp4 gives the file that holds all frames of a stream in an episode, and each row's frame number in it; -1 = none.
func (q *request) mp4() (file *video.File, numbers []int) {
	ctx := q.Context()
	unsupported := func(msg string) {
		guard.Fail(&robocache.Error{Class: robocache.ErrUnsupported, Op: "view", Where: robocache.Where{"stream": q.feature.Key, "episode": q.e}, Msg: msg})
	}
	if q.feature.Kind != robocache.KindVideo || q.set.library == nil {
		unsupported("a stream of kind " + string(q.feature.Kind) + " is no video file")
	}
	l := guard.Must(q.set.timeline(ctx, q.e, q.feature))
	refs := make([]robocache.FrameRef, l.Rows)
	guard.Check(q.set.ds.Frames(ctx, q.feature.Key, robocache.RowsOf(q.e, 0, l.Rows), refs))
	path := ""
	numbers = make([]int, l.Rows)
	for i := range refs {
		switch numbers[i] = refs[i].Ordinal; {
		case refs[i].Missing:
			numbers[i] = -1
		case refs[i].Path == "" || path != "" && path != refs[i].Path:
			unsupported("the frames of the episode are not in one video file")
		default:
			path = refs[i].Path
		}
	}
	if path == "" {
		unsupported("the episode has no frames")
	}
	return guard.Must(q.set.library.Acquire(ctx, path)), numbers
}

// pts answers at which time of the video file each row's frame is shown, in seconds; NaN where it has none. The last is the end of the frames.
func (s *Server) pts(q *request) error {
	file, numbers := q.mp4()
	defer file.Release()
	ix := file.Index
	out := make([]float64, len(numbers)+1)
	last := 0
	for i, n := range numbers {
		out[i] = math.NaN()
		if n >= 0 && n < ix.NumFrames() {
			out[i] = float64(ix.TimeNS(n)) / 1e9
			last = max(last, n)
		}
	}
	if last+1 < ix.NumFrames() {
		out[len(numbers)] = float64(ix.TimeNS(last+1)) / 1e9
	} else {
		out[len(numbers)] = float64(2*ix.TimeNS(last)-ix.TimeNS(max(0, last-1))) / 1e9
	}
	codec := ix.Entries()[0].Codec
	return q.binary(map[string]any{"codec": codec, "points": len(out), "rotation": ix.Entries()[0].Rotation}, out)
}

// video answers the video file, or ranges of it.
func (s *Server) video(q *request) error {
	file, _ := q.mp4()
	defer file.Release()
	q.Header().Set("Content-Type", "video/mp4")
	q.Header().Set("Cache-Control", "private, max-age=600")
	http.ServeContent(q.ResponseWriter, q.Request, "", time.Time{}, &reader{ctx: q.Context(), r: file.Ranged})
	return nil
}

// reader reads a file of the store in order.
type reader struct {
	ctx context.Context
	r   robocache.Ranged
	off int64
}

func (r *reader) Read(p []byte) (int, error) {
	n := min(int64(len(p)), r.r.Size()-r.off)
	if n <= 0 {
		return 0, io.EOF
	}
	if err := r.r.ReadAt(r.ctx, p[:n], r.off); err != nil {
		return 0, err
	}
	r.off += n
	return int(n), nil
}

func (r *reader) Seek(off int64, whence int) (int64, error) {
	switch whence {
	case io.SeekCurrent:
		off += r.off
	case io.SeekEnd:
		off += r.r.Size()
	}
	if off < 0 {
		return 0, io.ErrUnexpectedEOF
	}
	r.off = off
	return off, nil
}
