package bench

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/store"
	"github.com/goatnote-inc/robocache/video"
)

// timeWork measures wall and CPU seconds of work in this process. It prints the lines that the
// harness reads before and after.
func (o *Outcome) timeWork(marks io.Writer, work func() error) error {
	fmt.Fprintln(marks, lineOpen)
	cpu, start := selfCPU(), time.Now()
	if err := work(); err != nil {
		return err
	}
	o.Seconds, o.CPUSeconds = time.Since(start).Seconds(), selfCPU()-cpu
	fmt.Fprintln(marks, lineClose)
	return nil
}

// DecodeRun decodes files to RGB on one thread, as runners/robocache_bench/decode.py does, and
// measures the time.
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
		return pool.Decode(
			ctx,
			f,
			nil,
			video.Plan(f.Index, frames),
			func(_ int, pic video.Frame) error {
				n, err := pic.Bytes(spec)
				if err != nil {
					return err
				}
				if len(buf) < n {
					buf = make([]byte, n)
				}
				o.Samples++
				return pic.Convert(spec, buf[:n])
			},
		)
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
	if w.Pattern == "random" {
		work = func() error {
			rng := rand.New(rand.NewPCG(0, 0))
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
	} else if w.Pattern != "sequential" {
		return o, robocache.Misuse("", nil, "pattern %s", w.Pattern).
			WithHint("sequential or random")
	}
	if err := o.timeWork(marks, work); err != nil {
		return o, err
	}
	o.Delivered, o.Decoded = o.Samples, pool.Stats().Decoded
	return o, nil
}

// CopyRun measures the limit for a warm cache. Threads copy frames from random positions of a large
// source, which fits into no processor cache, into rotating buffers. It runs for about w.Seconds. A
// sample is a frame.
func CopyRun(_ context.Context, w Workload, marks io.Writer) (o Outcome, err error) {
	const images, buffers = 1024, 8
	if w.Bytes < 1 {
		return o, robocache.Misuse("", nil, "memcpy: frames of no bytes")
	}
	// Reading a page that was never written would read the kernel's single page of zeros.
	touched := func(n int) []byte { return bytes.Repeat([]byte{1}, n) }
	source, held := touched(images*w.Bytes), make([][]byte, w.Workers)
	for t := range held {
		held[t] = touched(buffers * w.BatchSize * w.Bytes)
	}
	var n atomic.Int64
	run := func(seconds float64) {
		n.Store(0)
		end := time.Now().Add(time.Duration(seconds * 1e9))
		var threads sync.WaitGroup
		for t := range w.Workers {
			threads.Go(func() {
				rng, dst := rand.New(rand.NewPCG(1, uint64(t))), held[t]
				for k := 0; time.Now().Before(end); k++ {
					for i := range w.BatchSize {
						to, from := (k%buffers*w.BatchSize+i)*w.Bytes, rng.IntN(images)*w.Bytes
						copy(dst[to:to+w.Bytes], source[from:])
					}
					n.Add(int64(w.BatchSize))
				}
			})
		}
		threads.Wait()
	}
	seconds := max(w.Seconds, 1)
	run(seconds / 4)
	if err := o.timeWork(marks, func() error {
		run(seconds)
		return nil
	}); err != nil {
		return o, err
	}
	o.Samples = n.Load()
	o.Delivered = o.Samples
	return o, nil
}

// ReadRun measures whole passes of a dataset reader: every row in order, in batches. It opens the
// dataset again for each pass.
func ReadRun(ctx context.Context, w Workload, marks io.Writer) (o Outcome, err error) {
	// A training process holds batches. With an empty heap the collector would run every few
	// frames.
	held := make([]byte, 128<<20)
	var begin time.Time
	// the first pass is not measured
	for turn := 0; turn < 2 || time.Since(begin).Seconds() < w.Seconds; turn++ {
		ds, err := w.openDataset(ctx)
		if err != nil {
			return o, err
		}
		if turn == 1 {
			fmt.Fprintln(marks, lineOpen)
			o, begin = Outcome{}, time.Now()
		}
		cpu, start := selfCPU(), time.Now()
		n, err := readRows(ctx, ds, w.BatchSize)
		if err != nil {
			return o, err
		}
		o.Samples, o.Seconds, o.CPUSeconds = o.Samples+n, o.Seconds+time.Since(start).
			Seconds(),
			o.CPUSeconds+selfCPU()-cpu
		ds.Close()
	}
	fmt.Fprintln(marks, lineClose)
	_ = held[len(held)-1]
	return o, nil
}

// readRows reads every stream of every row once and returns the number of rows.
func readRows(ctx context.Context, ds robocache.Dataset, batch int) (n int64, err error) {
	var rows []robocache.Row
	for e := range ds.Info().Episodes {
		for i := range ds.Len(e) {
			rows = append(rows, robocache.Row{Episode: e, Index: i})
		}
	}
	refs := make([]robocache.FrameRef, batch)
	var dst []byte // reused, like the buffers of a loader
	for lo := 0; lo+batch <= len(rows) || lo == 0; lo += batch {
		part := rows[lo:min(lo+batch, len(rows))]
		for i := range ds.Info().Features {
			f := &ds.Info().Features[i]
			switch {
			case f.Kind == robocache.KindImage:
				done, err := robocache.LeaseFrames(ctx, ds, f.Key, part, refs[:len(part)])
				if err != nil {
					return n, err
				}
				if done != nil {
					done()
				}
			case f.Kind == robocache.KindNumeric && !f.Default:
				size := len(part) * f.RowBytes()
				dst = slices.Grow(dst[:0], size)[:size]
				if err := ds.Gather(ctx, f.Key, part, dst); err != nil {
					return n, err
				}
			}
		}
		n += int64(len(part))
	}
	return n, nil
}
