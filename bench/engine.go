package bench

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"hash"
	"io"
	"math"
	"time"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/loader"
)

// LoadRun runs the workload through the Go loader in this process: the engine without Python.
func LoadRun(ctx context.Context, w Workload) (Outcome, error) {
	start := time.Now()
	ds, err := robocache.Open(ctx, w.URI, robocache.OpenOptions{})
	if err != nil {
		return Outcome{}, err
	}
	defer ds.Close()
	cfg, err := w.config(ds.Info())
	if err != nil {
		return Outcome{}, err
	}
	ld, err := loader.New(ctx, ds, cfg)
	if err != nil {
		return Outcome{}, err
	}
	defer ld.Close()
	o := Outcome{OpenS: time.Since(start).Seconds()}

	begin := time.Now()
	if _, err := epoch(ctx, ld, func(b *loader.Batch) {
		if o.FirstBatchS == 0 {
			o.FirstBatchS = time.Since(begin).Seconds()
		}
	}); err != nil {
		return o, err
	}
	o.PSSPeakMB = selfPSSMB()

	order := sha256.New()
	distinct, full := 0.0, 0
	before := ld.Stats()
	cpu, begin := selfCPU(), time.Now()
	for range w.Epochs {
		n, err := epoch(ctx, ld, func(b *loader.Batch) {
			logOrder(order, b.Indices)
			if b.Rows == w.BatchSize {
				distinct += distinctEpisodes(b)
				full++
			}
		})
		if err != nil {
			return o, err
		}
		o.Samples += n
	}
	o.Seconds, o.CPUSeconds = time.Since(begin).Seconds(), selfCPU()-cpu
	after := ld.Stats()
	o.Decoded, o.Delivered = after.FramesDecoded-before.FramesDecoded, after.Frames-before.Frames
	o.OrderSHA256 = hex.EncodeToString(order.Sum(nil))
	if full > 0 {
		o.DistinctFrac = distinct / float64(full)
	}
	lengths := make([]int, ds.Info().Episodes)
	for i := range lengths {
		lengths[i] = ds.Len(i)
	}
	o.IdealFrac = IdealDistinct(lengths, w.BatchSize)
	return o, nil
}

func epoch(ctx context.Context, ld *loader.Loader, each func(*loader.Batch)) (int64, error) {
	var n int64
	for {
		b, err := ld.Next(ctx)
		if errors.Is(err, io.EOF) {
			return n, nil
		}
		if err != nil {
			return n, err
		}
		each(b)
		n += int64(b.Rows)
		b.Release()
	}
}

func logOrder(h hash.Hash, indices []int64) {
	var b [8]byte
	for _, i := range indices {
		binary.LittleEndian.PutUint64(b[:], uint64(i))
		h.Write(b[:])
	}
}

func distinctEpisodes(b *loader.Batch) float64 {
	t := b.Tensor("episode_index")
	if t == nil {
		return math.NaN()
	}
	seen := map[uint64]bool{}
	for i := range b.Rows {
		seen[binary.LittleEndian.Uint64(t.Data[8*i:])] = true
	}
	return float64(len(seen)) / float64(b.Rows)
}

// IdealDistinct is the share of distinct episodes in a batch drawn from a perfect shuffle: Σ_e [1 − C(N−n_e,B)/C(N,B)] / B.
func IdealDistinct(lengths []int, batch int) float64 {
	n := 0
	for _, l := range lengths {
		n += l
	}
	batch = min(batch, n)
	if batch == 0 {
		return 0
	}
	total := 0.0
	for _, l := range lengths {
		miss := 1.0
		for i := range batch {
			miss *= math.Max(0, float64(n-l-i)) / float64(n-i)
		}
		total += 1 - miss
	}
	return total / float64(batch)
}

// config turns the workload into the loader's configuration, with the dataset's own names.
func (w *Workload) config(info *robocache.Info) (loader.Config, error) {
	c := loader.Config{BatchSize: w.BatchSize, Shuffle: loader.Global, Seed: int64(w.Seed), Threads: w.Workers, ImageDType: "uint8"}
	if w.Float32 {
		c.ImageDType = "float32"
	}
	var offsets []float64
	for i := range w.Window {
		offsets = append(offsets, float64(i)/info.FPS.Float())
	}
	cameras := 0
	for i := range info.Features {
		f := &info.Features[i]
		windowed := f.Key == "observation.state" || f.Key == "action"
		if f.Kind == robocache.KindVideo {
			if w.Video == "none" || w.Video == "one" && cameras > 0 {
				continue
			}
			cameras++
			windowed = true
		}
		c.Keys = append(c.Keys, f.Key)
		if windowed && offsets != nil {
			c.Deltas = append(c.Deltas, loader.Delta{Key: f.Key, Offsets: offsets})
		}
	}
	switch w.Video {
	case "one", "all", "none":
	default:
		return c, &robocache.Error{Class: robocache.ErrMisuse, Msg: "--video", Want: "one, all or none", Got: w.Video}
	}
	return c, nil
}
