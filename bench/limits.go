package bench

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"time"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/store"
	"github.com/goatnote-inc/robocache/video"
)

// window is what a runner of this process measures by itself: wall and CPU seconds of work, between the lines that the harness reads.
func (o *Outcome) window(marks io.Writer, work func() error) error {
	fmt.Fprintln(marks, lineOpen)
	cpu, start := selfCPU(), time.Now()
	err := work()
	o.Seconds, o.CPUSeconds = time.Since(start).Seconds(), selfCPU()-cpu
	fmt.Fprintln(marks, lineClose)
	return err
}

// DecodeRun decodes files to RGB on one thread, as runners/decode.py does, and says what it took.
func DecodeRun(ctx context.Context, w Workload, marks io.Writer) (o Outcome, err error) {
	if _, err := video.ActiveBackend(); err != nil {
		return o, err
	}
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
	decode := func(f *video.File, frames []int) error {
		return pool.Decode(ctx, f, nil, video.Plan(f.Index, frames), func(_ int, pic video.Frame) error {
			n, err := pic.Bytes(spec)
			if err != nil {
				return err
			}
			if len(buf) < n {
				buf = make([]byte, n)
			}
			o.Samples++
			return pic.Convert(spec, buf[:n])
		})
	}
	var held []*video.File
	total := 0
	for _, p := range w.Files {
		f, err := lib.Acquire(ctx, p)
		if err != nil {
			return o, err
		}
		defer f.Release()
		held, total = append(held, f), total+f.Index.NumFrames()
	}
	work := func() error {
		for _, f := range held {
			if err := decode(f, f.Index.All()); err != nil {
				return err
			}
		}
		return nil
	}
	switch w.Pattern {
	case "sequential":
	case "random":
		rng := rand.New(rand.NewPCG(0, 0))
		work = func() error {
			for range w.Count {
				k, i := rng.IntN(total), 0
				for ; k >= held[i].Index.NumFrames(); i++ {
					k -= held[i].Index.NumFrames()
				}
				if err := decode(held[i], []int{k}); err != nil {
					return err
				}
			}
			return nil
		}
	default:
		return o, &robocache.Error{Class: robocache.ErrMisuse, Msg: "pattern " + w.Pattern, Hint: "sequential or random"}
	}
	err = o.window(marks, work)
	o.Delivered, o.Decoded = o.Samples, pool.Stats().Decoded
	return o, err
}

// CopyRun is the limit of a warm cache: batches of frames copied from random places of a source that no cache of the processor holds
// into rotating buffers, by threads, for about the seconds given. A sample is a frame.
func CopyRun(_ context.Context, w Workload, marks io.Writer) (o Outcome, err error) {
	const images, buffers = 1024, 8
	if w.Bytes < 1 || w.BatchSize < 1 || w.Workers < 1 {
		return o, &robocache.Error{Class: robocache.ErrMisuse, Msg: fmt.Sprintf("memcpy: %d bytes, batch %d, %d threads", w.Bytes, w.BatchSize, w.Workers), Want: "more than 0"}
	}
	source := make([]byte, images*w.Bytes)
	for i := range source { // touched: reading an untouched page reads one page of zeros
		source[i] = byte(i)
	}
	dst := make([][]byte, buffers*w.Workers)
	for i := range dst {
		dst[i] = make([]byte, w.BatchSize*w.Bytes)
		for k := 0; k < len(dst[i]); k += 4096 {
			dst[i][k] = 1
		}
	}
	run := func(seconds float64) (n int64) {
		end := time.Now().Add(time.Duration(seconds * 1e9))
		var wg sync.WaitGroup
		done := make([]int64, w.Workers)
		for t := range done {
			wg.Go(func() {
				rng := rand.New(rand.NewPCG(1, uint64(t)))
				for k := 0; time.Now().Before(end); k++ {
					to := dst[t*buffers+k%buffers]
					for i := range w.BatchSize {
						from := rng.IntN(images) * w.Bytes
						copy(to[i*w.Bytes:(i+1)*w.Bytes], source[from:from+w.Bytes])
					}
					done[t] += int64(w.BatchSize)
				}
			})
		}
		wg.Wait()
		for _, d := range done {
			n += d
		}
		return n
	}
	run(w.Seconds / 4)
	err = o.window(marks, func() error { o.Samples = run(w.Seconds); return nil })
	o.Delivered = o.Samples
	return o, err
}
