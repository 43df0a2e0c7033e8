package view

import (
	"io"
	"math"
	"net/http"
	"time"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/store"
	"github.com/goatnote-inc/robocache/video"
)

// videoFile returns the file that holds all frames of a stream in an episode, and the frame number
// of each row; -1 means none. The caller must release the file.
func (q *request) videoFile() (file *video.File, numbers []int, err error) {
	ctx := q.Context()
	unsupported := func(msg string) error {
		return robocache.Unsupported(
			"view",
			robocache.Where{
				"stream":  q.feature.Key,
				"episode": q.base.info.EpisodeIndex(q.episode),
			},
			"%s",
			msg,
		)
	}
	if q.feature.Kind != robocache.KindVideo || q.set.library == nil {
		if err := unsupported("a stream of kind " + string(q.feature.Kind) +
			" is no video file"); err != nil {
			return file, numbers, err
		}
	}
	l, err := q.set.timeline(ctx, q.episode, q.feature)
	if err != nil {
		return file, numbers, err
	}
	refs := make([]robocache.FrameRef, l.Rows)
	if err := q.set.ds.Frames(ctx, q.feature.Key, robocache.RowsOf(q.episode, 0, l.Rows),
		refs); err != nil {
		return file, numbers, err
	}
	path := ""
	numbers = make([]int, l.Rows)
	for i := range refs {
		numbers[i] = refs[i].Ordinal
		switch {
		case refs[i].Missing:
			numbers[i] = -1
		case refs[i].Path == "" || path != "" && path != refs[i].Path:
			if err := unsupported("the frames of the episode are not in one video file"); err !=
				nil {
				return file, numbers, err
			}
		default:
			path = refs[i].Path
		}
	}
	if path == "" {
		if err := unsupported("the episode has no frames"); err != nil {
			return file, numbers, err
		}
	}
	file, err = q.set.library.Acquire(ctx, path)
	if err != nil {
		return file, numbers, err
	}
	return file, numbers, nil
}

// servePTS answers the presentation time of each row's frame in the video file, in seconds. It is
// NaN if the row has no frame. The last value is the end of the last frame.
func (s *Server) servePTS(q *request) error {
	file, numbers, err := q.videoFile()
	if err != nil {
		return err
	}
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
	return q.writeBinary(
		map[string]any{"codec": codec, "points": len(out), "rotation": ix.Entries()[0].Rotation},
		out,
	)
}

// serveVideo answers the video file, or ranges of it.
func (s *Server) serveVideo(q *request) error {
	file, _, err := q.videoFile()
	if err != nil {
		return err
	}
	defer file.Release()
	q.Header().Set("Content-Type", "video/mp4")
	q.Header().Set("Cache-Control", "private, max-age=600")
	http.ServeContent(
		q.ResponseWriter,
		q.Request,
		"",
		time.Time{},
		io.NewSectionReader(
			store.ReaderAt{Ctx: q.Context(), File: file.Ranged},
			0,
			file.Ranged.Size(),
		),
	)
	return nil
}
