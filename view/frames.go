package view

import (
	"bytes"
	"context"
	"image/jpeg"
	"net/http"
	"sync/atomic"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/inspect"
	"github.com/goatnote-inc/robocache/internal/crash"
	"github.com/goatnote-inc/robocache/video"
)

const quality = 85 // of JPEGs

type cameraKey struct {
	set   string
	e     int
	key   string
	width int
}

type frameKey struct {
	cameraKey
	row int
}

// camera is a stream of frames that is looked at, in one width. One request at a time decodes for
// it.
type camera struct {
	turn chan struct{}
	last atomic.Int64 // the row that was asked for before
}

// frame answers the frame of a row as JPEG.
func (s *Server) frame(q *request) error {
	f := q.feature
	if f.Kind != robocache.KindVideo && f.Kind != robocache.KindImage {
		return robocache.Unsupported(
			"view",
			robocache.Where{"stream": f.Key},
			"a stream of kind %s has no frames",
			string(f.Kind),
		)
	}
	row, err := q.row(q.Context())
	if err != nil {
		return err
	}
	number, err := q.number("w", 640, 16, inspect.MaxSide)
	if err != nil {
		return err
	}
	width := int(number)
	if f.Width > 0 {
		width = min(width, f.Width)
	}
	b, err := s.jpeg(q.Context(), q.set, frameKey{cameraKey{q.set.id, q.e, f.Key, width}, row}, f)
	if err != nil {
		return err
	}
	q.Header().Set("Cache-Control", "private, max-age=3600, immutable")
	if len(b) == 0 { // the row has no frame
		q.WriteHeader(http.StatusNoContent)
		return nil
	}
	q.Header().Set("Content-Type", "image/jpeg")
	_, err = q.Write(b)
	return err
}

// jpeg gives a frame: kept, or decoded; no bytes where the row has none. While nobody waits, the
// rows that will be asked for next are decoded too.
func (s *Server) jpeg(
	ctx context.Context,
	x *set,
	k frameKey,
	f *robocache.Feature,
) (_ []byte, err error) {
	l, err := x.timeline(ctx, k.e, f)
	if err != nil {
		return nil, err
	}
	cam, err := s.cameras.Get(ctx, k.cameraKey, func() (*camera, int64, error) {
		c := &camera{turn: make(chan struct{}, 1)}
		c.last.Store(-1)
		return c, 1, nil
	})
	if err != nil {
		return nil, err
	}
	last := int(cam.last.Swap(int64(k.row)))
	if b, ok := s.frames.Peek(k); ok {
		return b, nil
	}
	if err := s.take(ctx, cam); err != nil {
		return nil, err
	}
	release := func() { <-s.slots; <-cam.turn }
	if b, ok := s.frames.Peek(k); ok { // made meanwhile
		release()
		return b, nil
	}
	var p inspect.Painter
	made := func(ctx context.Context, row int) ([]byte, error) {
		return s.decode(ctx, x, &p, frameKey{k.cameraKey, row}, f)
	}
	b, err := made(ctx, k.row)
	if err != nil {
		release()
		return nil, err
	}
	from, to := k.row+1, min(k.row+framesAhead, l.Rows)
	switch {
	case last < 0 || max(last-k.row, k.row-last) > 2*framesAhead:
		// a person jumps, or scrubs: what lies beside the row is not what comes next
		to = from
	case k.row < last:
		from, to = max(0, k.row-framesAhead), k.row
	}
	s.work.Go(func() {
		defer release()
		for row := from; row < to && s.waiting.Load() == 0; row++ {
			if _, err := made(s.ctx, row); err != nil {
				return
			}
		}
	})
	return b, nil
}

// take waits until a camera and a processor are free.
func (s *Server) take(ctx context.Context, cam *camera) error {
	s.waiting.Add(1)
	defer s.waiting.Add(-1)
	select {
	case cam.turn <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case s.slots <- struct{}{}:
		return nil
	case <-ctx.Done():
		<-cam.turn
		return ctx.Err()
	}
}

// decode makes the JPEG of a row, and keeps it. Its decoder stays where it stands: the row behind
// costs one frame.
func (s *Server) decode(
	ctx context.Context,
	x *set,
	p *inspect.Painter,
	k frameKey,
	f *robocache.Feature,
) (_ []byte, err error) {
	defer crash.Recover("view", &err)
	refs := make([]robocache.FrameRef, 1)
	if err := x.ds.Frames(ctx, k.key, robocache.RowsOf(k.e, k.row, 1), refs); err != nil {
		return nil, err
	}
	var out bytes.Buffer
	if err := video.EachFrame(
		ctx,
		x.library,
		refs,
		video.Each{Pool: s.pool},
		func(_ []int, frame video.Frame) error {
			img, err := p.Paint(f, &refs[0], frame, k.width)
			if err != nil || img == nil {
				return err
			}
			return jpeg.Encode(&out, img, &jpeg.Options{Quality: quality})
		},
	); err != nil {
		return nil, err
	}
	s.frames.Put(k, out.Bytes(), int64(out.Len())+200)
	return out.Bytes(), nil
}
