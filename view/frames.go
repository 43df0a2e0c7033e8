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

const jpegQuality = 85 // of JPEGs

type cameraKey struct {
	set     string
	episode int
	key     string
	width   int
}

type frameKey struct {
	cameraKey
	row int
}

// camera is the state of a stream of frames in one width. Only one request at a time decodes for
// it.
type camera struct {
	turn    chan struct{}
	lastRow atomic.Int64 // the row of the previous request
}

// serveFrame answers the frame of a row as JPEG.
func (s *Server) serveFrame(q *request) error {
	f := q.feature
	if f.Kind != robocache.KindVideo && f.Kind != robocache.KindImage {
		return robocache.Unsupported(
			"view",
			robocache.Where{"stream": f.Key},
			"a stream of kind %s has no frames",
			string(f.Kind),
		)
	}
	row, err := q.rowNumber(q.Context())
	if err != nil {
		return err
	}
	number, err := q.queryNumber("w", 640, 16, inspect.MaxSide)
	if err != nil {
		return err
	}
	width := int(number)
	if f.Width > 0 {
		width = min(width, f.Width)
	}
	b, err := s.frameJPEG(
		q.Context(),
		q.set,
		frameKey{cameraKey{q.set.cacheID, q.episode, f.Key, width}, row},
		f,
	)
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

// frameJPEG returns a frame from the cache or decodes it. The result is empty if the row has no
// frame. If no other request waits, it then decodes the rows that are likely to be requested next,
// in the background.
func (s *Server) frameJPEG(
	ctx context.Context,
	x *viewedSet,
	k frameKey,
	f *robocache.Feature,
) (_ []byte, err error) {
	l, err := x.timeline(ctx, k.episode, f)
	if err != nil {
		return nil, err
	}
	cam, err := s.cameras.Get(ctx, k.cameraKey, func() (*camera, int64, error) {
		c := &camera{turn: make(chan struct{}, 1)}
		c.lastRow.Store(-1)
		return c, 1, nil
	})
	if err != nil {
		return nil, err
	}
	last := int(cam.lastRow.Swap(int64(k.row)))
	if b, ok := s.frames.Peek(k); ok {
		return b, nil
	}
	if err := s.acquireTurn(ctx, cam); err != nil {
		return nil, err
	}
	release := func() { <-s.slots; <-cam.turn }
	if b, ok := s.frames.Peek(k); ok { // another request decoded it in the meantime
		release()
		return b, nil
	}
	var p inspect.Painter
	made := func(ctx context.Context, row int) ([]byte, error) {
		return s.decodeFrame(ctx, x, &p, frameKey{k.cameraKey, row}, f)
	}
	b, err := made(ctx, k.row)
	if err != nil {
		release()
		return nil, err
	}
	from := k.row + 1
	to := min(k.row+framesAhead, l.Rows)
	switch {
	case last < 0 || max(last-k.row, k.row-last) > 2*framesAhead:
		// After a jump, the next request is unlikely to be for a neighbouring row.
		to = from
	case k.row < last:
		from = max(0, k.row-framesAhead)
		to = k.row
	}
	s.workers.Go(func() {
		defer release()
		for row := from; row < to && s.waiting.Load() == 0; row++ {
			if _, err := made(s.ctx, row); err != nil {
				return
			}
		}
	})
	return b, nil
}

// acquireTurn blocks until the camera and a decoding slot are free, or ctx is canceled.
func (s *Server) acquireTurn(ctx context.Context, cam *camera) error {
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

// decodeFrame encodes a row as JPEG and caches it. The decoder keeps its position, so the next row
// costs one frame.
func (s *Server) decodeFrame(
	ctx context.Context,
	x *viewedSet,
	p *inspect.Painter,
	k frameKey,
	f *robocache.Feature,
) (_ []byte, err error) {
	defer crash.Recover("view", &err)
	refs := make([]robocache.FrameRef, 1)
	if err := x.ds.Frames(ctx, k.key, robocache.RowsOf(k.episode, k.row, 1), refs); err != nil {
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
			return jpeg.Encode(&out, img, &jpeg.Options{Quality: jpegQuality})
		},
	); err != nil {
		return nil, err
	}
	s.frames.Put(k, out.Bytes(), int64(out.Len())+200)
	return out.Bytes(), nil
}
