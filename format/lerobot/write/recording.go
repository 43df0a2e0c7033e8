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

// recording is the current episode of a Recorder.
type recording struct {
	rows      int
	columns   map[string][]byte
	text      map[string][]string
	tasks     []string
	feeds     map[string]*feed
	native    map[string]*samples
	rowTimes  []int64      // set if there are native streams
	heldBytes atomic.Int64 // bytes in memory

	ended bool // AddFrame no longer accepts rows
	stop  context.CancelFunc
}

// feed passes the images of one camera to its encoder.
type feed struct {
	feature *robocache.Feature
	frames  chan []byte
	done    chan struct{}
	failed  atomic.Pointer[error]
	name    string // file name of the mp4 in Recorder.parts
	size    int64
	stills  [][]byte
	pixels  *stats.Pixels
}

// AddFrame adds a row. rows holds the bytes of each feature, in the order of Config.Features;
// images are height × width × channels. A text feature has nil in rows and its value in texts.
// AddFrame copies all values.
//
// When the queue is full, RecordOptions.OnFull decides whether AddFrame waits until there is
// capacity or ctx ends, fails, or drops the row. added reports whether the row was added.
//
// With RecordOptions.Streams, t is the row's time in nanoseconds, and rows is nil for these
// streams.
func (r *Recorder) AddFrame(
	ctx context.Context,
	task string,
	t int64,
	rows [][]byte,
	texts map[string]string,
) (added bool, err error) {
	defer crash.Recover(opRecord, &err)
	if err := r.errIfClosed(); err != nil {
		return added, err
	}
	where := robocache.Where{"episode": r.nextEpisode(), "row": 0}
	if r.current != nil {
		where["row"] = r.current.rows
	}
	defer robocache.Locate(&err, where)
	if r.current != nil && r.current.ended {
		return added, robocache.Misuse(opRecord, nil, "the episode is being saved").
			WithHint("save_episode() again, or discard_episode()")
	}
	need, err := r.checkValues(rows, texts)
	if err != nil {
		return added, err
	}
	if err := r.checkTime(t); err != nil {
		return added, err
	}
	if r.current == nil {
		r.beginEpisode()
	}
	e := r.current
	if err := e.encoderError(); err != nil {
		return added, err
	}
	if err := e.checkHeld(); err != nil {
		return added, err
	}
	if hasRoom, err := r.acquireQueue(ctx, need); err != nil || !hasRoom {
		return false, err
	}
	r.counters.QueuePeak = max(r.counters.QueuePeak, r.queuedBytes.Add(need))
	for i := range r.cfg.Features {
		r.addValue(e, &r.cfg.Features[i], rows[i], texts)
	}
	if len(r.options.Streams) > 0 {
		e.rowTimes = append(e.rowTimes, t)
	}
	e.tasks = append(e.tasks, task)
	e.rows++
	return true, nil
}

// checkValues checks the sizes of a row's values, and that numbers are finite. need is the number
// of bytes of its images.
func (r *Recorder) checkValues(rows [][]byte, texts map[string]string) (need int64, err error) {
	for i := range r.cfg.Features {
		f := &r.cfg.Features[i]
		size := GivenBytes(f)
		if _, isStream := r.options.Streams[f.Key]; isStream {
			size = 0
		}
		need += int64(pixelBytes(f))
		_, hasText := texts[f.Key]
		isText := f.Kind == robocache.KindText
		if len(rows[i]) != size || isText && !hasText {
			return 0, misuse(
				robocache.Where{"stream": f.Key},
				"",
				fmt.Sprintf("%d bytes", size),
				strconv.Itoa(len(rows[i])),
				"",
			)
		}
		if err := r.checkFinite(f, rows[i]); err != nil {
			return 0, err
		}
	}
	return need, nil
}

// acquireQueue reserves bytes of the queue of images. It returns false if the row is dropped.
func (r *Recorder) acquireQueue(ctx context.Context, need int64) (bool, error) {
	if r.queue.TryAcquire(need) {
		return true, nil
	}
	switch r.options.OnFull {
	case OnFullDrop:
		r.counters.Dropped++
		return false, nil
	case OnFullRaise:
		r.counters.Refused++
		return false, robocache.Temporary(
			opRecord,
			nil,
			"the queue of images is full: %d of %d bytes",
			r.queuedBytes.Load(),
			r.counters.QueueBytes,
		).WithHint("Call add_frame again later, raise %s, or pass %s, which costs less.",
			robocache.Option("queue_bytes"),
			robocache.Option("video_codec", "h264"))
	}
	since := time.Now()
	err := r.queue.Acquire(ctx, need)
	r.countWait(since)
	return err == nil, err
}

// addValue adds the value of a feature in a row to the episode.
func (r *Recorder) addValue(
	e *recording,
	f *robocache.Feature,
	value []byte,
	texts map[string]string,
) {
	switch {
	case f.Kind == robocache.KindText:
		e.text[f.Key] = append(e.text[f.Key], texts[f.Key])
		e.heldBytes.Add(int64(len(texts[f.Key])))
	case e.feeds[f.Key] != nil:
		var buffer []byte
		select {
		case buffer = <-r.freeBuffers: // append below allocates if there is no free buffer
		default:
		}
		e.feeds[f.Key].frames <- append(buffer[:0], value...)
	case e.native[f.Key] != nil: // alignRows fills the column
	default:
		e.columns[f.Key] = append(e.columns[f.Key], value...)
		e.heldBytes.Add(int64(len(value)))
	}
}

