package write

import (
	"context"
	"encoding/binary"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/crash"
	"github.com/goatnote-inc/robocache/stats"
	"github.com/goatnote-inc/robocache/video"
)

// recording is an episode under way.
type recording struct {
	rows     int
	columns  map[string][]byte
	text     map[string][]string
	tasks    []string
	feeds    map[string]*feed
	native   map[string]*samples
	rowTimes []int64      // with native streams
	held     atomic.Int64 // bytes

	ended bool // no more frames come
	stop  context.CancelFunc
}

// feed is the way of one camera's images to its encoder.
type feed struct {
	f      *robocache.Feature
	frames chan []byte
	done   chan struct{}
	broken atomic.Pointer[error]
	name   string // of the mp4, in the folder of parts
	size   int64
	stills [][]byte
	look   *stats.Pixels
}

// AddFrame adds a row: the bytes of each feature in the order of Config.Features, images as height
// × width × channels; nil of text features, whose values are in texts. AddFrame copies all values.
// When the queue is full, RecordOptions.OnFull decides whether AddFrame waits until there is room
// or ctx ends, fails, or drops the row. added reports whether the row was added. With
// RecordOptions.Streams, t is the row's time in nanoseconds, and rows is nil for these streams.
func (r *Recorder) AddFrame(
	ctx context.Context,
	task string,
	t int64,
	rows [][]byte,
	texts map[string]string,
) (added bool, err error) {
	defer crash.Recover(opRecord, &err)
	if err := r.closed(); err != nil {
		return added, err
	}
	where := robocache.Where{"episode": r.nextEpisode(), "row": 0}
	if r.now != nil {
		where["row"] = r.now.rows
	}
	defer robocache.Locate(&err, where)
	if r.now != nil && r.now.ended {
		return added, robocache.Misuse(opRecord, nil, "the episode is being saved").
			WithHint("save_episode() again, or discard_episode()")
	}
	var need int64
	for i := range r.cfg.Features {
		f := &r.cfg.Features[i]
		n := GivenBytes(f)
		if _, ok := r.opt.Streams[f.Key]; ok {
			n = 0
		}
		need += int64(pixelBytes(f))
		if _, ok := texts[f.Key]; f.Kind == robocache.KindText && !ok || len(rows[i]) != n {
			return added, misuse(
				robocache.Where{"stream": f.Key},
				"",
				fmt.Sprintf("%d bytes", n),
				strconv.Itoa(len(rows[i])),
				"",
			)
		}
		if err := r.checkFinite(f, rows[i]); err != nil {
			return added, err
		}
	}
	if err := r.checkTime(t); err != nil {
		return added, err
	}
	if r.now == nil {
		r.begin()
	}
	e := r.now
	if err := e.check(); err != nil {
		return added, err
	}
	if err := e.checkHeld(); err != nil {
		return added, err
	}
	if !r.queue.TryAcquire(need) {
		switch r.opt.OnFull {
		case OnFullDrop:
			r.count.Dropped++
			return false, nil
		case OnFullRaise:
			r.count.Refused++
			return added, robocache.Temporary(opRecord, nil, "the queue of images is full: %d of %d bytes", r.waiting.Load(), r.count.QueueBytes).
				WithHint("Call add_frame again later, raise %s, or pass %s, which costs less.", robocache.Option("queue_bytes"),
					robocache.Option("video_codec", "h264"))
		}
		since := time.Now()
		err := r.queue.Acquire(ctx, need)
		r.waited(since)
		if err != nil {
			return added, err
		}
	}
	r.count.QueuePeak = max(r.count.QueuePeak, r.waiting.Add(need))
	for i := range r.cfg.Features {
		switch f := &r.cfg.Features[i]; {
		case f.Kind == robocache.KindText:
			e.text[f.Key] = append(e.text[f.Key], texts[f.Key])
			e.held.Add(int64(len(texts[f.Key])))
		case e.feeds[f.Key] != nil:
			var p []byte
			select {
			case p = <-r.free: // append makes a larger one where it must
			default:
			}
			e.feeds[f.Key].frames <- append(p[:0], rows[i]...)
		case e.native[f.Key] != nil: // alignRows fills the column
		default:
			e.columns[f.Key] = append(e.columns[f.Key], rows[i]...)
			e.held.Add(int64(len(rows[i])))
		}
	}
	if len(r.opt.Streams) > 0 {
		e.rowTimes = append(e.rowTimes, t)
	}
	e.tasks = append(e.tasks, task)
	e.rows++
	return true, nil
}

