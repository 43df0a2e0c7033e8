package bench

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"path/filepath"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/guard"
	"github.com/goatnote-inc/robocache/store"
	"github.com/goatnote-inc/robocache/video"
)

// window is what a runner of this process measures by itself: wall and CPU seconds of work, between the lines that the harness reads.
func (o *Outcome) window(marks io.Writer, work func()) {
	fmt.Fprintln(marks, lineOpen)
	cpu, start := selfCPU(), time.Now()
	work()
	o.Seconds, o.CPUSeconds = time.Since(start).Seconds(), selfCPU()-cpu
	fmt.Fprintln(marks, lineClose)
}

// DecodeRun decodes files to RGB on one thread, as runners/decode.py does, and says what it took.
func DecodeRun(ctx context.Context, w Workload, marks io.Writer) (o Outcome, err error) {
	defer guard.Into(&err)
	guard.Must(video.ActiveBackend())
	lib := video.NewLibrary(func(ctx context.Context, path string) (robocache.Ranged, error) {
		s, err := store.Open(filepath.Dir(path))
		if err != nil {
			return nil, err
		}
		return s.Open(ctx, filepath.Base(path))
	}, 64<<20)
	defer lib.Close()
	pool := video.NewPool(256 << 20)
	defer pool.Close()
	spec := &video.Spec{Pixel: video.RGB8, ChannelsFirst: true}
	var buf []byte
	decode := func(f *video.File, frames []int) {
		guard.Check(pool.Decode(ctx, f, nil, video.Plan(f.Index, frames), func(_ int, pic video.Frame) error {
			n, err := pic.Bytes(spec)
			if err != nil {
				return err
			}
			if len(buf) < n {
				buf = make([]byte, n)
			}
			o.Samples++
			return pic.Convert(spec, buf[:n])
		}))
	}
	var held []*video.File
	total := 0
	for _, p := range w.Files {
		f := guard.Must(lib.Acquire(ctx, p))
		defer f.Release()
		held, total = append(held, f), total+f.Index.NumFrames()
	}
	work, ok := map[string]func(){"sequential": func() {
		for _, f := range held {
			decode(f, f.Index.All())
		}
	}, "random": func() {
		rng := rand.New(rand.NewPCG(0, 0))
		for range w.Count {
			k, i := rng.IntN(total), 0
			for ; k >= held[i].Index.NumFrames(); i++ {
				k -= held[i].Index.NumFrames()
			}
			decode(held[i], []int{k})
		}
	}}[w.Pattern]
	if !ok {
		return o, &robocache.Error{Class: robocache.ErrMisuse, Msg: "pattern " + w.Pattern, Hint: "sequential or random"}
	}
	o.window(marks, work)
	o.Delivered, o.Decoded = o.Samples, pool.Stats().Decoded
	return o, nil
}

// CopyRun is the limit of a warm cache: batches of frames copied from random places of a source that no cache of the processor holds
// into rotating buffers, by threads, for about the seconds given. A sample is a frame.
func CopyRun(_ context.Context, w Workload, marks io.Writer) (o Outcome, err error) {
	const images, buffers = 1024, 8
	if w.Bytes < 1 || w.BatchSize < 1 || w.Workers < 1 {
		return o, &robocache.Error{Class: robocache.ErrMisuse, Msg: fmt.Sprintf("memcpy: %d bytes, batch %d, %d threads", w.Bytes, w.BatchSize, w.Workers), Want: "more than 0"}
	}
	touched := func(n int) []byte { // reading an untouched page reads one page of zeros
		b := make([]byte, n)
		for i := range b {
			b[i] = byte(i)
		}
		return b
	}
	source, dst := touched(images*w.Bytes), make([][]byte, buffers*w.Workers)
	for i := range dst {
		dst[i] = touched(w.BatchSize * w.Bytes)
	}
	run := func(seconds float64) int64 {
		end := time.Now().Add(time.Duration(seconds * 1e9))
		var g errgroup.Group
		var n atomic.Int64
		for t := range w.Workers {
			g.Go(func() error {
				rng := rand.New(rand.NewPCG(1, uint64(t)))
				for k := 0; time.Now().Before(end); k++ {
					to := dst[t*buffers+k%buffers]
					for i := range w.BatchSize {
						from := rng.IntN(images) * w.Bytes
						copy(to[i*w.Bytes:(i+1)*w.Bytes], source[from:from+w.Bytes])
					}
					n.Add(int64(w.BatchSize))
				}
				return nil
			})
		}
		_ = g.Wait()
		return n.Load()
	}
	run(w.Seconds / 4)
	o.window(marks, func() { o.Samples = run(w.Seconds) })
	o.Delivered = o.Samples
	return o, nil
}