// checkFinite rejects a row of numbers that holds NaN or an infinity. Depth images are exempt: NaN
// means no return there.
func (r *Recorder) checkFinite(f *robocache.Feature, row []byte) error {
	if f.Kind != robocache.KindNumeric || !f.DType.Float() {
		return nil
	}
	size := f.DType.Size()
	// A float is not finite if all bits of its exponent are set. NaN also has a mantissa.
	for k := 0; k+size <= len(row); k += size {
		v := row[k : k+size]
		var exponent, allSet, mantissa uint64
		switch f.DType {
		case robocache.Float64:
			b := binary.LittleEndian.Uint64(v)
			exponent = b >> 52 & 0x7ff
			allSet = 0x7ff
			mantissa = b << 12
		case robocache.Float32:
			b := binary.LittleEndian.Uint32(v)
			exponent = uint64(b >> 23 & 0xff)
			allSet = 0xff
			mantissa = uint64(b << 9)
		case robocache.Float16:
			b := binary.LittleEndian.Uint16(v)
			exponent = uint64(b >> 10 & 0x1f)
			allSet = 0x1f
			mantissa = uint64(b << 6)
		default:
			return nil
		}
		isFinite := exponent != allSet
		if !isFinite && !r.allowsNaN(f.Key) {
			return r.notFinite(f, k/size, mantissa != 0)
		}
	}
	return nil
}

// allowsNaN reports whether a feature may have values that are not finite.
func (r *Recorder) allowsNaN(key string) bool {
	return slices.Contains(r.options.AllowNaN, "*") || slices.Contains(r.options.AllowNaN, key)
}

// notFinite returns the error about a value that is NaN or infinite.
func (r *Recorder) notFinite(f *robocache.Feature, element int, isNaN bool) error {
	value, name := "infinite", ""
	if isNaN {
		value = "NaN"
	}
	if names := f.ChannelNames(); names != nil {
		name = fmt.Sprintf(" (%s)", names[element])
	}
	return robocache.Misuse(
		opRecord,
		robocache.Where{"stream": f.Key, "element": element},
		"element %d%s is %s",
		element,
		name,
		value,
	).WithHint(
		"Record the last valid value, or pass %s.",
		robocache.Option("allow_nan", []string{f.Key}),
	)
}

// checkHeld rejects more numbers and still images than an episode may hold in memory.
func (e *recording) checkHeld() error {
	if e.heldBytes.Load() > maxHeldBytes {
		return robocache.ResourceLimit(opRecord, nil, "the episode's numbers and still images").
			Expected(fmt.Sprintf("%d bytes", maxHeldBytes), "more").
			WithHint(`save_episode() more often; cameras as "video" are not kept in memory`)
	}
	return nil
}

// encoderError returns the error of an encoder that failed.
func (e *recording) encoderError() error {
	for key, fd := range e.feeds {
		if err := fd.failed.Load(); err != nil {
			return robocache.At(*err, robocache.Where{"stream": key})
		}
	}
	return nil
}

// beginEpisode starts an episode and the goroutines of its cameras.
func (r *Recorder) beginEpisode() {
	ctx, stop := context.WithCancel(r.ctx)
	r.current = &recording{
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
		// The channel has capacity for a full queue, so sending never blocks.
		fd := &feed{
			feature: f,
			frames:  make(chan []byte, r.counters.QueueBytes/int64(n)+1),
			done:    make(chan struct{}),
			name:    fmt.Sprintf("%d-%016x.mp4", i, rand.Uint64()),
			pixels:  stats.AllFrames.Images(f),
		}
		r.current.feeds[f.Key] = fd
		e := r.current
		go func() {
			defer close(fd.done)
			work := crash.Func(opRecord, func() error { return r.encodeFrames(ctx, fd) })
			if f.Kind == robocache.KindImage {
				work = crash.Func(opRecord, func() error { return r.compressStills(fd, e) })
			}
			if err := work(); err != nil {
				fd.failed.Store(&err)
			}
			for p := range fd.frames { // images left after an encoder failed
				r.recycleBuffer(p)
			}
		}()
	}
}

// recycleBuffer keeps the buffer of an image for reuse, and releases its bytes in the queue.
func (r *Recorder) recycleBuffer(p []byte) {
	select {
	case r.freeBuffers <- p:
	default:
	}
	r.queuedBytes.Add(-int64(len(p)))
	r.queue.Release(int64(len(p)))
}