// checkFinite rejects a row of numbers that holds NaN or an infinity. Depth images are exempt: NaN
// means no return there.
func (r *Recorder) checkFinite(f *robocache.Feature, row []byte) error {
	if f.Kind != robocache.KindNumeric || !f.DType.Float() {
		return nil
	}
	size := f.DType.Size()
	for k := 0; k+size <= len(row); k += size {
		v := row[k : k+size]
		var exponent, full, mantissa uint64
		switch f.DType {
		case robocache.Float64:
			b := binary.LittleEndian.Uint64(v)
			exponent, full, mantissa = b>>52&0x7ff, 0x7ff, b<<12
		case robocache.Float32:
			b := binary.LittleEndian.Uint32(v)
			exponent, full, mantissa = uint64(b>>23&0xff), 0xff, uint64(b<<9)
		case robocache.Float16:
			b := binary.LittleEndian.Uint16(v)
			exponent, full, mantissa = uint64(b>>10&0x1f), 0x1f, uint64(b<<6)
		default:
			return nil
		}
		if exponent == full && !slices.Contains(r.opt.AllowNaN, "*") &&
			!slices.Contains(r.opt.AllowNaN, f.Key) {
			return r.notFinite(f, k/size, mantissa != 0)
		}
	}
	return nil
}

func (r *Recorder) notFinite(f *robocache.Feature, element int, isNaN bool) error {
	value, name := "infinite", ""
	if isNaN {
		value = "NaN"
	}
	if names := f.ChannelNames(); names != nil {
		name = fmt.Sprintf(" (%s)", names[element])
	}
	return robocache.Misuse(opRecord, robocache.Where{"stream": f.Key, "element": element}, "element %d%s is %s", element, name, value).
		WithHint("Record the last valid value, or pass %s.", robocache.Option("allow_nan", []string{f.Key}))
}

// checkHeld rejects more numbers and still images than an episode may hold in memory.
func (e *recording) checkHeld() error {
	if e.held.Load() > heldBytes {
		return robocache.ResourceLimit(opRecord, nil, "the episode's numbers and still images").
			Expected(fmt.Sprintf("%d bytes", heldBytes), "more").
			WithHint(`save_episode() more often; cameras as "video" are not kept in memory`)
	}
	return nil
}

// check tells what broke an encoder.
func (e *recording) check() error {
	for key, fd := range e.feeds {
		if err := fd.broken.Load(); err != nil {
			return robocache.At(*err, robocache.Where{"stream": key})
		}
	}
	return nil
}

// begin starts an episode and the goroutines of its cameras.
func (r *Recorder) begin() {
	ctx, stop := context.WithCancel(r.ctx)
	r.now = &recording{
		columns: map[string][]byte{},
		text:    map[string][]string{},
		feeds:   map[string]*feed{},
		native:  map[string]*samples{},
		stop:    stop,
	}
	for i := range r.cfg.Features {
		f := &r.cfg.Features[i]
		n := pixelBytes(f)
		if n == 0 {
			continue
		}
		// A channel that holds all that the queue has room for never blocks.
		fd := &feed{
			f:      f,
			frames: make(chan []byte, r.count.QueueBytes/int64(n)+1),
			done:   make(chan struct{}),
			name:   fmt.Sprintf("%d-%016x.mp4", i, rand.Uint64()),
			look:   stats.AllFrames.Images(f),
		}
		r.now.feeds[f.Key] = fd
		e := r.now
		go func() {
			defer close(fd.done)
			work := crash.Func(opRecord, func() error { return r.encode(ctx, fd) })
			if f.Kind == robocache.KindImage {
				work = crash.Func(opRecord, func() error { return r.compress(fd, e) })
			}
			if err := work(); err != nil {
				fd.broken.Store(&err)
			}
			for p := range fd.frames { // of an encoder that broke
				r.back(p)
			}
		}()
	}
}

// back takes an image's buffer back, and gives its room in the queue to the next.
func (r *Recorder) back(p []byte) {
	select {
	case r.free <- p:
	default:
	}
	r.waiting.Add(-int64(len(p)))
	r.queue.Release(int64(len(p)))
}

