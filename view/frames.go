package view

import (
	"bytes"
	"container/list"
	"context"
	"encoding/binary"
	"errors"
	"image"
	"image/jpeg"
	"math"
	"net/http"
	"slices"
	"sync"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/guard"
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

// frameCache keeps JPEGs, least recently used first out. An empty one stands for a row without a frame.
type frameCache struct {
	mu     sync.Mutex
	budget int
	held   int
	order  *list.List // of frameKey, the newest in front
	at     map[frameKey]*list.Element
	data   map[frameKey][]byte
}

func newFrameCache(budget int) *frameCache {
	return &frameCache{budget: budget, order: list.New(), at: map[frameKey]*list.Element{}, data: map[frameKey][]byte{}}
}

func (c *frameCache) get(k frameKey) ([]byte, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	b, ok := c.data[k]
	if ok {
		c.order.MoveToFront(c.at[k])
	}
	return b, ok
}

func (c *frameCache) put(k frameKey, b []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.data[k]; ok {
		return
	}
	c.at[k], c.data[k] = c.order.PushFront(k), b
	for c.held += len(b) + 200; c.held > c.budget; {
		old := c.order.Remove(c.order.Back()).(frameKey)
		c.held -= len(c.data[old]) + 200
		delete(c.data, old)
		delete(c.at, old)
	}
}

// camera is a stream of frames that is looked at. One job decodes for it: that of the newest request.
type camera struct {
	mu   sync.Mutex
	last int // the row that was asked for before
	job  *job
}

// job decodes a run of rows: the one that was asked for, and those beside it that will be asked for next.
type job struct {
	asked, from, to int // rows [from, to)
	waiters         int
	old, over       bool // another job took its place; it ended
	done            map[int]bool
	err             error
	cancel          context.CancelFunc
	tick            chan struct{} // closed when something changed, and made anew
}

// frame answers the frame of a row as JPEG.
func (s *Server) frame(q *request) error {
	f := q.feature
	if f.Kind != robocache.KindVideo && f.Kind != robocache.KindImage {
		return &robocache.Error{Class: robocache.ErrUnsupported, Op: "view", Where: robocache.Where{"stream": f.Key}, Msg: "a stream of kind " + string(f.Kind) + " has no frames"}
	}
	row := q.row(q.Context())
	width := int(q.number("w", 640, 16, maxSide))
	if f.Width > 0 {
		width = min(width, f.Width)
	}
	b := guard.Must(s.jpeg(q.Context(), q.set, frameKey{cameraKey{q.set.id, q.e, f.Key, width}, row}, f))
	q.Header().Set("Cache-Control", "private, max-age=3600, immutable")
	if len(b) == 0 { // the row has no frame
		q.WriteHeader(http.StatusNoContent)
		return nil
	}
	q.Header().Set("Content-Type", "image/jpeg")
	_, err := q.Write(b)
	return err
}

// jpeg gives a frame: kept, or of a job that decodes it.
func (s *Server) jpeg(ctx context.Context, x *set, k frameKey, f *robocache.Feature) ([]byte, error) {
	l, err := x.timeline(ctx, k.e, f)
	if err != nil {
		return nil, err
	}
	got, _ := s.cameras.LoadOrStore(k.cameraKey, &camera{last: -1})
	cam := got.(*camera)
	for range 4 { // a frame may be thrown out between its making and its taking
		if b, ok := s.frames.get(k); ok {
			cam.mu.Lock()
			cam.last = k.row
			cam.mu.Unlock()
			return b, nil
		}
		j := s.join(x, cam, k, f, l.rows)
		err := j.wait(ctx, cam, k.row)
		cam.mu.Lock()
		if j.waiters--; j.waiters == 0 && j.old {
			j.cancel()
		}
		cam.mu.Unlock()
		if b, ok := s.frames.get(k); ok {
			return b, nil
		}
		if err != nil && !errors.Is(err, context.Canceled) || ctx.Err() != nil {
			return nil, errors.Join(ctx.Err(), err)
		}
	}
	return nil, &robocache.Error{Class: robocache.ErrTemporary, Op: "view", Msg: "frames are thrown out faster than they are sent"}
}

// join finds the job that makes a frame, or begins one in place of the camera's.
func (s *Server) join(x *set, cam *camera, k frameKey, f *robocache.Feature, rows int) *job {
	cam.mu.Lock()
	defer cam.mu.Unlock()
	far := cam.last < 0 || abs(k.row-cam.last) > 2*framesAhead // a person jumps, or scrubs: what lies beside the row is not what comes next
	back := !far && k.row < cam.last
	cam.last = k.row
	if j := cam.job; j != nil && !j.over && k.row >= j.from && k.row < j.to && !j.done[k.row] {
		j.waiters++
		return j
	} else if j != nil {
		if j.old = true; j.waiters == 0 {
			j.cancel()
		}
	}
	j := &job{asked: k.row, from: k.row, to: min(k.row+framesAhead, rows), waiters: 1, done: map[int]bool{}, tick: make(chan struct{})}
	switch {
	case far:
		j.to = k.row + 1
	case back:
		j.from, j.to = max(0, k.row-framesAhead), k.row+1
	}
	var ctx context.Context
	ctx, j.cancel = context.WithCancel(s.ctx)
	cam.job = j
	s.work.Go(func() {
		err := s.decode(ctx, x, cam, j, k, f, j.from, j.to)
		if err != nil && ctx.Err() == nil && j.to-j.from > 1 && !j.made(cam, k.row) { // another row of the run is damaged
			err = s.decode(ctx, x, cam, j, k, f, k.row, k.row+1)
		}
		cam.mu.Lock()
		j.over, j.err = true, err
		close(j.tick)
		cam.mu.Unlock()
		j.cancel()
	})
	return j
}

func (j *job) made(cam *camera, row int) bool {
	cam.mu.Lock()
	defer cam.mu.Unlock()
	return j.done[row]
}

// wait waits for a row.
func (j *job) wait(ctx context.Context, cam *camera, row int) error {
	for {
		cam.mu.Lock()
		done, over, err, tick := j.done[row], j.over, j.err, j.tick
		cam.mu.Unlock()
		switch {
		case done:
			return nil
		case over:
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick:
		}
	}
}

// errEnough ends a job that has done what was asked for while others wait.
var errEnough = errors.New("enough")

// decode makes the JPEGs of rows [from, to).
func (s *Server) decode(ctx context.Context, x *set, cam *camera, j *job, k frameKey, f *robocache.Feature, from, to int) (err error) {
	defer guard.Malformed("view", &err)
	s.waiting.Add(1)
	select {
	case s.slots <- struct{}{}:
		s.waiting.Add(-1)
		defer func() { <-s.slots }()
	case <-ctx.Done():
		s.waiting.Add(-1)
		return ctx.Err()
	}
	rows := robocache.RowsOf(k.e, from, to-from)
	run := len(rows)
	if f.Kind == robocache.KindImage { // each alone: reading them is the work. The one that was asked for comes first
		run = 1
		slices.SortStableFunc(rows, func(a, b robocache.Row) int { return abs(a.Index-k.row) - abs(b.Index-k.row) })
	}
	paint := painter{width: k.width, f: f}
	for ; len(rows) > 0; rows = rows[run:] {
		refs := make([]robocache.FrameRef, run)
		guard.Check(x.ds.Frames(ctx, k.key, rows[:run], refs))
		err := video.EachFrame(ctx, x.library, refs, video.Each{Pool: s.pool}, func(at []int, frame video.Frame) error {
			b, err := paint.jpeg(&refs[at[0]], frame)
			if err != nil {
				return err
			}
			cam.mu.Lock()
			for _, i := range at {
				s.frames.put(frameKey{k.cameraKey, rows[i].Index}, b)
				j.done[rows[i].Index] = true
			}
			close(j.tick)
			j.tick = make(chan struct{})
			alone := j.waiters == 0
			enough := j.done[k.row] && (alone && j.old || s.waiting.Load() > 0)
			cam.mu.Unlock()
			if enough {
				return errEnough
			}
			return nil
		})
		if errors.Is(err, errEnough) {
			return nil
		}
		guard.Check(err)
	}
	return nil
}

func abs(n int) int { return max(n, -n) }

// painter makes JPEGs of frames. It keeps its buffers.
type painter struct {
	width int
	f     *robocache.Feature
	raw   []byte
	img   *image.RGBA
}

// jpeg gives the frame of a row, no bytes where it has none.
func (p *painter) jpeg(ref *robocache.FrameRef, frame video.Frame) (_ []byte, err error) {
	defer guard.Into(&err)
	if ref.Missing {
		return nil, nil
	}
	var w, h int
	still := video.StillInfo{}
	if frame != nil {
		w, h = frame.Size()
	} else {
		still = guard.Must(video.ImageSize(ref))
		w, h = still.Width, still.Height
	}
	convert := func(spec *video.Spec) []byte {
		if frame != nil {
			p.raw = guard.Must(video.ConvertTo(p.raw, frame, spec))
			return p.raw
		}
		p.raw = slices.Grow(p.raw[:0], guard.Must(video.StillBytes(still, spec)))
		p.raw = p.raw[:cap(p.raw)][:guard.Must(video.StillBytes(still, spec))]
		guard.Check(video.DecodeImage(ref, spec, p.raw))
		return p.raw
	}
	tw := min(p.width, w, maxSide)
	th := max(1, (h*tw+w/2)/w)
	if th > maxSide {
		tw, th = max(1, tw*maxSide/th), maxSide
	}
	if p.img == nil || p.img.Rect.Dx() != tw || p.img.Rect.Dy() != th {
		p.img = image.NewRGBA(image.Rect(0, 0, tw, th))
	}
	pix := p.img.Pix
	if deep := p.f.Depth != nil || frame == nil && still.DType != robocache.Uint8; deep && (frame != nil || still.Channels == 1) {
		depthColours(convert(&video.Spec{Pixel: video.DepthM, Depth: p.f.Depth}), w, h, tw, th, pix)
	} else {
		rgb := convert(&video.Spec{Width: tw, Height: th, Pixel: video.RGB8})
		for i := range tw * th {
			pix[4*i], pix[4*i+1], pix[4*i+2], pix[4*i+3] = rgb[3*i], rgb[3*i+1], rgb[3*i+2], 255
		}
	}
	var out bytes.Buffer
	guard.Check(jpeg.Encode(&out, p.img, &jpeg.Options{Quality: quality}))
	return out.Bytes(), nil
}

// depthColours shows metres: near is warm and bright, far is blue and dark, no measurement black. Pixels are picked, not mixed.
func depthColours(raw []byte, w, h, tw, th int, pix []byte) {
	at := make([]float64, tw*th)
	var known []float64
	for y := range th {
		for x := range tw {
			v := float64(math.Float32frombits(binary.LittleEndian.Uint32(raw[4*((y*h/th)*w+x*w/tw):])))
			at[y*tw+x] = v
			if v > 0 && v-v == 0 {
				known = append(known, v)
			}
		}
	}
	slices.Sort(known)
	near, far := 0.0, 1.0
	if n := len(known); n > 0 {
		near, far = known[n/50], known[n-1-n/50]
	}
	for i, v := range at {
		var r, g, b float64
		if v > 0 && v-v == 0 {
			z := 1 - min(max((v-near)/max(far-near, 1e-9), 0), 1) // 1 = near
			r, g, b = 40+215*min(1, 1.6*z), 30+200*z*z, 60+150*math.Sin(math.Pi*(0.25+0.5*(1-z)))*(1-0.6*z)
		}
		pix[4*i], pix[4*i+1], pix[4*i+2], pix[4*i+3] = byte(r), byte(g), byte(b), 255
	}
}
