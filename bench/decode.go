package bench

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"path/filepath"
	"time"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/store"
	"github.com/goatnote-inc/robocache/video"
)

// DecodeRun decodes files to RGB on one thread, as the decode runners do, and says what it took.
// pattern: "sequential" (every frame of every file) or "random" (count single frames, each a plan of its own).
func DecodeRun(ctx context.Context, files []string, pattern string, count int, marks io.Writer) (Outcome, error) {
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
	delivered := int64(0)
	deliver := func(_ int, pic video.Frame) error {
		n, err := pic.Bytes(spec)
		if err != nil {
			return err
		}
		if len(buf) < n {
			buf = make([]byte, n)
		}
		delivered++
		return pic.Convert(spec, buf[:n])
	}
	var held []*video.File
	for _, p := range files {
		f, err := lib.Acquire(ctx, p)
		if err != nil {
			return Outcome{}, err
		}
		defer f.Release()
		held = append(held, f)
	}
	fmt.Fprintln(marks, lineOpen)
	cpu, start := selfCPU(), time.Now()
	switch pattern {
	case "sequential":
		for _, f := range held {
			if err := pool.Decode(ctx, f, nil, video.Plan(f.Index, f.Index.All()), deliver); err != nil {
				return Outcome{}, err
			}
		}
	case "random":
		total := 0
		for _, f := range held {
			total += f.Index.NumFrames()
		}
		rng := rand.New(rand.NewPCG(0, 0))
		for range count {
			k := rng.IntN(total)
			i := 0
			for k >= held[i].Index.NumFrames() {
				k -= held[i].Index.NumFrames()
				i++
			}
			if err := pool.Decode(ctx, held[i], nil, video.Plan(held[i].Index, []int{k}), deliver); err != nil {
				return Outcome{}, err
			}
		}
	default:
		return Outcome{}, &robocache.Error{Class: robocache.ErrMisuse, Msg: "pattern " + pattern, Hint: "sequential or random"}
	}
	o := Outcome{Samples: delivered, Delivered: delivered, Seconds: time.Since(start).Seconds(), CPUSeconds: selfCPU() - cpu}
	fmt.Fprintln(marks, lineClose)
	o.Decoded = pool.Stats().Decoded
	return o, nil
}