// encode writes a camera's frames into an mp4 of the episode, and counts all of them.
func (r *Recorder) encode(ctx context.Context, fd *feed) error {
	file := filepath.Join(r.parts, fd.name)
	coding, err := r.coding(fd.f)
	if err != nil {
		return err
	}
	enc, _, err := newEncoder(ctx, file, coding, r.cfg.FPS, fd.f)
	if err != nil {
		return err
	}
	defer enc.Abort()
	var depth *video.DepthCodes
	if fd.f.Depth != nil {
		depth = video.NewDepthCodes(fd.f.Depth)
	}
	var codes []byte
	for p := range fd.frames {
		var err error
		if depth != nil {
			codes = depth.Put(codes[:0], p)
			err = enc.Write(codes)
			fd.look.Add16(codes, fd.f.Width)
		} else {
			err = enc.Write(p)
			fd.look.Add8(p, fd.f.Width)
		}
		r.back(p)
		if err != nil {
			return err
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := enc.Close(); err != nil {
		return err
	}
	stat, err := os.Stat(file)
	if err != nil {
		return err
	}
	fd.size = stat.Size()
	return nil
}

// compress makes files of a camera's still images.
func (r *Recorder) compress(fd *feed, e *recording) error {
	f := fd.f
	for p := range fd.frames {
		b, err := video.EncodeImage(
			&robocache.FrameRef{
				Raw: &robocache.Raw{
					Pix:      p,
					Height:   f.Height,
					Width:    f.Width,
					Channels: f.Channels,
					DType:    f.DType,
				},
			},
		)
		r.back(p)
		if err != nil {
			return err
		}
		e.held.Add(int64(len(b)))
		fd.stills = append(fd.stills, b)
	}
	return nil
}

// Discard drops the rows of the episode under way.
func (r *Recorder) Discard() {
	e := r.now
	if e == nil {
		return
	}
	e.stop()
	e.finish()
	for _, fd := range e.feeds {
		<-fd.done
		_ = os.Remove(filepath.Join(r.parts, fd.name))
	}
	r.now = nil
}

// finish says that no more frames come.
func (e *recording) finish() {
	if e.ended {
		return
	}
	e.ended = true
	for _, fd := range e.feeds {
		close(fd.frames)
	}
}

// SaveEpisode ends the episode under way and makes it a part of the dataset: on return it is there,
// whatever happens to this process. After an error (a full disk) the dataset is as it was, and the
// episode is still under way: save it again, or discard it.
func (r *Recorder) SaveEpisode(ctx context.Context) (err error) {
	defer crash.Recover(opRecord, &err)
	if err := r.closed(); err != nil {
		return err
	}
	defer robocache.Locate(&err, robocache.Where{"dataset": r.dir, "episode": r.nextEpisode()})
	e := r.now
	if e == nil || e.rows == 0 {
		return robocache.Misuse(opRecord, nil, "the episode has no rows").
			WithHint("add_frame() comes before save_episode()")
	}
	e.finish()
	ep := &EpisodeData{
		Length:     e.rows,
		Columns:    e.columns,
		Text:       e.text,
		Images:     map[string][][]byte{},
		Videos:     map[string]VideoPart{},
		Tasks:      e.tasks,
		FrameStats: map[string]*stats.Pixels{},
	}
	e.alignRows(r.cfg.Features)
	size := e.held.Load()
	for key, fd := range e.feeds {
		select {
		case <-fd.done:
		case <-ctx.Done():
			return ctx.Err()
		}
		if err := e.check(); err != nil {
			return err
		}
		if fd.f.Kind == robocache.KindImage {
			ep.Images[key] = fd.stills
			continue
		}
		ep.Videos[key] = VideoPart{Library: r.lib, Path: fd.name}
		ep.FrameStats[key] = fd.look
		size += fd.size
	}
	if err := r.apply(ctx); err != nil {
		return err
	} // of an episode before, where that failed
	if err := r.save(ctx, ep, size, r.nativeOf(e)); err != nil {
		return err
	}
	e.stop()
	r.now = nil
	if err := r.apply(ctx); err != nil {
		return err
	}
	return nil
}

// frameStats are those of all images so far.
func (r *Recorder) frameStats(next *recorded) robocache.Stats {
	out := robocache.Stats{}
	for i := range r.cfg.Features {
		f := &r.cfg.Features[i]
		if pixelBytes(f) == 0 {
			continue
		}
		var counted *robocache.FeatureStats
		if p := next.looks[f.Key]; p != nil {
			counted = p.Stats()
		}
		if all := together(next.totals[f.Key], counted, true); all != nil {
			out[f.Key] = all
		}
	}
	return out
}

// together are the statistics of two sets of rows. Quantiles of the whole do not follow from those
// of its parts: guess takes their mean, weighted by rows.
func together(a, b *robocache.FeatureStats, guess bool) *robocache.FeatureStats {
	if a == nil || b == nil || len(a.Mean) != len(b.Mean) {
		if b == nil {
			return a
		}
		return b
	}
	m := stats.MomentsOf(a)
	m.Merge(stats.MomentsOf(b))
	out := m.Stats()
	out.Shape, out.Count = b.Shape, a.Count+b.Count
	if guess && len(a.Quantiles) > 0 {
		out.Quantiles = maps.Clone(b.Quantiles)
		wa, wb := float64(a.Count)/float64(out.Count), float64(b.Count)/float64(out.Count)
		for name, q := range b.Quantiles {
			if of := a.Quantiles[name]; len(of) == len(q) {
				mean := make([]float64, len(q))
				for c := range q {
					mean[c] = wa*of[c] + wb*q[c]
				}
				out.Quantiles[name] = mean
			}
		}
	}
	return out
}