// encodeFrames encodes a camera's frames into an mp4 of the episode, and counts their pixels.
func (r *Recorder) encodeFrames(ctx context.Context, fd *feed) error {
	file := filepath.Join(r.partsDir, fd.name)
	coding, err := r.codingOf(fd.feature)
	if err != nil {
		return err
	}
	enc, _, err := newEncoder(ctx, file, coding, r.cfg.FPS, fd.feature)
	if err != nil {
		return err
	}
	defer enc.Abort()
	var depth *video.DepthCodes
	if fd.feature.Depth != nil {
		depth = video.NewDepthCodes(fd.feature.Depth)
	}
	var codes []byte
	for p := range fd.frames {
		var err error
		if depth != nil {
			codes = depth.Put(codes[:0], p)
			err = enc.Write(codes)
			fd.pixels.Add16(codes, fd.feature.Width)
		} else {
			err = enc.Write(p)
			fd.pixels.Add8(p, fd.feature.Width)
		}
		r.recycleBuffer(p)
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

// compressStills encodes a camera's still images as files.
func (r *Recorder) compressStills(fd *feed, e *recording) error {
	f := fd.feature
	for p := range fd.frames {
		b, err := video.EncodeImage(&robocache.FrameRef{
			Raw: &robocache.Raw{
				Pix:      p,
				Height:   f.Height,
				Width:    f.Width,
				Channels: f.Channels,
				DType:    f.DType,
			},
		})
		r.recycleBuffer(p)
		if err != nil {
			return err
		}
		e.heldBytes.Add(int64(len(b)))
		fd.stills = append(fd.stills, b)
	}
	return nil
}

// Discard drops the rows of the current episode.
func (r *Recorder) Discard() {
	e := r.current
	if e == nil {
		return
	}
	e.stop()
	e.endFrames()
	for _, fd := range e.feeds {
		<-fd.done
		_ = os.Remove(filepath.Join(r.partsDir, fd.name))
	}
	r.current = nil
}

// endFrames closes the channels of all cameras. Calling it again has no effect.
func (e *recording) endFrames() {
	if e.ended {
		return
	}
	e.ended = true
	for _, fd := range e.feeds {
		close(fd.frames)
	}
}

// SaveEpisode ends the current episode and adds it to the dataset. When it returns, the episode is
// durable. After an error (a full disk) the dataset is unchanged and the episode is still current.
// The caller can save it again or discard it.
func (r *Recorder) SaveEpisode(ctx context.Context) (err error) {
	defer crash.Recover(opRecord, &err)
	if err := r.errIfClosed(); err != nil {
		return err
	}
	defer robocache.Locate(&err, robocache.Where{"dataset": r.dir, "episode": r.nextEpisode()})
	e := r.current
	if e == nil || e.rows == 0 {
		return robocache.Misuse(opRecord, nil, "the episode has no rows").
			WithHint("add_frame() comes before save_episode()")
	}
	e.endFrames()
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
	size := e.heldBytes.Load()
	for key, fd := range e.feeds {
		select {
		case <-fd.done:
		case <-ctx.Done():
			return ctx.Err()
		}
		if err := e.encoderError(); err != nil {
			return err
		}
		if fd.feature.Kind == robocache.KindImage {
			ep.Images[key] = fd.stills
			continue
		}
		ep.Videos[key] = VideoPart{Library: r.library, Path: fd.name}
		ep.FrameStats[key] = fd.pixels
		size += fd.size
	}
	// Completes an earlier save that failed.
	if err := r.applyStaged(ctx); err != nil {
		return err
	}
	if err := r.saveEpisode(ctx, ep, size, r.nativeOf(e)); err != nil {
		return err
	}
	e.stop()
	r.current = nil
	return r.applyStaged(ctx)
}

// frameStats returns the statistics of all images so far.
func (r *Recorder) frameStats(next *recorded) robocache.Stats {
	out := robocache.Stats{}
	for i := range r.cfg.Features {
		f := &r.cfg.Features[i]
		if pixelBytes(f) == 0 {
			continue
		}
		var counted *robocache.FeatureStats
		if p := next.pixels[f.Key]; p != nil {
			counted = p.Stats()
		}
		if all := mergeStats(next.totals[f.Key], counted, true); all != nil {
			out[f.Key] = all
		}
	}
	return out
}

// mergeStats returns the statistics of the rows of a and b. Quantiles of the whole cannot be
// computed from those of its parts. If estimate is true, they are the mean of both, weighted by
// rows.
func mergeStats(a, b *robocache.FeatureStats, estimate bool) *robocache.FeatureStats {
	if a == nil || b == nil || len(a.Mean) != len(b.Mean) {
		if b == nil {
			return a
		}
		return b
	}
	moments := stats.MomentsOf(a)
	moments.Merge(stats.MomentsOf(b))
	out := moments.Stats()
	out.Shape = b.Shape
	out.Count = a.Count + b.Count
	if estimate && len(a.Quantiles) > 0 {
		out.Quantiles = maps.Clone(b.Quantiles)
		weightA, weightB := float64(a.Count)/float64(out.Count), float64(b.Count)/float64(out.Count)
		for name, q := range b.Quantiles {
			if other := a.Quantiles[name]; len(other) == len(q) {
				mean := make([]float64, len(q))
				for c := range q {
					mean[c] = weightA*other[c] + weightB*q[c]
				}
				out.Quantiles[name] = mean
			}
		}
	}
	return out
}
